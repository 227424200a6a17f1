package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// shared is a weight that had to be made, in another layout or type than the checkpoint's, or whose tensor is asked for again whenever it is read. All buffers
// that ask for the same share it.
type shared struct {
	key   string
	users int // guarded by Device.mu

	made chan struct{} // closed when what follows is there
	mem  memory
	typ  dtype.Type
	err  error

	// Of quantised weights: the blocks in groups, and how to make BF16 of them for those who cannot read groups. Mem is that BF16, made when it is
	// first asked for.
	grouped *groupedWeight
	src     npu.Source
	shape   []int
	wide    sync.Mutex // guards mem where there is grouped

	// Of a tensor as it is, of a type that the device compresses: its name, and BF12 of it for those who can read that.
	tensor string
	bf12   *bf12Weight // nil of vectors, of tables that are only looked up, and where it would have too many escapes
}

// Const makes a buffer with a weight. A tensor as it is, of a type that the kernels read, is not copied: the buffer is the tensor's memory. Anything
// else is made once for all buffers that ask for the same, where the same means tensors at the same addresses. So the memory of the source's tensors
// must outlive every buffer made of it, until the buffer is closed.
//
// Where the kernels read BF12 (Info.Compressed), matrices in BF16 are compressed to it. What does not read that reads the tensor, which is asked for each time: its
// memory may have been given up since.
//
// Quantised blocks keep what they say, in another order and about as many bytes, and products and embeddings read them so. To everything else
// the buffer is one of BF16: a program that names that type, an op that has no kernel for blocks, whoever calls Len or Bytes. The BF16 is made when it is
// first needed, and Bytes is nil when there is no memory for it.
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
	tensor := "" // whose memory is not kept, because it may be given up
	if name, ok := src.Layout.Identity(); ok {
		t, err := src.From.Tensor(name)
		if err != nil {
			return nil, err
		}
		if code, ok := kernel.Types[typ]; ok && uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))%uintptr(kernel.TypeBytes[code]) == 0 {
			if !slices.Contains(d.info.Compressed, typ) {
				return &buffer{d: d, data: t.Data, size: len(t.Data), typ: typ, fixed: true}, nil
			}
			tensor = name
		}
	}
	key, err := src.Key()
	if err != nil {
		return nil, err
	}
	narrow := tensor != "" && !src.Lookup && d.info.Compresses(typ, shape)
	if tensor != "" && !narrow {
		key += ", as it is"
	}
	for {
		s, mine := d.share(key)
		if mine {
			s.make(ctx, d, src, typ, shape, tensor, narrow)
		} else {
			select {
			case <-s.made:
			case <-ctx.Done():
				s.release(d)
				return nil, fmt.Errorf("npu/cpu: weight %s: %w", src.Layout, ctx.Err())
			}
		}
		if s.err == nil {
			b := &buffer{d: d, typ: s.typ, fixed: true, from: s, grouped: s.grouped, bf12: s.bf12}
			if b.late = s.grouped != nil || s.tensor != ""; b.late { // somebody else may be making what data would be
				b.size = s.typ.Bytes(elementsOf(shape))
			} else {
				b.data, b.size = s.mem.m, len(s.mem.m)
			}
			return b, nil
		}
		err := fmt.Errorf("npu/cpu: weight %s: %w", src.Layout, s.err)
		s.release(d)
		// Another caller who was first gave up, which is no reason for this one to.
		if ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); mine || !ended || ctx.Err() != nil {
			return nil, err
		}
	}
}

// share is the weight of a key with one use more. Mine means that the caller is the first, who makes it.
func (d *Device) share(key string) (s *shared, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s = d.consts[key]
	if mine = s == nil; mine {
		s = &shared{key: key, made: make(chan struct{})}
		d.consts[key] = s
	}
	s.users++
	return s, mine
}

// release gives up one use; the last frees the memory. A failure is forgotten at once, so that it can be tried again.
func (s *shared) release(d *Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := false
	select {
	case <-s.made:
		failed = s.err != nil
	default:
	}
	s.users--
	if (failed || s.users == 0) && d.consts[s.key] == s {
		delete(d.consts, s.key)
	}
	if s.users == 0 {
		s.free()
	}
}

func (s *shared) free() {
	s.mem.free()
	s.mem = memory{}
	if s.grouped != nil {
		s.grouped.mem.free()
		s.grouped = nil
	}
	if s.bf12 != nil {
		s.bf12.free()
		s.bf12 = nil
	}
}

// elementsOf is the number of elements of a shape that make has checked.
func elementsOf(shape []int) int { return op.Size{}.Elements(shape) }

// make fills s with the weight, and tells those who wait for it.
func (s *shared) make(ctx context.Context, d *Device, src npu.Source, typ dtype.Type, shape []int, tensor string, narrow bool) {
	defer close(s.made)
	s.err = errors.New("its source has panicked") // what others are told if it does
	if s.err = s.fill(ctx, d, src, typ, shape, tensor, narrow); s.err != nil {
		s.free()
	}
}

// fill makes the weight. It is the tensor that is named, if one is, and if it is narrow there is BF12 of it.
func (s *shared) fill(ctx context.Context, d *Device, src npu.Source, typ dtype.Type, shape []int, tensor string, narrow bool) (err error) {
	elements := 1
	for _, n := range shape {
		if n <= 0 || elements > maxAlloc/n {
			return fmt.Errorf("shape %v is out of range", shape)
		}
		elements *= n
	}
	s.src, s.shape, s.typ = src, shape, typ
	_, plain := kernel.Types[typ]
	switch {
	case tensor != "":
		if s.tensor = tensor; narrow {
			err = s.compress(ctx, d)
		}
	case plain:
		if s.mem, err = d.weights.alloc(typ.Bytes(elements)); err == nil {
			err = src.Materialize(s.mem.m)
		}
	case typ.Quantized():
		s.typ = dtype.BF16
		err = s.group(ctx, d, typ, elements)
	default:
		s.typ = dtype.BF16
		s.mem, err = expand(ctx, d, src, typ, shape)
	}
	return err
}

// sourceBlocks gives the elements of a source as they lie in a file, and how to give up their memory.
func sourceBlocks(src npu.Source, typ dtype.Type, elements int) (data []byte, done func(), err error) {
	if name, ok := src.Layout.Identity(); ok {
		t, err := src.From.Tensor(name)
		if err == nil && len(t.Data) != typ.Bytes(elements) {
			err = fmt.Errorf("%d elements of %s take %d bytes, the tensor has %d", elements, typ, typ.Bytes(elements), len(t.Data))
		}
		return t.Data, func() {}, err
	}
	m, err := newMemory(typ.Bytes(elements))
	if err != nil {
		return nil, nil, err
	}
	if err := src.Materialize(m.m); err != nil {
		m.free()
		return nil, nil, err
	}
	return m.m[:typ.Bytes(elements)], m.free, nil
}

// group puts quantised rows in groups, in parallel.
func (s *shared) group(ctx context.Context, d *Device, typ dtype.Type, elements int) error {
	data, done, err := sourceBlocks(s.src, typ, elements)
	if err != nil {
		return err
	}
	defer done()
	cols := s.shape[len(s.shape)-1]
	if s.grouped, err = newGrouped(&d.weights, typ, elements/cols, cols); err != nil {
		return err
	}
	step := max(1, stretch/(kernel.GroupRows*cols))
	groups := s.grouped.Groups()
	return inParallel(ctx, d.info.Threads, groups, step, func(from, to int) error {
		d.engine.Regroup(&s.grouped.Grouped, data, from, to)
		return nil
	})
}

// compress makes BF12 of a matrix of BF16.
func (s *shared) compress(ctx context.Context, d *Device) error {
	t, err := s.src.From.Tensor(s.tensor)
	if err != nil {
		return err
	}
	if len(t.Data) != t.Type.Bytes(elementsOf(s.shape)) {
		return fmt.Errorf("BF16 %v takes %d bytes, the tensor has %d", s.shape, t.Type.Bytes(elementsOf(s.shape)), len(t.Data))
	}
	s.bf12, err = toBF12(ctx, d.info.Threads, &d.weights, d.engine.(bf12Engine), t.Data, s.shape[0], s.shape[1])
	return err
}

// expanded is a late weight as BF16, where it lies or made if this is the first time. The caller has a use of it.
func (s *shared) expanded(ctx context.Context, d *Device) ([]byte, error) {
	if s.tensor != "" { // asked for again each time: who made a copy of a rearranged tensor lets its memory go
		t, err := s.src.From.Tensor(s.tensor)
		size := int(kernel.TypeBytes[kernel.Types[s.typ]])
		if err == nil && (len(t.Data) != size*elementsOf(s.shape) || uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))%uintptr(size) != 0) {
			err = fmt.Errorf("tensor %s is not as it was: it has %d bytes, and had %d", s.tensor, len(t.Data), size*elementsOf(s.shape))
		}
		return t.Data, err
	}
	s.wide.Lock()
	defer s.wide.Unlock()
	if s.mem.m == nil {
		m, err := expand(ctx, d, s.src, kernel.FormOf(s.grouped.Code).Type, s.shape)
		if err != nil {
			return nil, fmt.Errorf("weight %s as BF16: %w", s.src.Layout, err)
		}
		s.mem = m
	}
	return s.mem.m, nil
}

// expand makes BF16 of a type that no kernel reads.
func expand(ctx context.Context, d *Device, src npu.Source, typ dtype.Type, shape []int) (memory, error) {
	elements := elementsOf(shape)
	data, done, err := sourceBlocks(src, typ, elements)
	if err != nil {
		return memory{}, err
	}
	defer done()
	m, err := d.weights.alloc(2 * elements)
	if err != nil {
		return memory{}, err
	}
	dst, _ := dtype.View[dtype.BFloat16](m.m)
	if err := expandRows(ctx, d.info.Threads, dst, typ, data, shape[len(shape)-1]); err != nil {
		m.free()
		return memory{}, err
	}
	return m, nil
}

// stretch is about how many elements are worked on between looks at the context, and so the size of the FP32 values in between.
const stretch = 1 << 16

// expandRows dequantises rows of cols elements to BF16, in parallel.
func expandRows(ctx context.Context, threads int, dst []dtype.BFloat16, typ dtype.Type, data []byte, cols int) error {
	rowBytes := typ.Bytes(cols)
	return inParallel(ctx, threads, len(dst)/cols, max(1, stretch/cols), func(from, to int) error {
		values := make([]float32, (to-from)*cols)
		if err := dtype.Dequantize(values, typ, data[from*rowBytes:to*rowBytes]); err != nil {
			return err
		}
		dtype.F32ToBF16(dst[from*cols:to*cols], values)
		return nil
	})
}

// inParallel calls f for all of n in steps, until there is an error or ctx is done.
func inParallel(ctx context.Context, threads, n, step int, f func(from, to int) error) error {
	var next atomic.Int64 // steps that somebody took
	var failed atomic.Bool
	errs := make([]error, min(threads, runtime.GOMAXPROCS(0)))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for ctx.Err() == nil && !failed.Load() {
				from := int(next.Add(1)-1) * step
				if from >= n {
					return
				}
				if err := f(from, min(n, from+step)); err != nil {
					errs[i] = err
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return ctx.Err()
}
