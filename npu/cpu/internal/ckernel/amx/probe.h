// See probe.c.

#ifndef NPK_PROBE_H
#define NPK_PROBE_H

// npk_survives runs body in a child process, and says whether it came back within so many seconds and gave non-zero; -1 when the system has no child for it now.
// A body that faults or hangs costs the child alone. It may call only what is safe in a signal handler.
int npk_survives(int (*body)(void), unsigned seconds);

#endif
