//go:build cgo && !windows && amd64

package amx

// #include "probe.h"
// static int good(void) { return 1; }
// static int wrong(void) { return 0; }
// static int faults(void) { __builtin_trap(); }
// static int reads(void) { int *volatile nothing = 0; return *nothing; }
// static int hangs(void) { for (volatile int on = 1; on;) {} return 1; }
// static int body(int i) {
//     int (*const list[])(void) = {good, wrong, faults, reads, hangs};
//     return npk_survives(list[i], 1);
// }
import "C"

// The ways in which a body can end, for a test: tests cannot use cgo themselves.
const (
	probeGood = iota
	probeWrong
	probeFaults
	probeReads
	probeHangs
)

// survives tries one of them.
func survives(way int) bool { return C.body(C.int(way)) > 0 }
