package xdna

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// shared is a weight in one layout. It is written and synced once and shared by all Const buffers
// with the same layout and tensors.
type shared struct {
	key   string
	users int // guarded by weights.mu

	once  sync.Once
	array object
	typ   dtype.Type
	size  int
	free  func() error // frees the memory
	err   error
}

// weights holds the weights of a device.
type weights struct {
	d     *Device
	slabs slabs

	mu    sync.Mutex
	byKey map[string]*shared
}

// weight is a Const buffer.
type weight struct {
	d *Device
	s *shared

	mu     sync.Mutex
	closed bool
}

// Const returns a buffer with a weight in BF16, or I32 for indices, the types that the array reads.
// Other types are rounded to nearest even. A weight is laid out, written to the device and synced
// once for all buffers with the same layout of the same tensors. Tensors are the same if they have
// the same address, so their memory must outlive every buffer created from them.
func (d *Device) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if err := d.checkOpen(ctx); err != nil {
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
	s := d.weights.acquire(key)
	s.once.Do(func() { s.err = d.weights.materialize(s, src) })
	if s.err != nil {
		return nil, errors.Join(fmt.Errorf("npu/xdna: weight %s: %w", src.Layout, s.err),
			d.weights.release(s))
	}
	return &weight{d: d, s: s}, nil
}

// acquire returns the weight with the given key, materialized or not, and adds a reference.
func (w *weights) acquire(key string) *shared {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byKey[key]
	if s == nil {
		s = &shared{key: key}
		w.byKey[key] = s
	}
	s.users++
	return s
}

// release drops a reference to s; the last one frees its memory. A weight that failed is
// removed at once, so that the next call retries.
func (w *weights) release(s *shared) error {
	w.mu.Lock()
	s.users--
	if (s.users == 0 || s.err != nil) && w.byKey[s.key] == s {
		delete(w.byKey, s.key)
	}
	last := s.users == 0 && s.free != nil
	w.mu.Unlock()
	if !last {
		return nil
	}
	return s.free()
}

// materialize writes a weight to the device.
func (w *weights) materialize(s *shared, src npu.Source) error {
	typ, shape, err := src.Stat()
	if err != nil {
		return err
	}
	n := typ.Bytes(1)
	for _, dim := range shape {
		if dim < 1 || dim > maxBytes/n {
			return fmt.Errorf("%s %v is larger than a DMA descriptor of the array can address", typ, shape)
		}
		n *= dim
	}
	m, free, err := w.slabs.alloc(n)
	if err != nil {
		return failure(err)
	}
	if err = src.Materialize(m.bytes()[:n]); err == nil {
		err = failure(m.sync(npu.ToDevice, 0, n))
	}
	if err != nil {
		return errors.Join(err, free())
	}
	s.array, s.typ, s.size, s.free = w.d.object(m), typ, n, free
	return nil
}

func (w *weight) Len() int { return w.s.size }

// Bytes returns the weight in its layout. It must not be modified.
func (w *weight) Bytes() []byte { return w.s.array.bytes()[:w.s.size] }

// Sync does nothing: a weight is synced when it is created.
func (w *weight) Sync(dir npu.Direction, offset, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return checkSync(w.closed, dir, offset, n, w.s.size)
}

// Close waits for a running Submit and releases the weight.
func (w *weight) Close() error {
	w.d.sem <- struct{}{}
	defer w.d.release()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.d.weights.lastUser(w.s) {
		w.d.contexts.closeRunsOf(w.s.array.id)
	}
	return w.d.weights.release(w.s)
}

func (w *weights) lastUser(s *shared) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.users == 1
}
