//go:build !linux

package cpu

// adviseHuge does nothing: the system decides.
func adviseHuge([]byte) {}

// discard does nothing: memory is returned with its mapping.
func discard([]byte) {}
