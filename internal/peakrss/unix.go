//go:build unix

// Package peakrss reports the largest resident memory of the process.
package peakrss

import (
	"runtime"
	"syscall"
)

// Bytes returns the largest resident set that the process has had, in bytes, or 0 if it is unknown.
func Bytes() int64 {
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
