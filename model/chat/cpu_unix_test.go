//go:build unix

package chat

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time of this process. ok is false if it cannot be measured.
func cpuTime() (d time.Duration, ok bool) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}
