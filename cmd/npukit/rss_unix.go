//go:build unix

package main

import (
	"runtime"
	"syscall"
)

// peakRSS is the most memory that the process has had resident, in bytes.
func peakRSS() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	most := int64(u.Maxrss)
	if runtime.GOOS != "darwin" && runtime.GOOS != "ios" {
		most *= 1024 // only Apple's systems count bytes
	}
	return most
}
