// SPDX-License-Identifier: BSD-2-Clause
/*
 * 16 processes commit to one target: no record is lost, and the target's memory
 * does not grow.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault/scale.h"

#define INITIATORS 16
#define WINDOW	   16
/*
 * Limit of the growth: one allocation of buffers by ofi_rxm (see
 * FI_OFI_RXM_BUFFER_SIZE below), and some pages.
 */
#define RSS_GROWTH (2u << 20)
#define FDS	   (INITIATORS * 8 + 64)

/* A record. Each has its own offset, so all can be checked at the end. */
struct record {
	uint64_t initiator, seq;
	uint8_t bytes[40];
	uint64_t sum;
};

struct world {
	struct card card;
	struct scale_pool pool;
	unsigned long each; /* records of each initiator */
	atomic_bool ready, stop;
	atomic_ulong acked[INITIATORS];
	atomic_uint failed;
};

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static void record_make(struct record *r, uint64_t initiator, uint64_t seq)
{
	r->initiator = initiator;
	r->seq = seq;
	r->sum = 0;
	for (size_t i = 0; i < sizeof(r->bytes); i++) {
		r->bytes[i] = (uint8_t)mix(initiator << 40 ^ seq << 8 ^ i);
		r->sum = mix(r->sum + r->bytes[i]);
	}
	r->sum = mix(r->sum ^ initiator ^ seq << 20);
}

static void run_target(void *shared, unsigned int number)
{
	const struct pair_opts o = {.sleeps = true};
	struct world *w = shared;
	struct side s;

	side_open(&s, &o);
	/*
	 * Populate the pool's pages first: later only the provider and the base
	 * can make the process grow.
	 */
	MUST(madvise(w->pool.map, w->pool.len, MADV_POPULATE_WRITE) ? -errno
								    : 0);
	scale_export(&s, &w->pool, &w->card);
	atomic_store(&w->ready, true);
	scale_serve(&s, &w->stop);
}

/*
 * Post one record: if its number is odd, as a durable write; else as a write
 * and a commit. *ends: completions to wait for.
 */
static void post_records(struct side *s, struct world *w, struct record *r,
			 uint64_t at, void *context, unsigned int *ends)
{
	struct fi_rma_iov to = {
		.addr = w->card.pool_addr + at,
		.len = sizeof(*r),
		.key = w->card.pool_key,
	};
	struct iovec iov = {r, sizeof(*r)};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = context,
	};

	if (r->seq % 2) {
		POST(s, fi_writemsg(s->ep, &msg,
				    FI_COMMIT_COMPLETE | FI_COMPLETION));
		*ends = 1;
		return;
	}
	POST(s, fi_write(s->ep, r, sizeof(*r), NULL, s->peer, to.addr, to.key,
			 context));
	POST(s, commit_post(s->ep, &to, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, context));
	*ends = 2;
}

static void run_initiator(void *shared, unsigned int number)
{
	const struct pair_opts o = {.sleeps = true};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct world *w = shared;
	struct record r[WINDOW];
	unsigned int ends[WINDOW], left;
	struct side s;

	while (!atomic_load(&w->ready))
		scale_sleep_ms(10);
	side_open(&s, &o);
	side_insert(&s, &w->card);
	for (unsigned long seq = 0; seq < w->each; seq += WINDOW) {
		for (unsigned int i = left = 0; i < WINDOW; i++) {
			record_make(&r[i], number, seq + i);
			post_records(&s, w, &r[i],
				     (number * w->each + seq + i) * sizeof(*r),
				     &ends[i], &ends[i]);
			left += ends[i];
		}
		while (left--) {
			unsigned int *end;

			if (!side_wait(&s, &e, &err)) {
				printf("# initiator %u: status %d\n", number,
				       err.prov_errno);
				atomic_fetch_add(&w->failed, 1);
				continue;
			}
			end = e.op_context;
			if (end < ends || end >= ends + WINDOW || !*end) {
				printf("# initiator %u: a completion too "
				       "many\n",
				       number);
				atomic_fetch_add(&w->failed, 1);
				continue;
			}
			if (!--*end)
				atomic_fetch_add(&w->acked[number], 1);
		}
	}
	side_close(&s);
}

static unsigned long count_acked(const struct world *w)
{
	unsigned long n = 0;

	for (unsigned int i = 0; i < INITIATORS; i++)
		n += atomic_load(&w->acked[i]);
	return n;
}

/*
 * Wait for the initiators, and measure the target's memory and descriptors
 * meanwhile.
 */
static void watch_target(struct world *w, pid_t t, pid_t *initiators)
{
	unsigned long total = w->each * INITIATORS, done = 0, tenth = 0;
	size_t at_ten = 0, most = 0, now = 0;
	unsigned int fds = 0, n;
	const char *sanitizer = getenv("RP_SANITIZE");
	double start = scale_now();
	bool well = true;

	while (done < total && !atomic_load(&w->failed)) {
		scale_sleep_ms(20);
		done = count_acked(w);
		n = scale_fds(t);
		fds = n > fds ? n : fds;
		now = scale_rss(t);
		if (done * 10 / total > tenth) {
			tenth = done * 10 / total;
			printf("# %2lu %%: %zu KiB\n", tenth * 10, now >> 10);
		}
		if (done < total / 10)
			continue;
		if (!at_ten)
			at_ten = now;
		most = now > most ? now : most;
		if (scale_now() - start > 3000)
			break;
	}
	printf("# %lu commits in %.1f s; target: %zu KiB at 10 %%, %zu KiB "
	       "at "
	       "most after that, %u descriptors at most\n",
	       done, scale_now() - start, at_ten >> 10, most >> 10, fds);
	/*
	 * Kill the target before it could flush anything when it closes:
	 * acknowledged records must survive.
	 */
	scale_kill(t);
	for (unsigned int i = 0; i < INITIATORS; i++)
		well &= scale_join(initiators[i]);
	tap_ok(well && done == total && !atomic_load(&w->failed),
	       "16 initiators: %lu of %lu commits were acknowledged", done,
	       total);
	/*
	 * Check the growth only in long runs without sanitizers: a short run
	 * measures mostly connections, and sanitizers keep freed memory.
	 */
	if (total >= 50000 && !(sanitizer && *sanitizer))
		tap_ok(most - at_ten <= RSS_GROWTH,
		       "the target grew by %zu KiB after the tenth percent",
		       (most - at_ten) >> 10);
	tap_ok(fds <= FDS, "%u descriptors at the target, %u are enough", fds,
	       FDS);
}

static void check_file(const struct world *w, const char *media)
{
	unsigned long lost = 0, n = 0;
	struct record want;

	for (unsigned int i = 0; i < INITIATORS; i++) {
		/*
		 * If no commit failed, these are all records of the initiator.
		 */
		for (unsigned long seq = 0; seq < atomic_load(&w->acked[i]);
		     seq++, n++) {
			record_make(&want, i, seq);
			lost += memcmp(media + (i * w->each + seq) *
						       sizeof(want),
				       &want, sizeof(want)) != 0;
		}
	}
	tap_ok(n && !lost, "%lu acknowledged records looked at, %lu lost", n,
	       lost);
}

void scale_commits(unsigned long total, const char *file)
{
	const char *spec = getenv("RPMEM_SHADOW");
	struct world *w = scale_shared(sizeof(*w));
	pid_t t, pids[INITIATORS];
	char *media;

	/*
	 * ofi_rxm 1.17 expects 256 peers by default, and makes a ring of 10 MB.
	 * In its first pass through the ring each of 220,000 commits touches 47
	 * new bytes, which would look like a leak.
	 */
	setenv("FI_UNIVERSE_SIZE", "16", 1);
	/*
	 * ofi_rxm also allocates 1024 buffers of this size at once (by default
	 * 16 MB), and 1024 more when more messages wait, as in two of five
	 * runs.
	 */
	setenv("FI_OFI_RXM_BUFFER_SIZE", "1024", 1);
	w->each = (total / INITIATORS + WINDOW - 1) / WINDOW * WINDOW;
	w->pool.len = w->each * INITIATORS * sizeof(struct record);
	w->pool.map =
		file ? scale_map(file, w->pool.len) : scale_shared(w->pool.len);
	t = scale_fork(run_target, w, 0);
	for (unsigned int i = 0; i < INITIATORS; i++)
		pids[i] = scale_fork(run_initiator, w, i);
	watch_target(w, t, pids);
	/*
	 * With RPMEM_SHADOW compare the shadow file, to which each msync()
	 * copies (shadow.c).
	 */
	media = spec ? scale_map(strrchr(spec, ':') + 1, w->pool.len)
		     : w->pool.map;
	check_file(w, media);
}
