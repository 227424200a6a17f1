// Tests of instructions in a child process: see probe.c.

#ifndef NPK_PROBE_H
#define NPK_PROBE_H

// npk_survives runs body in a child process. It returns 1 if body returned non-zero within so many
// seconds, 0 if it did not, and -1 if the system cannot create a child now. Body may call only what
// is safe in a signal handler.
int npk_survives(int (*body)(void), unsigned seconds);

#endif
