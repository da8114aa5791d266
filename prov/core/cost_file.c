// SPDX-License-Identifier: BSD-2-Clause
/* Figures of the cost model by name, and the file of measured ones. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cost.h"

#define LINE(name, member)                                                     \
	{                                                                      \
		name, offsetof(struct rp_cost, member), false                  \
	}
#define NS(name, member)                                                       \
	{                                                                      \
		name, offsetof(struct rp_cost, member), true                   \
	}

const struct rp_cost_figure rp_cost_figures[RP_COST_FIGURES] = {
	LINE("cpu write", path[RP_PATH_CPU].write),
	NS("cpu ask", path[RP_PATH_CPU].ask_ns),
	NS("cpu fence", path[RP_PATH_CPU].fence_ns),
	NS("cpu fences", path[RP_PATH_CPU].fences_ns),
	LINE("cpu store", path[RP_PATH_CPU].store),
	LINE("dma write", path[RP_PATH_DMA].write),
	NS("dma ask", path[RP_PATH_DMA].ask_ns),
	NS("dma fence", path[RP_PATH_DMA].fence_ns),
	NS("dma fences", path[RP_PATH_DMA].fences_ns),
	LINE("dma store", path[RP_PATH_DMA].store),
	LINE("agent-sfence", flush[RP_METHOD_AGENT_SFENCE]),
	LINE("agent-clwb", flush[RP_METHOD_AGENT_CLWB]),
	LINE("agent-msync", flush[RP_METHOD_AGENT_MSYNC]),
	LINE("agent-clwb-msync", flush[RP_METHOD_AGENT_CLWB_MSYNC]),
	LINE("stream", stream),
};

bool rp_cost_figure_of(const struct rp_cost_figure *f, enum rp_path path)
{
	static const char *const names[RP_PATHS] = {"unknown ", "cpu ", "dma "};

	return !strncmp(f->name, names[path], strlen(names[path]));
}

/* State of reading one file. */
struct reader {
	const char *file;
	unsigned int line;
	struct rp_cost cost;
	unsigned int seen; /* a bit per figure */
	bool begun, ended;
	char *why;
};

__attribute__((format(printf, 3, 4))) static int
complain(struct reader *r, int err, const char *fmt, ...)
{
	char text[RP_WHY_LEN];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(r->why, RP_WHY_LEN, "%.100s:%u: %.140s", r->file, r->line,
		 text);
	return err;
}

/* Digits only: no sign, no leading blank. */
static int read_number(const char *text, uint32_t *value)
{
	unsigned long long v;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || v > UINT32_MAX)
		return -EINVAL;
	*value = (uint32_t)v;
	return 0;
}

static int read_figure(struct reader *r, char *s)
{
	char *ns_text, *ps_text, *save, *eq = strstr(s, " = ");
	struct rp_cost_line v;
	size_t i;

	if (!eq)
		return complain(r, -EINVAL, "a figure is: NAME = NS PS");
	*eq = '\0';
	for (i = 0; i < RP_COST_FIGURES; i++)
		if (!strcmp(rp_cost_figures[i].name, s))
			break;
	if (i == RP_COST_FIGURES)
		return complain(r, -EINVAL, "there is no figure '%s'", s);
	if (r->seen & 1u << i)
		return complain(r, -EINVAL, "'%s' was given before", s);
	ns_text = strtok_r(eq + 3, " ", &save);
	ps_text = strtok_r(NULL, " ", &save);
	if (!ns_text || !ps_text || strtok_r(NULL, " ", &save) ||
	    read_number(ns_text, &v.ns) || read_number(ps_text, &v.ps))
		return complain(r, -EINVAL,
				"'%s' wants two whole numbers below 2^32: ns, "
				"and ps for each byte",
				s);
	if (rp_cost_figures[i].alone && v.ps)
		return complain(r, -EINVAL,
				"bytes do not count for '%s': its second "
				"number is 0",
				s);
	r->seen |= 1u << i;
	memcpy((char *)&r->cost + rp_cost_figures[i].at, &v,
	       rp_cost_figures[i].alone ? sizeof(v.ns) : sizeof(v));
	return 0;
}

static int read_line(struct reader *r, char *s)
{
	if (r->ended)
		return complain(r, -EINVAL, "something behind '%s'",
				RP_COST_END);
	if (!r->begun) {
		r->begun = !strcmp(s, RP_COST_HEAD);
		return r->begun ? 0
				: complain(r, -EINVAL,
					   "the first line is not '%s'",
					   RP_COST_HEAD);
	}
	if (!*s || *s == '#')
		return 0;
	if (strcmp(s, RP_COST_END))
		return read_figure(r, s);
	r->ended = true;
	return 0;
}

static int read_file(struct reader *r, FILE *f)
{
	char text[256];
	struct stat st;
	int ret = 0;
	size_t n;

	if (fstat(fileno(f), &st))
		return complain(r, -errno, "%s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return complain(r, -EINVAL, "is not a regular file");
	while (!ret && fgets(text, sizeof(text), f)) {
		n = strlen(text);
		r->line++;
		/* A truncated line could be read as another figure. */
		if (!n || text[n - 1] != '\n')
			return complain(r, -EINVAL,
					"the line does not end, or is no text");
		text[n - 1] = '\0';
		ret = read_line(r, text);
	}
	if (!ret && ferror(f))
		ret = complain(r, -EIO, "cannot be read");
	if (!ret && !r->ended)
		ret = complain(r, -EINVAL, "the last line, '%s', is missing",
			       RP_COST_END);
	return ret;
}

int rp_cost_read(const char *path, struct rp_cost *c, char *why)
{
	struct reader r = {.file = path, .cost = *c, .why = why};
	/* O_NONBLOCK: do not wait for the writer of a FIFO. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), ret;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (!f) {
		ret = complain(&r, -errno, "%s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return ret;
	}
	ret = read_file(&r, f);
	fclose(f);
	if (!ret)
		*c = r.cost;
	return ret;
}
