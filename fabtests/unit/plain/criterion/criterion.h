/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of Criterion that these tests use, for builds without it. */
#ifndef RP_PLAIN_CRITERION_H
#define RP_PLAIN_CRITERION_H

/*
 * Criterion maps its state at an address that the thread sanitizer occupies.
 * With that sanitizer configure replaces Criterion by this header: the same
 * tests run one after the other, each in a child process.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLAIN_SKIPPED 77

struct plain_test {
	const char *suite, *name;
	void (*run)(void);
	void (*init)(void);
	void (*fini)(void);
	double timeout;
	struct plain_test *next;
};

/* Weak symbols: all files that include this header share one list. */
__attribute__((weak)) struct plain_test *plain_tests, *plain_suites;

static inline void plain_add(struct plain_test **list, struct plain_test *t)
{
	t->next = *list;
	*list = t;
}

static inline void plain_report(const char *file, int line, const char *what,
				const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: %s ", file, line, what);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

#define Test(s, n, ...)                                                        \
	static void plain_##s##_##n(void);                                     \
	__attribute__((constructor)) static void plain_add_##s##_##n(void)     \
	{                                                                      \
		static struct plain_test t = {.suite = #s,                     \
					      .name = #n,                      \
					      .run = plain_##s##_##n,          \
					      ##__VA_ARGS__};                  \
		plain_add(&plain_tests, &t);                                   \
	}                                                                      \
	static void plain_##s##_##n(void)

#define TestSuite(s, ...)                                                      \
	__attribute__((constructor)) static void plain_add_suite_##s(void)     \
	{                                                                      \
		static struct plain_test t = {.suite = #s, ##__VA_ARGS__};     \
		plain_add(&plain_suites, &t);                                  \
	}                                                                      \
	struct plain_test

#define cr_assert(cond, ...)                                                   \
	do {                                                                   \
		if (!(cond)) {                                                 \
			plain_report(__FILE__, __LINE__, #cond,                \
				     "" __VA_ARGS__);                          \
			_exit(1);                                              \
		}                                                              \
	} while (0)
#define cr_assert_fail(...)	 cr_assert(false, ##__VA_ARGS__)
#define cr_assert_not(c, ...)	 cr_assert(!(c), ##__VA_ARGS__)
#define cr_assert_eq(a, b, ...)	 cr_assert((a) == (b), ##__VA_ARGS__)
#define cr_assert_neq(a, b, ...) cr_assert((a) != (b), ##__VA_ARGS__)
#define cr_assert_lt(a, b, ...)	 cr_assert((a) < (b), ##__VA_ARGS__)
#define cr_assert_leq(a, b, ...) cr_assert((a) <= (b), ##__VA_ARGS__)
#define cr_assert_gt(a, b, ...)	 cr_assert((a) > (b), ##__VA_ARGS__)
#define cr_assert_geq(a, b, ...) cr_assert((a) >= (b), ##__VA_ARGS__)
#define cr_assert_float_eq(a, b, tolerance, ...)                               \
	cr_assert(__builtin_fabs((a) - (b)) <= (tolerance), ##__VA_ARGS__)
#define cr_assert_null(p, ...)	     cr_assert(!(p), ##__VA_ARGS__)
#define cr_assert_not_null(p, ...)   cr_assert(p, ##__VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)  cr_assert(!strcmp(a, b), ##__VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) cr_assert(strcmp(a, b), ##__VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...)                                         \
	cr_assert(!memcmp(a, b, n), ##__VA_ARGS__)
#define cr_expect_eq(a, b, ...) cr_assert_eq(a, b, ##__VA_ARGS__)
#define cr_skip(...)                                                           \
	do {                                                                   \
		plain_report(__FILE__, __LINE__, "skipped:", "" __VA_ARGS__);  \
		_exit(PLAIN_SKIPPED);                                          \
	} while (0)
#define cr_skip_test(...) cr_skip(__VA_ARGS__)
/* Criterion shows these messages only with --verbose. */
#define cr_log_info(fmt, ...)                                                  \
	((void)(getenv("RP_VERBOSE") && printf(fmt "\n", ##__VA_ARGS__)))

/*
 * A test under the thread sanitizer, on a busy machine, takes many times as
 * long; fabtests/bounded.sh ends a suite that hangs.
 */
static inline unsigned int plain_slowness(void)
{
	const char *sanitizer = getenv("RP_SANITIZE");

	return sanitizer && *sanitizer ? 10 : 1;
}

static inline void plain_run(const struct plain_test *t)
{
	const struct plain_test *s = plain_suites;

	while (s && strcmp(s->suite, t->suite))
		s = s->next;
	alarm((t->timeout > 0 ? (unsigned int)t->timeout : 120) *
	      plain_slowness());
	if (s && s->init)
		s->init();
	if (t->init)
		t->init();
	t->run();
	if (t->fini)
		t->fini();
	if (s && s->fini)
		s->fini();
	/* exit(), not _exit(): sanitizers set the exit status. */
	exit(0);
}

__attribute__((weak)) int main(int argc, char **argv)
{
	bool fail_fast = argc > 1 && !strcmp(argv[1], "--fail-fast");
	int run = 0, failed = 0, crashed = 0, skipped = 0, st;

	for (struct plain_test *t = plain_tests; t; t = t->next) {
		pid_t child;

		fflush(NULL);
		child = fork();
		if (!child)
			plain_run(t);
		if (child < 0 || waitpid(child, &st, 0) != child)
			return 1;
		run++;
		if (WIFEXITED(st) && WEXITSTATUS(st) == PLAIN_SKIPPED)
			skipped++;
		else if (WIFSIGNALED(st))
			crashed++;
		else if (st)
			failed++;
		else
			continue;
		printf("[%s] %s::%s\n",
		       WIFEXITED(st) && WEXITSTATUS(st) == PLAIN_SKIPPED
			       ? "SKIP"
			       : "FAIL",
		       t->suite, t->name);
		if (fail_fast && failed + crashed)
			break;
	}
	printf("[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | "
	       "Crashing: %d\n",
	       run - skipped, run - skipped - failed - crashed,
	       failed + crashed, crashed);
	return failed + crashed ? 1 : 0;
}

#endif
