// SPDX-License-Identifier: BSD-2-Clause
/* Prints the method table, from the code that implements it. */
#include <stdio.h>

#include "util/info.h"
#include "util/method_rows.h"

json_t *info_table(void)
{
	json_t *rows = json_array();
	struct rp_method_words w;

	for (size_t i = 0; rp_method_row(i, &w); i++)
		json_array_append_new(
			rows,
			json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "memory",
				  w.memory, "placement", w.placement, "domain",
				  w.domain, "needs", w.needs, "method",
				  w.method, "class", w.class));
	return rows;
}

static const char *cell_text(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

/* Print the table as docs/guarantees.md has it; a test compares them. */
void info_table_print(const json_t *table)
{
	const json_t *r;
	size_t i;

	puts("| memory | placement | domain | needs | method | class |");
	puts("|---|---|---|---|---|---|");
	json_array_foreach(table, i, r)
	{
		const char *needs = cell_text(r, "needs"),
			   *class = cell_text(r, "class");

		printf("| %s | %s | %s |%s%s | %s |%s%s |\n",
		       cell_text(r, "memory"), cell_text(r, "placement"),
		       cell_text(r, "domain"), *needs ? " " : "", needs,
		       cell_text(r, "method"), *class ? " " : "", class);
	}
}
