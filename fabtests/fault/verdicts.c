// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads verdicts.tsv. The words of the file are listed here anew, and not taken
 * from prov/.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/verdicts.h"

enum column {
	C_CELL,
	C_MEMORY,
	C_PLACEMENT,
	C_DOMAIN,
	C_FENCE,
	C_BUFFERS,
	C_OP,
	C_SHAPE,
	C_METHOD,
	C_AGAINST,
	C_VERDICT,
	C_SOURCE,
	COLUMNS
};

struct word {
	const char *word;
	int value;
};

static const struct word memories[] = {
	{"anonymous", RP_MEM_ANON},
	{"private", RP_MEM_PRIVATE},
	{"tmpfs", RP_MEM_TMPFS},
	{"file", RP_MEM_FILE},
	{"dax", RP_MEM_DAX},
	{"dax-sync", RP_MEM_DAX_SYNC},
	{"emulated", RP_MEM_EMULATED},
	{"unknown", RP_MEM_UNKNOWN},
	{NULL, 0},
};
static const struct word placements[] = {
	{"cpu-user", RP_PLACE_CPU_USER},   {"cpu-kernel", RP_PLACE_CPU_KERNEL},
	{"dma-cache", RP_PLACE_DMA_CACHE}, {"dma-memory", RP_PLACE_DMA_MEMORY},
	{"unknown", RP_PLACE_UNKNOWN},	   {NULL, 0},
};
static const struct word domains[] = {
	{"memory-controller", RP_DOMAIN_MEMCTRL},
	{"cpu-caches", RP_DOMAIN_CPUCACHE},
	{"system", RP_DOMAIN_SYSTEM},
	{"none", RP_DOMAIN_NONE},
	{"unknown", RP_DOMAIN_UNKNOWN},
	{NULL, 0},
};
static const struct word fences[] = {
	{"yes", RP_YES},
	{"no", RP_NO},
	{"unknown", RP_UNKNOWN},
	{NULL, 0},
};
static const struct word buffers[] = {
	{"dram", false},
	{"pm", true},
	{NULL, 0},
};
static const struct word ops[] = {
	{"write", VERDICT_WRITE},
	{"write-imm", VERDICT_WRITE_IMM},
	{"send", VERDICT_SEND},
	{NULL, 0},
};
static const struct word shapes[] = {
	{"single", false},
	{"compound", true},
	{NULL, 0},
};
static const struct word methods[] = {
	{"delivery", RP_METHOD_DELIVERY},
	{"fence", RP_METHOD_FENCE},
	{"native", RP_METHOD_NATIVE},
	{"agent-sfence", RP_METHOD_AGENT_SFENCE},
	{"agent-clwb", RP_METHOD_AGENT_CLWB},
	{"agent-msync", RP_METHOD_AGENT_MSYNC},
	{"agent-clwb-msync", RP_METHOD_AGENT_CLWB_MSYNC},
	{NULL, 0},
};
static const struct word sends[] = {
	{"inline-none", VERDICT_INLINE_NONE},
	{"inline-clwb", VERDICT_INLINE_CLWB},
	{"inplace-clwb", VERDICT_INPLACE_CLWB},
	{"inplace-fence", VERDICT_INPLACE_FENCE},
	{"inplace-completion", VERDICT_INPLACE_COMPLETION},
	{NULL, 0},
};
static const struct word orders[] = {
	{"wait", VERDICT_WAIT},
	{"pipelined", VERDICT_PIPELINED},
	{NULL, 0},
};
static const struct word againsts[] = {
	{"power", RP_CLASS_POWER},
	{"process", RP_CLASS_PROCESS},
	{NULL, 0},
};
static const struct word verdict_words[] = {
	{"valid", true},
	{"forbidden", false},
	{NULL, 0},
};

/* Find the value of a word; -1: unknown word. */
static int value_of(const struct word *words, const char *s, size_t len)
{
	for (; words->word; words++)
		if (strlen(words->word) == len && !strncmp(words->word, s, len))
			return words->value;
	return -1;
}

static bool parse_word(const struct word *words, const char *s, int *value)
{
	*value = value_of(words, s, strlen(s));
	return *value >= 0;
}

/* Parse all columns except the cell's name, method, verdict and source. */
static const char *parse_cell(char *const row[COLUMNS], struct verdict_cell *c)
{
	int memory, placement, domain, fence, buf, op, shape, against;

	if (!parse_word(memories, row[C_MEMORY], &memory))
		return "memory";
	if (!parse_word(placements, row[C_PLACEMENT], &placement))
		return "placement";
	if (!parse_word(domains, row[C_DOMAIN], &domain))
		return "domain";
	if (!parse_word(fences, row[C_FENCE], &fence))
		return "fence";
	if (!parse_word(buffers, row[C_BUFFERS], &buf))
		return "buffers";
	if (!parse_word(ops, row[C_OP], &op))
		return "op";
	if (!parse_word(shapes, row[C_SHAPE], &shape))
		return "shape";
	if (!parse_word(againsts, row[C_AGAINST], &against))
		return "against";
	*c = (struct verdict_cell){
		.taxonomy = strncmp(row[C_CELL], "x-", 2) != 0,
		.facts = {.memory = memory,
			  .placement = placement,
			  .domain = domain,
			  .fence = fence,
			  .native = RP_NO,
			  .fs_trusted = RP_YES,
			  .agent = true},
		.buffers_pm = buf,
		.op = op,
		.compound = shape,
		.against = against,
	};
	return NULL;
}

static bool same_cell(const struct verdict_cell *a,
		      const struct verdict_cell *b)
{
	return a->facts.memory == b->facts.memory &&
	       a->facts.placement == b->facts.placement &&
	       a->facts.domain == b->facts.domain &&
	       a->facts.fence == b->facts.fence &&
	       a->buffers_pm == b->buffers_pm && a->op == b->op &&
	       a->compound == b->compound && a->against == b->against;
}

static bool parse_method(const struct verdict_cell *c, const char *name,
			 struct verdict_method *m)
{
	size_t len = strcspn(name, "+");
	int order = VERDICT_ALONE, value;

	*m = (struct verdict_method){.order = VERDICT_THEN};
	if (c->compound && !strcmp(name, "then"))
		return true;
	if (c->compound != (name[len] == '+'))
		return false;
	if (c->compound && !parse_word(orders, name + len + 1, &order))
		return false;
	m->order = order;
	value = value_of(c->op == VERDICT_SEND ? sends : methods, name, len);
	if (value < 0)
		return false;
	if (c->op == VERDICT_SEND)
		m->send = value;
	else
		m->method = value;
	return true;
}

/*
 * Find the cell of this row: the previous row's, or a new one. NULL: *wrong
 * says what is wrong.
 */
static struct verdict_cell *
cell_of(struct verdicts *v, char *const row[COLUMNS], const char **wrong)
{
	struct verdict_cell cell, *last = v->n ? &v->cells[v->n - 1] : NULL;

	*wrong = parse_cell(row, &cell);
	if (*wrong)
		return NULL;
	if (last && !strcmp(last->name, row[C_CELL])) {
		if (same_cell(last, &cell))
			return last;
		*wrong = "cell (differs from the row above)";
		return NULL;
	}
	if (verdicts_cell(v, row[C_CELL])) {
		*wrong = "cell (its rows do not follow each other)";
		return NULL;
	}
	*wrong = "memory of this machine";
	last = realloc(v->cells, (v->n + 1) * sizeof(*v->cells));
	if (!last)
		return NULL;
	v->cells = last;
	cell.name = strdup(row[C_CELL]);
	if (!cell.name)
		return NULL;
	v->cells[v->n] = cell;
	return &v->cells[v->n++];
}

/* Add a row. Returns NULL, or the column that is wrong. */
static const char *add_row(struct verdicts *v, char *const row[COLUMNS])
{
	const char *wrong;
	struct verdict_cell *c = cell_of(v, row, &wrong);
	struct verdict_method m;
	int valid;

	if (!c)
		return wrong;
	if (!parse_method(c, row[C_METHOD], &m))
		return "method";
	if (verdict_method(c, row[C_METHOD]))
		return "method (twice)";
	if (!parse_word(verdict_words, row[C_VERDICT], &valid))
		return "verdict";
	if (c->n == VERDICT_METHODS)
		return "method (too many)";
	m.valid = valid;
	m.name = strdup(row[C_METHOD]);
	m.source = strdup(row[C_SOURCE]);
	c->methods[c->n++] = m;
	if (!m.name || !m.source)
		return "memory of this machine";
	*(valid ? &v->valid : &v->forbidden) += 1;
	return NULL;
}

static const char *add_line(struct verdicts *v, char *line)
{
	char *row[COLUMNS];
	int n = 0;

	line[strcspn(line, "\n")] = '\0';
	for (char *field; n < COLUMNS && (field = strsep(&line, "\t")); n++) {
		if (!*field)
			return "number of columns (one is empty)";
		row[n] = field;
	}
	if (n < COLUMNS || line)
		return "number of columns";
	return add_row(v, row);
}

int verdicts_read(const char *path, struct verdicts *v)
{
	struct verdicts got = {.cells = NULL};
	const char *wrong = NULL;
	char *line = NULL;
	size_t size = 0;
	unsigned int number = 0;
	int ret = 0;
	FILE *f = fopen(path, "re");

	if (!f) {
		ret = -errno;
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return ret;
	}
	while (!wrong && getline(&line, &size, f) > 0) {
		number++;
		if (*line != '#')
			wrong = add_line(&got, line);
	}
	if (!wrong && ferror(f))
		wrong = "file: it cannot be read to its end";
	free(line);
	fclose(f);
	if (wrong) {
		fprintf(stderr, "%s:%u: wrong %s\n", path, number, wrong);
		verdicts_free(&got);
		return -EINVAL;
	}
	*v = got;
	return 0;
}

void verdicts_free(struct verdicts *v)
{
	for (size_t i = 0; i < v->n; i++) {
		for (size_t k = 0; k < v->cells[i].n; k++) {
			free(v->cells[i].methods[k].name);
			free(v->cells[i].methods[k].source);
		}
		free(v->cells[i].name);
	}
	free(v->cells);
	*v = (struct verdicts){.cells = NULL};
}

const struct verdict_cell *verdicts_cell(const struct verdicts *v,
					 const char *name)
{
	for (size_t i = 0; i < v->n; i++)
		if (!strcmp(v->cells[i].name, name))
			return &v->cells[i];
	return NULL;
}

const struct verdict_method *verdict_method(const struct verdict_cell *cell,
					    const char *name)
{
	for (size_t i = 0; i < cell->n; i++)
		if (!strcmp(cell->methods[i].name, name))
			return &cell->methods[i];
	return NULL;
}
