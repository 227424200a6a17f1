package xrt

// For tests of garbage-collected buffers.

// ObjectOf returns the object that Close closes.
func ObjectOf(b *Buffer) any { return b.object }

// CloseObject closes an object.
func CloseObject(o any) { o.(*object).close() }

// AddressOf returns the address of a buffer on the device.
func AddressOf(b *Buffer) uint64 { return b.address }

// InfoOf returns the binary's description of a kernel.
func InfoOf(k *Kernel) KernelInfo { return k.info }

// IsXclbin reports whether a kernel is of an xclbin, which describes its arguments.
func IsXclbin(k *Kernel) bool { return len(k.info.args) > 0 }

// LenOf returns the number of runs in a list.
func LenOf(l *Runlist) int {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	return len(l.core.runs)
}
