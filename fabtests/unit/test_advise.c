// SPDX-License-Identifier: BSD-2-Clause
/* Verdicts of made-up samples; devices and nodes of invented machines. */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "core/thread.h"
#include "util/advise.h"
#include "util/text.h"

static struct advise a;

static void setup(void)
{
	caps_setup();
	a = (struct advise){.root = dir, .seed = 1};
}

TestSuite(advise, .init = setup, .fini = caps_teardown);

/* --- made-up samples --- */

static unsigned int samples;
static uint64_t as_ns, other_ns, noise;
static int broken;

static bool row_applies(const struct advise *x, const struct advise_row *row,
			char *reason)
{
	return true;
}

static int measure(struct advise *x, const struct advise_row *row,
		   enum advise_way way, uint64_t *ns, char *err)
{
	samples++;
	if (broken)
		return rp_err(err, broken, "the disk is gone");
	*ns = way == ADVISE_AS ? as_ns : other_ns;
	/* Now one way is slow, now the other one. */
	if (noise)
		*ns += advise_random(x, noise);
	return 0;
}

static struct advise_row row = {
	.name = "row",
	.source = "a paper",
	.advice = "Do so.",
	.as = "so",
	.other = "otherwise",
	.set = "nothing",
	.applies = row_applies,
	.measure = measure,
};

static json_t *judged;

static const char *judge_samples(uint64_t as, uint64_t other, uint64_t much)
{
	as_ns = as;
	other_ns = other;
	noise = much;
	json_decref(judged);
	judged = advise_judge(&a, &row,
			      rp_clock_ns(CLOCK_MONOTONIC) + 60000000000ull);
	return json_string_value(json_object_get(judged, "verdict"));
}

static const char *reason(void)
{
	const char *s = json_string_value(json_object_get(judged, "reason"));

	return s ? s : "";
}

static double figure(const char *name)
{
	return json_number_value(
		json_object_get(json_object_get(judged, "ratio"), name));
}

Test(advise, gain_holds_and_loss_does_not)
{
	cr_assert_str_eq(judge_samples(100, 200, 0), "holds");
	cr_assert_float_eq(figure("median"), 2, 1e-9);
	cr_assert_str_eq(reason(), "");
	cr_assert_str_eq(judge_samples(200, 100, 0), "does not hold");
	cr_assert_float_eq(figure("median"), 0.5, 1e-9);
}

Test(advise, ratio_inside_the_noise_cannot_be_measured)
{
	cr_assert_str_eq(judge_samples(100, 105, 5000),
			 "cannot be measured here");
	cr_assert(strstr(reason(), "differ too much"), "%s", reason());
	cr_assert(figure("low") < RP_RATIO_WORTH);
	cr_assert(figure("high") > RP_RATIO_WORTH);
}

Test(advise, failure_is_the_reason)
{
	broken = -EIO;
	cr_assert_str_eq(judge_samples(100, 200, 0), "cannot be measured here");
	cr_assert_str_eq(reason(), "the disk is gone");
	cr_assert_null(json_object_get(judged, "ratio"));
}

/* A run with twice the time has twice as many pairs, and narrower intervals. */
Test(advise, longer_run_takes_more_pairs)
{
	judge_samples(100, 100, 0);
	cr_assert_eq(figure("pairs"), 101);
	a.seconds = 2 * ADVISE_SECONDS;
	judge_samples(100, 100, 0);
	cr_assert_eq(figure("pairs"), 202);
	/* No run has fewer pairs, because that would only hide differences. */
	a.seconds = 1;
	judge_samples(100, 100, 0);
	cr_assert_eq(figure("pairs"), 101);
}

/* Both ways take turns at being first. */
static enum advise_way order[4];

static int note_order(struct advise *x, const struct advise_row *r,
		      enum advise_way way, uint64_t *ns, char *err)
{
	/* Behind the pair that is not counted. */
	if (samples >= 2 && samples < 6)
		order[samples - 2] = way;
	samples++;
	*ns = 1;
	return 0;
}

Test(advise, ways_take_turns)
{
	row.measure = note_order;
	cr_assert_str_eq(judge_samples(1, 1, 0), "does not hold");
	cr_assert_neq(order[0], order[1]);
	cr_assert_neq(order[2], order[3]);
	cr_assert_neq(order[0], order[2]);
}

/* Behind the time of all rows nothing is measured. */
Test(advise, no_time_is_left)
{
	judged = advise_judge(&a, &row, 0);
	cr_assert_str_eq(json_string_value(json_object_get(judged, "verdict")),
			 "cannot be measured here");
	cr_assert(strstr(reason(), "are over"), "%s", reason());
	cr_assert_eq(samples, 0);
}

/* A run that ends during a row has no verdict by its few pairs. */
static int measure_and_stop(struct advise *x, const struct advise_row *r,
			    enum advise_way way, uint64_t *ns, char *err)
{
	advise_interrupted = ++samples == 10;
	*ns = way == ADVISE_AS ? 1 : 9;
	return 0;
}

Test(advise, too_few_pairs_cannot_be_measured)
{
	row.measure = measure_and_stop;
	cr_assert_str_eq(judge_samples(1, 9, 0), "cannot be measured here");
	cr_assert(strstr(reason(), "4 pairs are too few"), "%s", reason());
}

/* --- invented machines --- */

static const struct advise_row *machine_row(const char *name)
{
	const struct advise_row *r = advise_machine_rows;

	while (r->name && strcmp(r->name, name))
		r++;
	cr_assert_not_null(r->name, "%s", name);
	return r;
}

/* The reason why a row is not measured, or "". */
static const char *refusal(const char *name)
{
	static char text[RP_ERR_LEN];
	const struct advise_row *r = machine_row(name);

	text[0] = '\0';
	return r->applies(&a, r, text) ? "" : text;
}

Test(advise, dma_engines)
{
	char names[64];

	cr_assert_eq(advise_find_engines(dir, names, sizeof(names)), 0);
	cr_assert(strstr(refusal("DMA engine"), "no Intel DSA device"));
	/* Engines that compress are no DSA; queues are no engines. */
	write_tree("/sys/bus/dsa/devices/iax1/state", "enabled\n");
	write_tree("/sys/bus/dsa/devices/wq0.0/state", "enabled\n");
	cr_assert_eq(advise_find_engines(dir, names, sizeof(names)), 0);
	write_tree("/sys/bus/dsa/devices/dsa2/state", "enabled\n");
	write_tree("/sys/bus/dsa/devices/dsa0/state", "disabled\n");
	cr_assert_eq(advise_find_engines(dir, names, sizeof(names)), 2);
	cr_assert_str_eq(names, "dsa0, dsa2");
	cr_assert(strstr(refusal("DMA engine"),
			 "dsa0, dsa2: a device is there, and this version of "
			 "ofi_rpmem copies by the processor"));
	/* A target's engines are not those of this machine. */
	a.target = "host:pool";
	cr_assert(strstr(refusal("DMA engine"), "at the target"));
}

Test(advise, nodes)
{
	int cpus[2];

	cr_assert_eq(advise_find_nodes(dir, -1, cpus), 0);
	cr_assert(strstr(refusal("NUMA node"), "no node"), "%s",
		  refusal("NUMA node"));
	write_tree("/sys/devices/system/node/node0/cpulist", "0-3,8\n");
	cr_assert(strstr(refusal("NUMA node"), "one node"), "%s",
		  refusal("NUMA node"));
	/* Memory without CPUs. */
	write_tree("/sys/devices/system/node/node1/cpulist", "\n");
	cr_assert_eq(advise_find_nodes(dir, -1, cpus), 1);
	write_tree("/sys/devices/system/node/node2/cpulist", "4-7\n");
	cr_assert_eq(advise_find_nodes(dir, -1, cpus), 2);
	cr_assert_eq(cpus[0], 0);
	cr_assert_eq(cpus[1], 4);
	/* The numbers have a gap: 2 is the second one. */
	cr_assert_eq(advise_find_nodes(dir, 2, cpus), 2);
	cr_assert_eq(cpus[0], 4);
	cr_assert_eq(cpus[1], 0);
	/* Memory on the node without CPUs. */
	cr_assert_eq(advise_find_nodes(dir, 1, cpus), 2);
	cr_assert_eq(cpus[0], -1);
	cr_assert_str_eq(refusal("NUMA node"), "");
}

/* This machine's memory is on node 0, which has no CPUs in this tree. */
Test(advise, memory_without_cpus)
{
	const struct info_transport tcp = {.base = "tcp"};
	char err[RP_ERR_LEN] = "";
	int node;

	write_tree("/sys/devices/system/node/node1/cpulist", "0\n");
	write_tree("/sys/devices/system/node/node2/cpulist", "1\n");
	cr_assert_eq(advise_memory_open(&a, dir, &tcp, err), 0, "%s", err);
	if (!syscall(SYS_get_mempolicy, &node, NULL, 0, a.map.addr, 3) && !node)
		cr_assert(strstr(refusal("NUMA node"), "node 0, which has no"),
			  "%s", refusal("NUMA node"));
	advise_memory_close(&a);
}

/* The CPUs to which advise_machine.c has moved this thread. */
static cpu_set_t moved;

int sched_setaffinity(pid_t pid, size_t len, const cpu_set_t *set)
{
	/* The set of the end has all CPUs, not one of a node. */
	if (CPU_COUNT(set) == 1)
		CPU_OR(&moved, &moved, set);
	return (int)syscall(SYS_sched_setaffinity, pid, len, set);
}

/* Each way runs on the CPU of its node, and leaves the thread as it was. */
Test(advise, nodes_are_compared)
{
	const struct info_transport tcp = {.base = "tcp"};
	const struct advise_row *r = machine_row("NUMA node");
	char err[RP_ERR_LEN] = "";
	cpu_set_t before, after;
	uint64_t ns = 0;

	write_tree("/sys/devices/system/node/node0/cpulist", "0\n");
	write_tree("/sys/devices/system/node/node1/cpulist", "1023\n");
	cr_assert_eq(advise_memory_open(&a, dir, &tcp, err), 0, "%s", err);
	sched_getaffinity(0, sizeof(before), &before);
	cr_assert_eq(r->measure(&a, r, ADVISE_AS, &ns, err), 0, "%s", err);
	cr_assert(ns > 0);
	cr_assert(CPU_ISSET(0, &moved));
	cr_assert_neq(r->measure(&a, r, ADVISE_OTHER, &ns, err), 0);
	cr_assert(strstr(err, "CPU 1023"), "%s", err);
	sched_getaffinity(0, sizeof(after), &after);
	cr_assert(CPU_EQUAL(&before, &after));
	advise_memory_close(&a);
}

/* CPUs 0 and 1 of this machine are a node each: the row is measured. */
Test(advise, two_nodes_have_a_verdict)
{
	const struct info_transport tcp = {.base = "tcp"};
	const struct advise_row *r = machine_row("NUMA node");
	char err[RP_ERR_LEN] = "";
	cpu_set_t before, after;
	uint64_t ns = 0;

	sched_getaffinity(0, sizeof(before), &before);
	if (!CPU_ISSET(0, &before) || !CPU_ISSET(1, &before))
		cr_skip_test("no CPUs 0 and 1");
	write_tree("/sys/devices/system/node/node0/cpulist", "0\n");
	write_tree("/sys/devices/system/node/node1/cpulist", "1\n");
	cr_assert_eq(advise_memory_open(&a, dir, &tcp, err), 0, "%s", err);
	cr_assert_eq(r->measure(&a, r, ADVISE_AS, &ns, err), 0, "%s", err);
	cr_assert(CPU_ISSET(0, &moved) && !CPU_ISSET(1, &moved));
	CPU_ZERO(&moved);
	cr_assert_eq(r->measure(&a, r, ADVISE_OTHER, &ns, err), 0, "%s", err);
	cr_assert(CPU_ISSET(1, &moved) && !CPU_ISSET(0, &moved));
	row.measure = r->measure;
	row.applies = r->applies;
	judge_samples(0, 0, 0);
	cr_assert_geq(figure("pairs"), 8, "%s", reason());
	sched_getaffinity(0, sizeof(after), &after);
	cr_assert(CPU_EQUAL(&before, &after));
	advise_memory_close(&a);
}

Test(advise, ddio)
{
	cr_assert(strstr(refusal("DDIO off"), "through no adapter"));
	strcpy(a.nic.pci, "0000:18:00.0");
	strcpy(a.nic.port, "0000:17:00.0");
	a.nic.ddio = RP_YES;
	cr_assert(strstr(refusal("DDIO off"), "DDIO is on at 0000:17:00.0"),
		  "%s", refusal("DDIO off"));
	a.nic.ddio = RP_NO;
	cr_assert(strstr(refusal("DDIO off"), "DDIO is off at 0000:17:00.0"));
	a.nic.ddio = RP_UNKNOWN;
	cr_assert(strstr(refusal("DDIO off"), "on or off"));
}

static size_t synced; /* bytes that msync() wrote back */

int __real_msync(void *addr, size_t len, int flags);
int __wrap_msync(void *addr, size_t len, int flags);

int __wrap_msync(void *addr, size_t len, int flags)
{
	synced += len;
	return __real_msync(addr, len, flags);
}

/*
 * Each comparison of memory runs in both ways, whatever a machine makes of it.
 * Those of pages call msync, for more bytes in the other way.
 */
Test(advise, memory_rows_run_both_ways)
{
	const struct info_transport tcp = {.base = "tcp"};
	char err[RP_ERR_LEN] = "";

	cr_assert_eq(advise_memory_open(&a, dir, &tcp, err), 0, "%s", err);
	for (const struct advise_row *r = advise_memory_rows; r->name; r++) {
		size_t of[2];

		for (int way = ADVISE_AS; way <= ADVISE_OTHER; way++) {
			uint64_t ns = 0;

			synced = 0;
			cr_assert_eq(r->measure(&a, r, way, &ns, err), 0,
				     "%s: %s", r->name, err);
			cr_assert(ns > 0, "%s", r->name);
			of[way] = synced;
		}
		if (strstr(r->source, "msync"))
			cr_assert(of[ADVISE_AS] &&
					  of[ADVISE_AS] < of[ADVISE_OTHER],
				  "%s: %zu, %zu", r->name, of[ADVISE_AS],
				  of[ADVISE_OTHER]);
	}
	advise_memory_close(&a);
}

/* Stores are compared where lines are written back, pages where msync is. */
Test(advise, memory_rows_fit_the_method)
{
	static const struct {
		enum rp_memory memory;
		enum rp_method method;
		bool lines, pages;
		const char *word;
	} t[] = {
		{RP_MEM_DAX_SYNC, RP_METHOD_AGENT_CLWB, true, false, "msync"},
		{RP_MEM_EMULATED, RP_METHOD_AGENT_CLWB, true, false, "msync"},
		{RP_MEM_DAX_SYNC, RP_METHOD_FENCE, true, false, "msync"},
		{RP_MEM_DAX, RP_METHOD_AGENT_CLWB_MSYNC, true, true, ""},
		{RP_MEM_FILE, RP_METHOD_AGENT_MSYNC, false, true, "line"},
		{RP_MEM_TMPFS, RP_METHOD_DELIVERY, false, false, ""},
		{RP_MEM_ANON, RP_METHOD_REFUSED, false, false, ""},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		a.facts.memory = t[i].memory;
		a.choice.method = t[i].method;
		for (const struct advise_row *r = advise_memory_rows; r->name;
		     r++) {
			const bool pages = strstr(r->source, "msync");
			char text[RP_ERR_LEN] = "";
			const bool yes = r->applies(&a, r, text);

			/* Writers need a second CPU, too. */
			cr_assert(yes == (pages ? t[i].pages : t[i].lines) ||
					  strstr(text, "one CPU"),
				  "%zu: %s: %s", i, r->name, text);
			cr_assert(yes || strstr(text, t[i].word), "%s", text);
		}
	}
	a.target = "host:pool";
	for (const struct advise_row *r = advise_memory_rows; r->name; r++) {
		char text[RP_ERR_LEN] = "";

		cr_assert(!r->applies(&a, r, text));
		cr_assert(strstr(text, "at the target"), "%s", text);
	}
}

/* Each row says what it compares and what to set, and each name is one row's.
 */
Test(advise, rows_are_whole)
{
	const struct advise_row *const lists[] = {
		advise_memory_rows, advise_machine_rows, advise_peer_rows};
	const char *names[64];
	size_t n = 0;

	for (size_t i = 0; i < 3; i++)
		for (const struct advise_row *r = lists[i]; r->name; r++) {
			cr_assert(r->source && *r->source, "%s", r->name);
			cr_assert(r->advice && *r->advice, "%s", r->name);
			cr_assert(r->set && *r->set, "%s", r->name);
			cr_assert(r->applies, "%s", r->name);
			cr_assert(!r->measure || (r->as && r->other), "%s",
				  r->name);
			for (size_t k = 0; k < n; k++)
				cr_assert_str_neq(names[k], r->name);
			names[n++] = r->name;
		}
	cr_assert(n > 10 && n < 64);
}
