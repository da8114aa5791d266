/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports of fi_rpmem_crashtest, made from its result (crashtest --json). */
#ifndef RP_CRASHTEST_REPORT_H
#define RP_CRASHTEST_REPORT_H

#include <stdio.h>

#include <jansson.h>

/*
 * Write the result as one HTML file that needs no network and no script.
 * Strings of the result come from the tested program and are escaped. Returns
 * 0, -EINVAL when the result is no JSON object, or the error of out.
 */
int crash_report_html(const json_t *result, FILE *out);

/* Write the result as lines of at most 100 columns for a terminal. */
void crash_report_text(const json_t *result, FILE *out);

#endif
