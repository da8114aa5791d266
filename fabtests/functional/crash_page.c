// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes the HTML and text reports of a result file of fi_rpmem_crashtest.
 * usage: crash_page RESULT HTML TEXT
 */
#include "config.h"

#include <string.h>

#include "util/crashtest/report.h"

int main(int argc, char **argv)
{
	json_error_t error;
	json_t *result;
	FILE *html, *text;
	int ret;

	if (argc != 4)
		return 2;
	result = json_load_file(argv[1], JSON_ALLOW_NUL, &error);
	html = fopen(argv[2], "w");
	text = fopen(argv[3], "w");
	if (!result || !html || !text) {
		fprintf(stderr, "%s: %s\n", argv[1], error.text);
		return 2;
	}
	ret = crash_report_html(result, html);
	crash_report_text(result, text);
	if (fclose(html) || fclose(text))
		ret = -1;
	json_decref(result);
	if (ret)
		fprintf(stderr, "no report: %s\n", strerror(-ret));
	return ret ? 1 : 0;
}
