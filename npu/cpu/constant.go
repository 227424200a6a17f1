package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// shared is a weight that had to be made: in another layout or type than the checkpoint's. All buffers that ask for the same share it.
type shared struct {
	key   string
	users int // guarded by Device.mu

	once sync.Once
	mem  memory
	typ  dtype.Type
	err  error
}

// Const makes a buffer with a weight. A tensor as it is, of a type that the kernels read, is not copied: the buffer is the tensor's memory. Anything
// else is made once for all buffers that ask for the same, quantised blocks as BF16; the same means tensors at the same addresses. So the memory
// of the source's tensors must outlive every buffer made of it, until the buffer is closed.
func (d *Device) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("npu/cpu: %w", err)
	}
	if d.closed.Load() {
		return nil, fmt.Errorf("npu/cpu: Const: %w", npu.ErrClosed)
	}
	typ, shape, err := src.Stat()
	if err != nil {
		return nil, err
	}
	if name, ok := src.Layout.Identity(); ok {
		t, err := src.From.Tensor(name)
		if err != nil {
			return nil, err
		}
		if code, ok := typeCodes[typ]; ok && uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))%uintptr(typeBytes[code]) == 0 {
			return &buffer{d: d, data: t.Data, size: len(t.Data), typ: typ, fixed: true}, nil
		}
	}
	key, err := constKey(src.Layout, src.From)
	if err != nil {
		return nil, err
	}
	for {
		s := d.share(key)
		mine := false
		s.once.Do(func() {
			mine = true
			s.make(ctx, d.info.Threads, src, typ, shape)
		})
		if s.err == nil {
			return &buffer{d: d, data: s.mem.m, size: len(s.mem.m), typ: s.typ, fixed: true, from: s}, nil
		}
		err := fmt.Errorf("npu/cpu: weight %s: %w", src.Layout, s.err)
		s.release(d)
		// Another caller who was first gave up, which is no reason for this one to.
		if ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); mine || !ended || ctx.Err() != nil {
			return nil, err
		}
	}
}

// share is the weight of a key, made or not, with one use more.
func (d *Device) share(key string) *shared {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.consts[key]
	if s == nil {
		s = &shared{key: key}
		d.consts[key] = s
	}
	s.users++
	return s
}

// release gives up one use; the last frees the memory, and also forgets a failure so that it can be tried again.
func (s *shared) release(d *Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.users--; s.users == 0 {
		if d.consts[s.key] == s {
			delete(d.consts, s.key)
		}
		s.mem.free()
	} else if s.err != nil && d.consts[s.key] == s {
		delete(d.consts, s.key)
	}
}

// constKey names what a layout makes by where its tensors lie, so that two checkpoints with the same names do not mix. An address says
// who is who as long as its tensor's memory is not given back: hence the rule in Const.
func constKey(l npu.Layout, from npu.Tensors) (string, error) {
	var b strings.Builder
	var walk func(l npu.Layout) error
	walk = func(l npu.Layout) error {
		if name, ok := l.Identity(); ok {
			t, err := from.Tensor(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%p:%d:%v:%v", unsafe.SliceData(t.Data), len(t.Data), t.Type, t.Shape)
			return nil
		}
		fmt.Fprintf(&b, "%s%v(", l.Op, l.Numbers)
		for _, a := range l.Args {
			if err := walk(a); err != nil {
				return err
			}
			b.WriteByte(',')
		}
		b.WriteByte(')')
		return nil
	}
	err := walk(l)
	return b.String(), err
}

// make fills s with the weight.
func (s *shared) make(ctx context.Context, threads int, src npu.Source, typ dtype.Type, shape []int) {
	elements := 1
	for _, n := range shape {
		if n <= 0 || elements > maxAlloc/n {
			s.err = fmt.Errorf("shape %v is out of range", shape)
			return
		}
		elements *= n
	}
	if _, plain := typeCodes[typ]; plain {
		if s.mem, s.err = newMemory(typ.Bytes(elements)); s.err != nil {
			return
		}
		s.typ = typ
		s.err = src.Materialize(s.mem.m)
	} else {
		s.err = s.expand(ctx, threads, src, typ, shape, elements)
	}
	if s.err != nil {
		s.mem.free()
		s.mem = memory{}
	}
}

// expand makes BF16 of a type that no kernel reads.
func (s *shared) expand(ctx context.Context, threads int, src npu.Source, typ dtype.Type, shape []int, elements int) error {
	var data []byte
	if name, ok := src.Layout.Identity(); ok {
		t, err := src.From.Tensor(name)
		if err != nil {
			return err
		}
		data = t.Data
	} else {
		blocks, err := newMemory(typ.Bytes(elements))
		if err != nil {
			return err
		}
		defer blocks.free()
		if err := src.Materialize(blocks.m); err != nil {
			return err
		}
		data = blocks.m
	}
	var err error
	if s.mem, err = newMemory(2 * elements); err != nil {
		return err
	}
	s.typ = dtype.BF16
	dst, _ := dtype.View[dtype.BFloat16](s.mem.m)
	cols := shape[len(shape)-1]
	return expandRows(ctx, threads, dst, typ, data, cols)
}

// expandRows dequantises rows of cols elements to BF16, in parallel.
func expandRows(ctx context.Context, threads int, dst []dtype.BFloat16, typ dtype.Type, data []byte, cols int) error {
	const stretch = 1 << 16 // elements between looks at the context, and about the size of the FP32 values in between
	rows := len(dst) / cols
	step := max(1, stretch/cols)
	rowBytes := typ.Bytes(cols)
	next := make(chan int)
	errs := make([]error, min(threads, runtime.GOMAXPROCS(0)))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			values := make([]float32, step*cols)
			for r := range next {
				n := min(step, rows-r)
				if err := dtype.Dequantize(values[:n*cols], typ, data[r*rowBytes:][:n*rowBytes]); err != nil {
					errs[i] = err
				}
				dtype.F32ToBF16(dst[r*cols:][:n*cols], values[:n*cols])
			}
		})
	}
	for r := 0; r < rows && ctx.Err() == nil; r += step {
		next <- r
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
