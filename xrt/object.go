package xrt

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// object owns one handle of the shim. Calls hold it while they are inside the shim, so that Close from another goroutine never frees what
// a call uses: the last call out frees it.
type object struct {
	what string // "run", for errors
	free func(unsafe.Pointer)

	closed atomic.Bool // set once, under mu
	mu     sync.Mutex
	ptr    unsafe.Pointer
	calls  int
}

func newObject(what string, ptr unsafe.Pointer, free func(unsafe.Pointer)) *object {
	return &object{what: what, ptr: ptr, free: free}
}

// enter gives the handle to a call, which must leave afterwards.
func (o *object) enter() (unsafe.Pointer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed.Load() {
		return nil, o.errClosed()
	}
	o.calls++
	return o.ptr, nil
}

func (o *object) leave() {
	o.mu.Lock()
	o.calls--
	last := o.closed.Load() && o.calls == 0
	o.mu.Unlock()
	if last {
		o.free(o.ptr)
	}
}

// close frees the handle now, or when the last call leaves. Only the first close does anything.
func (o *object) close() {
	o.mu.Lock()
	first := !o.closed.Swap(true)
	idle := o.calls == 0
	o.mu.Unlock()
	if first && idle {
		o.free(o.ptr)
	}
}

func (o *object) errClosed() error { return fmt.Errorf("xrt: %s: %w", o.what, ErrClosed) }

// do calls f with the handle.
func (o *object) do(f func(unsafe.Pointer) error) error {
	ptr, err := o.enter()
	if err != nil {
		return err
	}
	defer o.leave()
	return f(ptr)
}
