// SPDX-License-Identifier: BSD-2-Clause
/* Runs the programs on one provider, in a process of its own. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "functional/transparent_side.h"

#define HANG_S 900

/* How a program ended: sent before the text of its trace. */
enum {
	ENDED,
	STUCK
};

static void write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;
	ssize_t n;

	while (len) {
		n = write(fd, p, len);
		if (n <= 0)
			_exit(4);
		p += n;
		len -= (size_t)n;
	}
}

static bool read_all(int fd, void *buf, size_t len)
{
	char *p = buf;
	ssize_t n;

	while (len) {
		n = read(fd, p, len);
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static void put_text(int fd, struct tp_trace *t, char how)
{
	char *text = tp_trace_text(t);
	uint32_t len = (uint32_t)strlen(text) + 1;

	write_all(fd, &how, 1);
	write_all(fd, &len, sizeof(len));
	write_all(fd, text, len);
	free(text);
	tp_trace_clear(t);
}

static uint64_t mix_seed(uint64_t seed, uint64_t n)
{
	struct tp_rng r = {seed ^ n * 0xd1342543de82ef95ull};

	return tp_next(&r);
}

void tp_run_plan(const struct tp_programs *of, struct tp_plan *p, uint64_t i,
		 const struct tp_features *f)
{
	tp_plan_make(p, mix_seed(of->seed, i),
		     mix_seed(~of->seed, i / TP_PER_SETUP),
		     i % TP_PER_SETUP == TP_PER_SETUP - 1, f);
}

static void run_all(const struct tp_programs *of, const char *prov,
		    bool layered, int in, int out)
{
	struct tp_trace *t = tp_trace_new();
	struct tp_features f;
	struct tp_plan p;
	struct tp_world w;
	uint64_t batch = UINT64_MAX;

	/*
	 * Avoid munmap() and mmap() for the buffers of endpoints that open and
	 * close all the time.
	 */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	tp_offer(prov, &f, t);
	write_all(out, &f, sizeof(f));
	put_text(out, t, ENDED);
	if (!read_all(in, &f, sizeof(f)))
		_exit(0);
	for (uint64_t i = of->from; i < of->end; i++) {
		alarm(HANG_S); /* kills the process if a call never returns */
		if (i / TP_BATCH != batch) {
			if (batch != UINT64_MAX)
				tp_world_close(&w);
			batch = i / TP_BATCH;
			memset(&w, 0, sizeof(w));
			w.f = &f;
			tp_world_open(&w, prov, layered,
				      mix_seed(of->seed, ~batch));
		}
		tp_run_plan(of, &p, i, &f);
		tp_run(&w, &p, t,
		       i % TP_PER_SETUP == TP_PER_SETUP - 1 ||
			       i + 1 == of->end);
		put_text(out, t, w.stuck ? STUCK : ENDED);
		if (w.stuck)
			_exit(0); /* objects in use by a stuck program cannot
				   * be closed */
		tp_plan_free(&p);
	}
	if (batch != UINT64_MAX)
		tp_world_close(&w);
	tp_trace_free(t);
}

void tp_side_start(struct tp_runner *r, const struct tp_programs *of,
		   bool layered)
{
	int down[2], up[2];
	char prov[64];

	snprintf(prov, sizeof(prov), "%s%s", of->base,
		 layered ? ";ofi_rpmem" : "");
	if (pipe(down) || pipe(up))
		TP_MUST(-errno);
	fflush(stdout);
	r->pid = fork();
	if (r->pid < 0)
		TP_MUST(-errno);
	if (!r->pid) {
		close(down[1]);
		close(up[0]);
		run_all(of, prov, layered, down[0], up[1]);
		exit(0); /* not _exit(): the leak checker runs in exit() */
	}
	close(down[0]);
	close(up[1]);
	r->in = up[0];
	r->out = down[1];
}

bool tp_side_offer(struct tp_runner *r, struct tp_features *f,
		   struct tp_result *offer)
{
	if (!read_all(r->in, f, sizeof(*f)))
		return false;
	tp_side_next(r, offer);
	return offer->text;
}

void tp_side_go(struct tp_runner *r, const struct tp_features *f)
{
	write_all(r->out, f, sizeof(*f));
}

void tp_side_next(struct tp_runner *r, struct tp_result *result)
{
	uint32_t len;
	char how;

	*result = (struct tp_result){.stuck = true};
	if (!read_all(r->in, &how, 1) || !read_all(r->in, &len, sizeof(len)))
		return;
	result->stuck = how == STUCK;
	result->text = malloc(len);
	if (!result->text)
		abort();
	if (read_all(r->in, result->text, len))
		return;
	free(result->text);
	*result = (struct tp_result){.stuck = true};
}

int tp_side_stop(struct tp_runner *r, bool now)
{
	int status;

	close(r->in);
	close(r->out);
	if (now)
		kill(r->pid, SIGKILL);
	if (waitpid(r->pid, &status, 0) != r->pid)
		TP_MUST(-errno);
	return now ? 0 : status;
}
