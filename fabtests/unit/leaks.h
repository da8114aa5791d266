/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks for leaks inside a test, because Criterion does not report leaks found
 * at exit.
 */
#ifndef RP_TEST_LEAKS_H
#define RP_TEST_LEAKS_H

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define RP_TEST_LSAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define RP_TEST_LSAN 1
#endif

#ifdef RP_TEST_LSAN
int __lsan_do_recoverable_leak_check(void);
#define rp_test_leaked() __lsan_do_recoverable_leak_check()
#else
#define rp_test_leaked() 0
#endif

#endif
