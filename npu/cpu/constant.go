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

// shared is a weight that had to be made, in another layout or type than the checkpoint's, or whose
// tensor is requested again whenever it is read. All buffers of the same weight share it.
type shared struct {
	key   string
	users int // guarded by Device.mu

	made chan struct{} // closed when the fields below are set
	mem  memory
	typ  dtype.Type
	err  error

	// Of quantized weights: the blocks in groups, and the lock under which mem, their BF16, is made
	// when it is first needed.
	grouped *groupedWeight
	src     npu.Source
	shape   []int
	wide    sync.Mutex // guards mem if grouped is set

	// Of a tensor of a type that the device compresses: its name, and its BF12.
	tensor string
	// nil for vectors, tables that are only looked up, and matrices with too many escapes
	bf12 *bf12Weight
}

// Const returns a buffer with a weight. A tensor in its own layout and of a type that the kernels
// read is not copied: the buffer is the tensor's memory. Any other weight is made once for all
// buffers that request it, where equal means tensors at equal addresses. The memory of the source's
// tensors must therefore outlive every buffer, until the buffer is closed.
//
// If the kernels read BF12 (Info.Compressed), matrices in BF16 are compressed. Ops that do not read
// BF12 read the tensor, which is requested each time, since its memory may have been released.
//
// Quantized blocks are repacked and keep their values and about their size; products and embeddings
// read them so. For everything else the buffer is BF16: programs that name that type, ops without a
// kernel for blocks, Len and Bytes. The BF16 is made when it is first needed; Bytes returns nil if
// there is no memory for it.
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
	tensor := "" // whose memory is not kept, because it may be released
	if name, ok := src.Layout.Identity(); ok {
		t, err := src.From.Tensor(name)
		if err != nil {
			return nil, err
		}
		if code, ok := kernel.Types[typ]; ok && aligned(t.Data, kernel.TypeBytes[code]) {
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
			// another goroutine may be making data
			if b.late = s.grouped != nil || s.tensor != ""; b.late {
				b.size = s.typ.Bytes(elementsOf(shape))
			} else {
				b.data, b.size = s.mem.m, len(s.mem.m)
			}
			return b, nil
		}
		err := fmt.Errorf("npu/cpu: weight %s: %w", src.Layout, s.err)
		s.release(d)
		// Another caller who was first gave up, which is no reason for this one to.
		ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if mine || !ended || ctx.Err() != nil {
			return nil, err
		}
	}
}

// share returns the weight of a key and adds a use. Mine reports that the caller is the first and
// must make it.
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

// release removes a use; the last one frees the memory. A failure is forgotten at once, so that it
// can be retried.
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

// aligned reports whether data starts at a multiple of size.
func aligned(data []byte, size int64) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(size) == 0
}

// elementsOf returns the number of elements of a shape that make has checked.
func elementsOf(shape []int) int { return op.Size{}.Elements(shape) }

// make fills s with the weight and wakes those that wait for it.
func (s *shared) make(ctx context.Context, d *Device, src npu.Source, typ dtype.Type, shape []int,
	tensor string, narrow bool) {
	defer close(s.made)
	s.err = errors.New("its source has panicked") // for the waiters, if fill panics
	if s.err = s.fill(ctx, d, src, typ, shape, tensor, narrow); s.err != nil {
		s.free()
	}
}

// fill makes the weight. If a tensor is named, it is that tensor, and compressed if narrow is set.
func (s *shared) fill(ctx context.Context, d *Device, src npu.Source, typ dtype.Type, shape []int,
	tensor string, narrow bool) (err error) {
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

// sourceBlocks returns the elements of a source in the order of a file, and a function that
// releases their memory.
func sourceBlocks(src npu.Source, typ dtype.Type, elements int) (data []byte, done func(), err error) {
	if name, ok := src.Layout.Identity(); ok {
		t, err := src.From.Tensor(name)
		if err == nil && len(t.Data) != typ.Bytes(elements) {
			err = fmt.Errorf("%d elements of %s take %d bytes, the tensor has %d",
				elements, typ, typ.Bytes(elements), len(t.Data))
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

// group repacks quantized rows into groups, in parallel.
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
		return fmt.Errorf("BF16 %v takes %d bytes, the tensor has %d",
			s.shape, t.Type.Bytes(elementsOf(s.shape)), len(t.Data))
	}
	s.bf12, err = toBF12(ctx, d.info.Threads, &d.weights, d.engine.(bf12Engine), t.Data, s.shape[0], s.shape[1])
	return err
}

// expanded returns a late weight as BF16, which it makes on first use. The caller must hold a use
// of it.
func (s *shared) expanded(ctx context.Context, d *Device) ([]byte, error) {
	// requested each time: the memory of a rearranged tensor may have been released
	if s.tensor != "" {
		t, err := s.src.From.Tensor(s.tensor)
		size := kernel.TypeBytes[kernel.Types[s.typ]]
		want := int(size) * elementsOf(s.shape)
		if err == nil && (len(t.Data) != want || !aligned(t.Data, size)) {
			err = fmt.Errorf("tensor %s is not as it was: it has %d bytes, and had %d",
				s.tensor, len(t.Data), want)
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

// stretch is about how many elements are processed between checks of the context, which bounds the
// FP32 values in between.
const stretch = 1 << 16

// expandRows dequantizes rows of cols elements to BF16, in parallel.
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
	var next atomic.Int64 // steps that were taken
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
