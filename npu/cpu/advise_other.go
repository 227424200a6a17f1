//go:build !linux

package cpu

// adviseHuge does nothing: the system decides.
func adviseHuge([]byte) {}

// discard does nothing: memory is given back with its mapping.
func discard([]byte) {}
