//go:build !unix

package chat

import "time"

// cpuTime is the CPU time of this process. ok is false where it cannot be measured.
func cpuTime() (d time.Duration, ok bool) { return 0, false }
