/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that the linker needs and that a test must not call. */
#ifndef RP_TEST_NEVER_CALLED_H
#define RP_TEST_NEVER_CALLED_H

#include <stdio.h>
#include <stdlib.h>

/* Define a function that names itself and ends the test. */
#define NEVER_CALLED(declaration)                                              \
	declaration                                                            \
	{                                                                      \
		fprintf(stderr, "%s() must not be called\n", __func__);        \
		abort();                                                       \
	}

#endif
