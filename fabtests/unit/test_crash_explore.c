// SPDX-License-Identifier: BSD-2-Clause
/*
 * The steps of a run and its verdict. COMMAND and the check are functions here,
 * not programs.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "unit/crash_rig.h"
#include "util/crashtest/crashtest.h"

#define ACKS 3u

volatile sig_atomic_t crash_interrupted;

static struct crash_options o = {
	.images = 16,
	.seed = 1,
	.timeout = 60,
	.jobs = 2,
	.check = "check",
	.log = "log",
	.run = {.mode = CRASH_FILES, .folder = "files"},
};
static struct crash_test t;
static void (*command)(void);
static bool (*fails)(const struct crash_job *job);
static int command_status;
static unsigned int checks, fault_at; /* 0: at none */

/* --- what is replaced --- */

pid_t crash_trace_start(char *const argv[], char *const env[],
			const char *output)
{
	return 1;
}

int crash_trace_until(struct crash_recorder *r, pid_t pid, const char *ready)
{
	/* rig_call() is of the rig's recorder. */
	rig = *r;
	command();
	*r = rig;
	return command_status;
}

unsigned int crash_trace_kill(struct crash_recorder *r, pid_t keep)
{
	return 0;
}

int crash_mode_start(struct crash_run *run)
{
	run->recorder->log.sector = run->recorder->log.store = 512;
	run->recorder->on =
		!crash_record_start(run->recorder, run->folder, "ledger");
	return run->recorder->on ? 0 : -1;
}

void crash_mode_write_back(struct crash_run *run)
{
}

void crash_mode_stop(struct crash_run *run)
{
}

void crash_mode_repeat(const struct crash_run *run)
{
}

void crash_mode_env(const struct crash_run *run, char *env[4])
{
	env[0] = NULL;
}

void crash_mode_checker(const struct crash_run *run, struct crash_checker *c)
{
}

struct crash_job *crash_job_make(const struct crash_history *h,
				 const struct crash_image *i)
{
	const size_t size = crash_words(h) * sizeof(*i->lost);
	struct crash_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->image = *i;
	job->image.lost = malloc(size);
	if (!job->image.lost) {
		free(job);
		return NULL;
	}
	memcpy(job->image.lost, i->lost, size);
	return job;
}

void crash_job_free(struct crash_job *job)
{
	if (!job)
		return;
	free(job->image.lost);
	free(job->output);
	free(job);
}

/* The image is one that a power cut can leave. */
static void assert_legal(const struct crash_image *i)
{
	const size_t size = crash_words(&t.history) * sizeof(*i->lost);
	struct crash_image again = *i;

	if (i->cut == CRASH_NONE)
		return;
	again.lost = malloc(size);
	cr_assert(again.lost);
	memcpy(again.lost, i->lost, size);
	crash_image_settle(&t.history, &again);
	cr_assert(again.meta == i->meta && again.zeros == i->zeros);
	cr_assert(!memcmp(again.lost, i->lost, size));
	free(again.lost);
}

bool crash_check_start(struct crash_checker *c, struct crash_job *job,
		       bool only_new)
{
	if (*c->err)
		return false;
	if (++checks >= fault_at && fault_at) {
		strcpy(c->err, "no device");
		job->untested = true;
	}
	rig_allocates = true;
	assert_legal(&job->image);
	/* A check at which the tool fails ends like one that has failed. */
	job->status = fails(job) || job->untested ? 9 : 0;
	job->output = strdup("");
	rig_allocates = false;
	return true;
}

void crash_check_finish(struct crash_checker *c)
{
}

void crash_checker_free(struct crash_checker *c)
{
}

int crash_check_write(struct crash_checker *c, uint32_t cut,
		      const struct crash_tree *tree, const char *dir)
{
	return 0;
}

void crash_remove(const char *dir)
{
	cr_assert(!rmdir(dir), "%s: %m", dir);
}

/* --- programs and checks --- */

static void count(bool flush)
{
	const int fd = rig_open("files/f", O_RDWR | O_CREAT);

	for (unsigned int i = 1; i <= ACKS; i++) {
		rig_write(fd, "x");
		if (flush)
			rig_call(SYS_fsync, (uint64_t)fd, 0, 0, 0);
		rig_acknowledge("x\n");
	}
	close(fd);
}

static void append_with_flushes(void)
{
	count(true);
}

static void append_without_flushes(void)
{
	count(false);
}

/* More sectors than all images can be made of. */
static void writes_much(void)
{
	char bytes[6 * 512 + 1] = {0};
	const int fd = rig_open("files/f", O_RDWR | O_CREAT);

	memset(bytes, 'x', sizeof(bytes) - 1);
	rig_write(fd, bytes);
	rig_call(SYS_ftruncate, (uint64_t)fd, 600, 0, 0);
	rig_call(SYS_pwrite64, (uint64_t)fd, (uintptr_t)bytes, 512, 4096);
	rig_call(SYS_fdatasync, (uint64_t)fd, 0, 0, 0);
	rig_acknowledge("x\n");
	close(fd);
}

static uint32_t acknowledged_bytes(const struct crash_job *job)
{
	const uint32_t *acks = t.history.acks;

	if (job->all_acks)
		return acks[t.log.event_count - 1];
	return job->image.cut == CRASH_NONE ? 0 : acks[job->image.cut];
}

/* The size of the only file. */
static uint64_t size_of(const struct crash_image *i)
{
	struct crash_tree tree;
	uint64_t size;

	cr_assert(!crash_tree_make(&tree, &t.history, i));
	size = tree.entry_count ? tree.nodes[1].size : 0;
	crash_tree_free(&tree);
	return size;
}

static bool fail_if_acknowledged_bytes_lack(const struct crash_job *job)
{
	return size_of(&job->image) < acknowledged_bytes(job);
}

static bool fail_never(const struct crash_job *job)
{
	return false;
}

static bool fail_always(const struct crash_job *job)
{
	return true;
}

static void setup(void)
{
	rig_setup();
	setenv("TMPDIR", ".", 1);
	t = (struct crash_test){.o = &o};
	command = append_with_flushes;
	fails = fail_if_acknowledged_bytes_lack;
	command_status = 0;
	checks = fault_at = 0;
	crash_interrupted = 0;
	o.any_status = false;
	o.log = "log";
	o.image = NULL;
}

static void teardown(void)
{
	crash_test_free(&t);
	*o.run.work = 0;
	rig = (struct crash_recorder){.ledger_fd = -1};
	rig_teardown();
}

TestSuite(crash_explore, .init = setup, .fini = teardown);

static bool test(void)
{
	return !crash_test_record(&t) && !crash_test_explore(&t);
}

static void is_refused(const char *reason)
{
	cr_assert(!test());
	cr_assert(strstr(t.reason, reason), "%s", t.reason);
}

/* --- tests --- */

Test(crash_explore, a_program_that_flushes_is_acquitted)
{
	cr_assert(test(), "%s", t.reason);
	cr_assert(!t.failed && t.checked > ACKS);
	/* Beside the images, both tries of the check. */
	cr_assert_eq(t.checked + 2, checks);
}

Test(crash_explore, a_program_that_never_flushes_is_convicted)
{
	command = append_without_flushes;
	cr_assert(test(), "%s", t.reason);
	cr_assert(t.failed && t.failed < t.checked && t.shrunk.job->status);
	cr_assert(t.shrunk.stable && strstr(t.repeat, " --image "));
	cr_assert(!access("log", R_OK));
}

Test(crash_explore, a_conviction_leaves_the_record)
{
	command = append_without_flushes;
	o.log = NULL;
	cr_assert(test(), "%s", t.reason);
	cr_assert(t.failed && !access("crashtest.log", R_OK));
	cr_assert(strstr(t.repeat, "--log 'crashtest.log'"));
}

Test(crash_explore, a_check_that_sees_no_loss_is_refused)
{
	fails = fail_never;
	is_refused("--check passes on the state before COMMAND");
	cr_assert_eq(checks, 2);
}

Test(crash_explore, a_check_that_fails_without_loss_is_refused)
{
	fails = fail_always;
	is_refused("where nothing is lost");
	cr_assert_eq(checks, 1);
}

Test(crash_explore, a_program_that_fails_needs_any_status)
{
	command_status = 7 << 8;
	is_refused("COMMAND ended with status 7; give --any-status");
}

Test(crash_explore, any_status_is_tested)
{
	o.any_status = true;
	command_status = SIGABRT;
	cr_assert(test(), "%s", t.reason);
}

Test(crash_explore, an_interrupted_run_is_refused)
{
	crash_interrupted = 1;
	cr_assert(crash_test_record(&t));
	cr_assert_str_eq(t.reason, "interrupted by a signal");
}

static void unseen(void)
{
	const int fd = open("files/unseen", O_WRONLY | O_CREAT, 0600);

	append_with_flushes();
	cr_assert(fd >= 0 && write(fd, "x", 1) == 1 && !close(fd));
}

Test(crash_explore, a_change_that_is_not_recorded_is_refused)
{
	command = unseen;
	is_refused("unseen was changed in a way that is not recorded");
}

static void idle(void)
{
}

Test(crash_explore, a_program_that_changes_nothing_is_refused)
{
	command = idle;
	is_refused("COMMAND has changed nothing");
}

static void out_of_folder(void)
{
	append_with_flushes();
	rig_call(SYS_symlink, (uintptr_t) "d/../../x", (uintptr_t) "files/s", 0,
		 0);
}

Test(crash_explore, a_link_out_of_the_folder_is_refused)
{
	command = out_of_folder;
	is_refused("the symbolic link s leads out of the folder");
}

static void inside_folder(void)
{
	append_with_flushes();
	rig_call(SYS_symlink, (uintptr_t) "d/../x", (uintptr_t) "files/s", 0,
		 0);
}

Test(crash_explore, a_link_in_the_folder_is_tested)
{
	command = inside_folder;
	cr_assert(test(), "%s", t.reason);
}

/*
 * At the try of the check, its blind try, an image, or a check of shrinking: it
 * is no verdict, and takes back no failure of an image before.
 */
Test(crash_explore, a_failure_of_the_tool_is_no_verdict)
{
	unsigned int n = 0, late = 0, stable = 0;

	command = append_without_flushes;
	do {
		crash_test_free(&t);
		*o.run.work = 0;
		t = (struct crash_test){.o = &o};
		checks = 0;
		fault_at = ++n;
		cr_assert(system("rm -rf files ledger && mkdir files && "
				 ": >ledger") == 0);
		if (!test()) {
			cr_assert_str_eq(t.reason, "no device");
			cr_assert(!t.failed && !late);
		} else if (checks == fault_at) {
			cr_assert(strstr(t.reason, "no device; no image"));
			/* Both tries and the void check are no images. */
			cr_assert(t.failed && t.checked <= checks - 3);
			cr_assert(fails(t.shrunk.job));
			late++;
			stable += t.shrunk.stable;
		}
		/* No image follows the one at which a check is refused. */
		if (checks == fault_at)
			cr_assert_lt(t.sample.made, n);
		if (n == 3)
			cr_assert(!t.sample.exhaustive_cuts);
	} while (checks == fault_at);
	cr_assert(t.failed && n > 5 && late, "%u, %u", n, late);
	/* One of two repeats has failed before the tool itself fails. */
	cr_assert(t.shrunk.stable && stable == 1, "%u", stable);
	cr_assert_str_eq(t.reason, "");
}

/* Check an image of the former run's record. */
static bool repeat(const char *image)
{
	crash_test_free(&t);
	*o.run.work = 0;
	t = (struct crash_test){.o = &o};
	o.image = image;
	return !crash_test_repeat(&t);
}

Test(crash_explore, an_image_is_repeated_if_it_is_legal)
{
	char image[64];

	command = append_without_flushes;
	cr_assert(test(), "%s", t.reason);
	cr_assert_eq(sscanf(strstr(t.repeat, "--image"), "--image %63s", image),
		     1);
	cr_assert(repeat(image), "%s", t.reason);
	cr_assert(t.checked == 1 && t.failed == 1);
	cr_assert(repeat("3:1:-"), "%s", t.reason);
	cr_assert(t.checked == 1 && !t.failed);
	fault_at = 1;
	cr_assert(!repeat(image) && !t.checked);
	cr_assert_str_eq(t.reason, "no device");
	fault_at = 0;
	cr_assert(!repeat("3:9:-"));
	cr_assert(strstr(t.reason, "--image 3:9:-"), "%s", t.reason);
}

/*
 * Each allocation fails once, in a run that is acquitted without that and in
 * one that is convicted: the verdict is that one, of as many images, or none,
 * with the reason.
 */
static void without_memory(void (*program)(void))
{
	uint64_t checked = 0, failed = 0;
	unsigned int n;

	for (n = UINT_MAX;; n++) {
		bool without, tested;

		setup();
		command = program;
		rig_fail_at(n);
		tested = test();
		without = rig_has_failed();
		if (!tested)
			cr_assert(without && strstr(t.reason, "memory"),
				  "allocation %u: '%s'", n, t.reason);
		else if (n == UINT_MAX)
			checked = t.checked, failed = t.failed;
		else if (strstr(t.reason, "memory"))
			cr_assert(t.failed, "allocation %u", n);
		else
			cr_assert(t.checked == checked && t.failed == failed,
				  "allocation %u", n);
		if (n != UINT_MAX && !without)
			break;
		teardown();
	}
	cr_assert_gt(n, 50);
}

Test(crash_explore, without_memory_nothing_is_acquitted)
{
	teardown();
	without_memory(append_with_flushes);
}

Test(crash_explore, without_memory_no_random_image_is_left_out)
{
	teardown();
	without_memory(writes_much);
}

Test(crash_explore, without_memory_a_blind_check_is_not_trusted)
{
	unsigned int n = 0;
	bool without;

	do {
		teardown();
		setup();
		fails = fail_never;
		rig_fail_at(n++);
		cr_assert(!test());
		without = rig_has_failed();
		cr_assert(strstr(t.reason, "memory") ||
				  strstr(t.reason, "so it sees no loss"),
			  "allocation %u: '%s'", n, t.reason);
	} while (without);
}

Test(crash_explore, without_memory_no_failure_is_passed_over)
{
	teardown();
	without_memory(append_without_flushes);
}
