// A minimal test framework: CHECK counts failures, and main returns whether there were any.
#pragma once
#include <stdio.h>

static int failures;
#define CHECK(cond)                                                                    \
	do {                                                                           \
		if (!(cond)) {                                                         \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
			failures++;                                                    \
		}                                                                      \
	} while (0)
