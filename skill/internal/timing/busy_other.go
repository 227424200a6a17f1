//go:build !linux

package timing

// readTimes returns false: there is no implementation for this system.
func readTimes() (cpuTimes, bool) { return cpuTimes{}, false }
