package xrt

// For tests of garbage-collected buffers.

// ObjectOf returns the object that Close closes.
func ObjectOf(b *Buffer) any { return b.object }

// CloseObject closes an object.
func CloseObject(o any) { o.(*object).close() }
