// SPDX-License-Identifier: BSD-2-Clause
/* A provider that runs programs, in a process of its own. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "functional/invisible_side.h"

#define HANG_S 900

/* The end of a program, sent before the text of its trace. */
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

static void put_text(int fd, struct inv_trace *t, char how)
{
	char *text = inv_trace_text(t);
	uint32_t len = (uint32_t)strlen(text) + 1;

	write_all(fd, &how, 1);
	write_all(fd, &len, sizeof(len));
	write_all(fd, text, len);
	free(text);
	inv_trace_clear(t);
}

static uint64_t mix_seed(uint64_t seed, uint64_t n)
{
	struct inv_rng r = {seed ^ n * 0xd1342543de82ef95ull};

	return inv_next(&r);
}

void inv_run_plan(const struct inv_programs *of, struct inv_plan *p, uint64_t i,
		  const struct inv_features *f)
{
	inv_plan_make(p, mix_seed(of->seed, i),
		      mix_seed(~of->seed, i / INV_STAGE),
		      i % INV_STAGE == INV_STAGE - 1, f);
}

static void run_all(const struct inv_programs *of, const char *prov,
		    bool layered, int in, int out)
{
	struct inv_trace *t = inv_trace_new();
	struct inv_features f;
	struct inv_plan p;
	struct inv_world w;
	uint64_t batch = UINT64_MAX;

	/* Avoid munmap(): buffers of endpoints come and go, pages need not. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	inv_offer(prov, &f, t);
	write_all(out, &f, sizeof(f));
	put_text(out, t, ENDED);
	if (!read_all(in, &f, sizeof(f)))
		_exit(0);
	for (uint64_t i = of->from; i < of->end; i++) {
		alarm(HANG_S); /* in a call that never returns */
		if (i / INV_BATCH != batch) {
			if (batch != UINT64_MAX)
				inv_world_close(&w);
			batch = i / INV_BATCH;
			memset(&w, 0, sizeof(w));
			w.f = &f;
			inv_world_open(&w, prov, layered,
				       mix_seed(of->seed, ~batch));
		}
		inv_run_plan(of, &p, i, &f);
		inv_run(&w, &p, t,
			i % INV_STAGE == INV_STAGE - 1 || i + 1 == of->end);
		put_text(out, t, w.stuck ? STUCK : ENDED);
		if (w.stuck)
			_exit(0); /* nothing of it can be closed */
		inv_plan_free(&p);
	}
	if (batch != UINT64_MAX)
		inv_world_close(&w);
	inv_trace_free(t);
}

void inv_side_start(struct inv_runner *r, const struct inv_programs *of,
		    bool layered)
{
	int down[2], up[2];
	char prov[64];

	snprintf(prov, sizeof(prov), "%s%s", of->base,
		 layered ? ";ofi_rpmem" : "");
	if (pipe(down) || pipe(up))
		INV_MUST(-errno);
	fflush(stdout);
	r->pid = fork();
	if (r->pid < 0)
		INV_MUST(-errno);
	if (!r->pid) {
		close(down[1]);
		close(up[0]);
		run_all(of, prov, layered, down[0], up[1]);
		exit(0); /* not _exit: leaks are looked for here */
	}
	close(down[0]);
	close(up[1]);
	r->in = up[0];
	r->out = down[1];
}

bool inv_side_offer(struct inv_runner *r, struct inv_features *f,
		    struct inv_result *offer)
{
	if (!read_all(r->in, f, sizeof(*f)))
		return false;
	inv_side_next(r, offer);
	return offer->text;
}

void inv_side_go(struct inv_runner *r, const struct inv_features *f)
{
	write_all(r->out, f, sizeof(*f));
}

void inv_side_next(struct inv_runner *r, struct inv_result *result)
{
	uint32_t len;
	char how;

	*result = (struct inv_result){.stuck = true};
	if (!read_all(r->in, &how, 1) || !read_all(r->in, &len, sizeof(len)))
		return;
	result->stuck = how == STUCK;
	result->text = malloc(len);
	if (!result->text)
		abort();
	if (read_all(r->in, result->text, len))
		return;
	free(result->text);
	*result = (struct inv_result){.stuck = true};
}

int inv_side_stop(struct inv_runner *r, bool now)
{
	int status;

	close(r->in);
	close(r->out);
	if (now)
		kill(r->pid, SIGKILL);
	if (waitpid(r->pid, &status, 0) != r->pid)
		INV_MUST(-errno);
	return now ? 0 : status;
}
