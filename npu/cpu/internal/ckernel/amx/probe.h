// Tests of instructions in a child process: see probe.c.

#ifndef NPK_PROBE_H
#define NPK_PROBE_H

// npk_survives runs body in a child process. It returns 1 if body returned non-zero within the
// given number of seconds, 0 if it did not, and -1 if the system cannot create a child now. body
// may call only async-signal-safe functions.
int npk_survives(int (*body)(void), unsigned seconds);

#endif
