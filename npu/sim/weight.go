package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// weight is shared by all Const buffers of the same memory. It holds the quantized copies that
// kernels need, created when a run first uses them.
type weight struct {
	key   *byte
	bytes int
	users int
	forms map[form]npu.Buffer // guarded by Device.sem
}

// weights holds the weights of a device. Device.mu guards the maps and the numbers of users.
type weights struct {
	d         *Device
	byMemory  map[*byte]*weight
	converted map[tensorKey]*converted
}

// form identifies a quantized, contiguous copy of a view of a weight.
type form struct {
	offset, stride int
	rows, width    int
	transposed     bool // rows are along K
}

// converted is a tensor converted to BF16, the only weight type that the array reads.
type converted struct {
	key   tensorKey
	users int // guarded by Device.mu
	// held during conversion; a channel, because waiting must stop when a context is done
	sem chan struct{}
	mem npu.Buffer // nil until converted
}

// tensorKey identifies a tensor by its memory.
type tensorKey struct {
	data  *byte
	bytes int
	typ   dtype.Type
}

// Const returns a read-only BF16 buffer with a weight. It has only the device side and needs no
// sync. FP32 and half-precision tensors are rounded to nearest. Options.Memory counts a weight
// once, even if several buffers share it.
func (d *Device) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	tensors := &bf16Tensors{ctx: ctx, d: d, from: src.From}
	source := npu.Source{Layout: src.Layout}
	if src.From != nil { // otherwise the software device reports that Source.From is missing
		source.From = tensors
	}
	buf, err := d.host.Const(ctx, source)
	if err != nil {
		d.weights.releaseConverted(tensors.used)
		return nil, err
	}
	w, err := d.weights.acquire(buf.Bytes())
	if err != nil {
		err = errors.Join(err, buf.Close())
		d.weights.releaseConverted(tensors.used)
		return nil, err
	}
	return &buffer{d: d, size: buf.Len(), dev: buf, weight: w, used: tensors.used}, nil
}

// acquire returns the weight in mem and adds a reference. The first reference counts its
// memory.
func (s *weights) acquire(mem []byte) (*weight, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	key := unsafe.SliceData(mem)
	w := s.byMemory[key]
	if w == nil {
		if err := s.d.count("Const", len(mem)); err != nil {
			return nil, err
		}
		w = &weight{key: key, bytes: len(mem), forms: map[form]npu.Buffer{}}
		s.byMemory[key] = w
	}
	w.users++
	return w, nil
}

// release drops a reference to w. The last one frees its quantized copies. The caller must
// hold d.sem.
func (s *weights) release(w *weight) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if w.users--; w.users == 0 {
		delete(s.byMemory, w.key)
		s.d.bytes -= w.bytes
		closeAll(w.forms)
	}
}

func closeAll[K comparable](buffers map[K]npu.Buffer) {
	for k, b := range buffers {
		_ = b.Close() // closing npu/cpu memory does not fail
		delete(buffers, k)
	}
}

// bf16Tensors presents the tensors of another source as BF16.
type bf16Tensors struct {
	ctx  context.Context
	d    *Device
	from npu.Tensors
	used []*converted
}

func (t *bf16Tensors) Tensor(name string) (npu.Tensor, error) {
	x, err := t.from.Tensor(name)
	if err != nil || x.Type == dtype.BF16 || !x.Type.Valid() {
		return x, err
	}
	c, err := t.d.weights.convert(t.ctx, x)
	if err != nil {
		return npu.Tensor{}, fmt.Errorf("npu/sim: tensor %q as BF16: %w", name, err)
	}
	if slices.Contains(t.used, c) {
		t.d.weights.releaseConverted([]*converted{c})
	} else {
		t.used = append(t.used, c)
	}
	return npu.Tensor{Type: dtype.BF16, Shape: x.Shape, Data: c.mem.Bytes()}, nil
}

// convert returns x as BF16 and adds a reference. Concurrent callers wait for one conversion; if
// its context is done, another caller takes over.
func (s *weights) convert(ctx context.Context, x npu.Tensor) (*converted, error) {
	key := tensorKey{unsafe.SliceData(x.Data), len(x.Data), x.Type}
	s.d.mu.Lock()
	c := s.converted[key]
	if c == nil {
		c = &converted{key: key, sem: make(chan struct{}, 1)}
		s.converted[key] = c
	}
	c.users++
	s.d.mu.Unlock()
	if err := c.make(ctx, s.d, x); err != nil {
		s.releaseConverted([]*converted{c})
		return nil, err
	}
	return c, nil
}

func (c *converted) make(ctx context.Context, d *Device, x npu.Tensor) error {
	select {
	case c.sem <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.sem }()
	if c.mem != nil {
		return nil
	}
	n := 1
	for _, d := range x.Shape {
		if d < 1 || n > len(x.Data)*maxBlock/d { // more elements than the data can hold
			return fmt.Errorf("%d bytes do not match a tensor of %s %v", len(x.Data), x.Type, x.Shape)
		}
		n *= d
	}
	if block, _ := x.Type.Block(); n%block != 0 || x.Type.Bytes(n) != len(x.Data) {
		return fmt.Errorf("%d bytes do not match a tensor of %s %v", len(x.Data), x.Type, x.Shape)
	}
	mem, err := d.host.Alloc(ctx, dtype.BF16.Bytes(n))
	if err != nil {
		return err
	}
	if err := expand(ctx, d.info.Threads, dtype.BFloat16s(mem.Bytes()), x); err != nil {
		return errors.Join(err, mem.Close())
	}
	c.mem = mem
	return nil
}

// maxBlock is the largest number of elements in a block of any type.
const maxBlock = 256

// expand converts a tensor to BF16.
func expand(ctx context.Context, threads int, dst []dtype.BFloat16, x npu.Tensor) error {
	const chunk = 1 << 16 // elements: whole blocks of any type
	pieces := (len(dst) + chunk - 1) / chunk
	errs := make([]error, pieces)
	parallel(ctx, threads, pieces, chunk, func(from, to int) {
		values := make([]float32, chunk)
		for i := from; i < to; i++ {
			part := dst[i*chunk : min(len(dst), (i+1)*chunk)]
			at := x.Type.Bytes(i * chunk)
			errs[i] = dtype.Dequantize(values[:len(part)], x.Type, x.Data[at:at+x.Type.Bytes(len(part))])
			dtype.F32ToBF16(part, values[:len(part)])
		}
	})
	return errors.Join(append(errs, ctx.Err())...)
}

func (s *weights) releaseConverted(used []*converted) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, c := range used {
		if c.users--; c.users == 0 {
			delete(s.converted, c.key)
			if c.mem != nil {
				_ = c.mem.Close() // as in closeAll
			}
		}
	}
}

// quantized returns the copy of w for f, creating it on first use.
func (s *weights) quantized(c compute, w *weight, src []dtype.BFloat16, f form) (npu.Buffer, error) {
	if b, ok := w.forms[f]; ok {
		return b, nil
	}
	b, err := s.d.host.Alloc(c.ctx, f.rows*f.width*dtype.BF16.Bytes(1))
	if err != nil {
		return nil, err
	}
	c.quantize(dtype.BFloat16s(b.Bytes()), src, f)
	if err := c.ctx.Err(); err != nil { // the copy is incomplete
		_ = b.Close()
		return nil, err
	}
	w.forms[f] = b
	return b, nil
}

// quantize writes the quantized view f of src to dst.
func (c compute) quantize(dst, src []dtype.BFloat16, f form) {
	if f.transposed {
		parallel(c.ctx, c.threads, f.rows, f.width, func(from, to int) {
			for r := from; r < to; r++ {
				quantizeRow(dst[r*f.width:][:f.width], src[f.offset+r*f.stride:][:f.width])
			}
		})
		return
	}
	blocks := (f.rows + blockSize - 1) / blockSize
	parallel(c.ctx, c.threads, blocks, blockSize*f.width, func(from, to int) {
		for r := from * blockSize; r < min(to*blockSize, f.rows); r += blockSize {
			quantizeColumns(dst[r*f.width:], f.width, src[f.offset+r*f.stride:], f.stride,
				min(blockSize, f.rows-r), f.width)
		}
	})
}
