// SPDX-License-Identifier: BSD-2-Clause
/* Progress bar of a copy, in one line of a terminal. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/progress_bar.h"
#include "util/text.h"

#define DRAW_MS 200

void progress_begin(struct progress *p, const char *verb, uint64_t total,
		    bool quiet)
{
	p->on = !quiet && total && isatty(STDERR_FILENO);
	p->verb = verb;
	p->total = total;
	p->began = rp_now_ms();
	p->drawn = 0;
}

static int terminal_columns(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 20)
		return 80;
	return w.ws_col;
}

/* Draw "copying  45% [#####.....] 512 MiB  1.2 GiB/s  eta 0:12". */
static void draw_bar(const struct progress *p, uint64_t done, uint64_t ms)
{
	char size[RP_SIZE_LEN], rate[RP_SIZE_LEN], tail[96], eta[32] = "";
	uint64_t speed = ms ? done * 1000 / ms : 0;
	int bar, full;

	if (speed && done < p->total) {
		uint64_t s = (p->total - done) / speed;

		snprintf(eta, sizeof(eta), "  eta %" PRIu64 ":%02" PRIu64,
			 s / 60, s % 60);
	}
	snprintf(tail, sizeof(tail), "%s  %s/s%s", rp_size_format(done, size),
		 rp_size_format(speed, rate), eta);
	bar = terminal_columns() - (int)strlen(p->verb) - (int)strlen(tail) -
	      10;
	bar = bar < 0 ? 0 : bar > 40 ? 40 : bar;
	full = (int)((double)done / (double)p->total * bar);
	fprintf(stderr, "\r%s %3d%% [", p->verb,
		(int)((double)done / (double)p->total * 100));
	for (int i = 0; i < bar; i++)
		fputc(i < full ? '#' : '.', stderr);
	fprintf(stderr, "] %s\033[K", tail);
	fflush(stderr);
}

void progress_at(struct progress *p, uint64_t done)
{
	uint64_t now;

	if (!p->on)
		return;
	now = rp_now_ms();
	if (p->drawn && now - p->drawn < DRAW_MS)
		return;
	p->drawn = now;
	draw_bar(p, done, now - p->began);
}

void progress_end(struct progress *p)
{
	if (p->on && p->drawn)
		fputs("\r\033[K", stderr);
	p->on = false;
}
