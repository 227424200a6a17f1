package xrt

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// object owns a handle of the shim. Calls hold a reference while they use the handle, so that a
// concurrent Close does not free it; the last call frees it.
type object struct {
	kind string // kind of object for errors, e.g. "run"
	free func(unsafe.Pointer)

	closed atomic.Bool // set once, under mu
	mu     sync.Mutex
	ptr    unsafe.Pointer
	calls  int
}

func newObject(kind string, ptr unsafe.Pointer, free func(unsafe.Pointer)) *object {
	return &object{kind: kind, ptr: ptr, free: free}
}

// acquire returns the handle for a call, which must call release afterwards.
func (o *object) acquire() (unsafe.Pointer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed.Load() {
		return nil, o.errClosed()
	}
	o.calls++
	return o.ptr, nil
}

func (o *object) release() {
	o.mu.Lock()
	o.calls--
	last := o.closed.Load() && o.calls == 0
	o.mu.Unlock()
	if last {
		o.free(o.ptr)
	}
}

// close frees the handle when no call uses it. Closing again does nothing.
func (o *object) close() {
	o.mu.Lock()
	first := !o.closed.Swap(true)
	idle := o.calls == 0
	o.mu.Unlock()
	if first && idle {
		o.free(o.ptr)
	}
}

func (o *object) errClosed() error { return fmt.Errorf("xrt: %s: %w", o.kind, ErrClosed) }

// do calls f with the handle.
func (o *object) do(f func(unsafe.Pointer) error) error {
	ptr, err := o.acquire()
	if err != nil {
		return err
	}
	defer o.release()
	return f(ptr)
}
