//go:build !unix

package chat

import "time"

// cpuTime returns the CPU time of this process. ok is false if it cannot be measured.
func cpuTime() (d time.Duration, ok bool) { return 0, false }
