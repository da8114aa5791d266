/* SPDX-License-Identifier: BSD-2-Clause */
/* The style sheet of the HTML report. */
#ifndef RP_CRASHTEST_REPORT_STYLE_H
#define RP_CRASHTEST_REPORT_STYLE_H

extern const char crash_report_style[];

#endif
