package xdna

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// shared is a weight in one layout, which all Const buffers of the same tensors share. It is written and synced once.
type shared struct {
	key   string
	users int // guarded by Device.mu

	once  sync.Once
	array object
	typ   dtype.Type
	size  int
	free  func() error // gives the memory back
	err   error
}

// weight is a Const buffer.
type weight struct {
	d *Device
	s *shared

	mu     sync.Mutex
	closed bool
}

// Const makes a buffer with a weight, in BF16 or, for indices, I32: the array reads nothing else, and other types are rounded to nearest
// even. A weight is laid out, written to the device and synced once for all buffers that ask for the same layout of the same tensors; the
// same means tensors at the same addresses, so that their memory must outlive every buffer made of it.
func (d *Device) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	typ, _, err := src.Stat()
	if err != nil {
		return nil, err
	}
	if typ != dtype.BF16 && typ != dtype.I32 {
		src.Layout = npu.Layout{Op: "bf16", Args: []npu.Layout{src.Layout}}
	}
	key, err := src.Key()
	if err != nil {
		return nil, err
	}
	s := d.share(key)
	s.once.Do(func() { s.err = d.materialize(s, src) })
	if s.err != nil {
		return nil, errors.Join(fmt.Errorf("npu/xdna: weight %s: %w", src.Layout, s.err), d.unshare(s))
	}
	return &weight{d: d, s: s}, nil
}

// share is the weight of a key, made or not, with one use more.
func (d *Device) share(key string) *shared {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.weights[key]
	if s == nil {
		s = &shared{key: key}
		d.weights[key] = s
	}
	s.users++
	return s
}

// unshare gives up one use of a weight; the last frees its memory. A failure is forgotten at once, so that it can be tried again.
func (d *Device) unshare(s *shared) error {
	d.mu.Lock()
	s.users--
	if (s.users == 0 || s.err != nil) && d.weights[s.key] == s {
		delete(d.weights, s.key)
	}
	last := s.users == 0 && s.free != nil
	d.mu.Unlock()
	if !last {
		return nil
	}
	return s.free()
}

// materialize brings a weight to the device.
func (d *Device) materialize(s *shared, src npu.Source) error {
	typ, shape, err := src.Stat()
	if err != nil {
		return err
	}
	n := typ.Bytes(1)
	for _, dim := range shape {
		if dim < 1 || dim > maxBytes/n {
			return fmt.Errorf("%s %v is more than a descriptor of the array reaches", typ, shape)
		}
		n *= dim
	}
	m, free, err := d.place(n)
	if err != nil {
		return failure(err)
	}
	if err = src.Materialize(m.bytes()[:n]); err == nil {
		err = failure(m.sync(npu.ToDevice, 0, n))
	}
	if err != nil {
		return errors.Join(err, free())
	}
	s.array, s.typ, s.size, s.free = d.object(m), typ, n, free
	return nil
}

func (w *weight) Len() int { return w.s.size }

// Bytes is the weight in its layout. It must not be changed.
func (w *weight) Bytes() []byte { return w.s.array.bytes()[:w.s.size] }

// Sync moves nothing: a weight was synced when it was made.
func (w *weight) Sync(dir npu.Direction, offset, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return checkSync(w.closed, dir, offset, n, w.s.size)
}

// Close waits for a running Submit.
func (w *weight) Close() error {
	w.d.turn <- struct{}{}
	defer w.d.leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.d.lastUser(w.s) {
		w.d.contexts.forget(w.s.array.id)
	}
	return w.d.unshare(w.s)
}

func (d *Device) lastUser(s *shared) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.users == 1
}
