//go:build !linux

package cpu

// adviseHuge does nothing: the system decides.
func adviseHuge([]byte) {}
