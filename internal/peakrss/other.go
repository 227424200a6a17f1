//go:build !unix

package peakrss

// Bytes returns 0: this system does not report it.
func Bytes() int64 { return 0 }
