// The smallest of test frames: CHECK counts what is not so, and main returns whether anything was counted.
#pragma once
#include <stdio.h>

static int failures;
#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			failures++;                                                    \
		}                                                                      \
	} while (0)
