package xrt

// For the tests of what happens to a buffer that the collector took.

// ObjectOf is what Close closes.
func ObjectOf(b *Buffer) any { return b.object }

// CloseObject closes it.
func CloseObject(o any) { o.(*object).close() }
