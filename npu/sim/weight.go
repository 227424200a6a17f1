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

// weight is what all Const buffers of the same memory share: the forms that kernels want it in. They are made when a run first needs them.
type weight struct {
	key   *byte
	bytes int
	users int
	forms map[form]npu.Buffer // guarded by the device's turn
}

// form is a view of a weight, quantised for the matrix unit and stored without gaps.
type form struct {
	offset, stride int
	rows, width    int
	transposed     bool // rows lie along K
}

// converted is a tensor of another type as BF16: the array reads nothing else.
type converted struct {
	key   tensorKey
	users int           // guarded by Device.mu
	turn  chan struct{} // holds a token while somebody converts; a channel, because waiting for it must obey a context
	mem   npu.Buffer    // nil until it is converted
}

// tensorKey says which tensor it is by where it lies.
type tensorKey struct {
	data  *byte
	bytes int
	typ   dtype.Type
}

// Const makes a buffer with a weight in BF16, on the device's side only: it is never synced. FP32 and half-precision tensors are rounded to
// nearest, as whoever converts a checkpoint does. Options.Memory counts a weight once, however many buffers share it.
func (d *Device) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	tensors := &bf16Tensors{ctx: ctx, d: d, from: src.From}
	source := npu.Source{Layout: src.Layout}
	if src.From != nil { // else the software device says that it is missing
		source.From = tensors
	}
	buf, err := d.host.Const(ctx, source)
	if err != nil {
		d.forget(tensors.used)
		return nil, err
	}
	w, err := d.share(buf.Bytes())
	if err != nil {
		err = errors.Join(err, buf.Close())
		d.forget(tensors.used)
		return nil, err
	}
	return &buffer{d: d, size: buf.Len(), dev: buf, weight: w, used: tensors.used}, nil
}

// share is the weight that lies in mem, with one use more. The first counts its memory.
func (d *Device) share(mem []byte) (*weight, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := unsafe.SliceData(mem)
	w := d.weights[key]
	if w == nil {
		if err := d.count("Const", len(mem)); err != nil {
			return nil, err
		}
		w = &weight{key: key, bytes: len(mem), forms: map[form]npu.Buffer{}}
		d.weights[key] = w
	}
	w.users++
	return w, nil
}

// unshare gives up one use of a weight; the last frees its forms. The caller has the turn.
func (d *Device) unshare(w *weight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.users--; w.users == 0 {
		delete(d.weights, w.key)
		d.bytes -= w.bytes
		closeAll(w.forms)
	}
}

func closeAll[K comparable](buffers map[K]npu.Buffer) {
	for k, b := range buffers {
		_ = b.Close() // memory of npu/cpu: giving it back does not fail
		delete(buffers, k)
	}
}

// bf16Tensors shows another source's tensors as BF16.
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
	c, err := t.d.convert(t.ctx, x)
	if err != nil {
		return npu.Tensor{}, fmt.Errorf("npu/sim: tensor %q as BF16: %w", name, err)
	}
	if slices.Contains(t.used, c) {
		t.d.forget([]*converted{c})
	} else {
		t.used = append(t.used, c)
	}
	return npu.Tensor{Type: dtype.BF16, Shape: x.Shape, Data: c.mem.Bytes()}, nil
}

// convert is a tensor as BF16, with one use more. Whoever comes first converts it, and the others wait, or do it where that was given up.
func (d *Device) convert(ctx context.Context, x npu.Tensor) (*converted, error) {
	key := tensorKey{unsafe.SliceData(x.Data), len(x.Data), x.Type}
	d.mu.Lock()
	c := d.converted[key]
	if c == nil {
		c = &converted{key: key, turn: make(chan struct{}, 1)}
		d.converted[key] = c
	}
	c.users++
	d.mu.Unlock()
	if err := c.make(ctx, d, x); err != nil {
		d.forget([]*converted{c})
		return nil, err
	}
	return c, nil
}

func (c *converted) make(ctx context.Context, d *Device, x npu.Tensor) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.turn }()
	if c.mem != nil {
		return nil
	}
	n := 1
	for _, d := range x.Shape {
		if d < 1 || n > len(x.Data)*maxBlock/d { // more than the data can hold
			return fmt.Errorf("%d bytes are not a tensor of %s %v", len(x.Data), x.Type, x.Shape)
		}
		n *= d
	}
	if block, _ := x.Type.Block(); n%block != 0 || x.Type.Bytes(n) != len(x.Data) {
		return fmt.Errorf("%d bytes are not a tensor of %s %v", len(x.Data), x.Type, x.Shape)
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

// maxBlock is the most elements that a block of any type has.
const maxBlock = 256

// expand writes a tensor as BF16.
func expand(ctx context.Context, threads int, dst []dtype.BFloat16, x npu.Tensor) error {
	const stretch = 1 << 16 // elements, whole blocks of any type
	pieces := (len(dst) + stretch - 1) / stretch
	errs := make([]error, pieces)
	parallel(ctx, threads, pieces, stretch, func(from, to int) {
		values := make([]float32, stretch)
		for i := from; i < to; i++ {
			part := dst[i*stretch : min(len(dst), (i+1)*stretch)]
			at := x.Type.Bytes(i * stretch)
			errs[i] = dtype.Dequantize(values[:len(part)], x.Type, x.Data[at:at+x.Type.Bytes(len(part))])
			dtype.F32ToBF16(part, values[:len(part)])
		}
	})
	return errors.Join(append(errs, ctx.Err())...)
}

func (d *Device) forget(used []*converted) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range used {
		if c.users--; c.users == 0 {
			delete(d.converted, c.key)
			if c.mem != nil {
				_ = c.mem.Close() // as in closeAll
			}
		}
	}
}

// quantized is a form of a weight, made now if it is the first time.
func (d *Device) quantized(c compute, w *weight, src []dtype.BFloat16, f form) (npu.Buffer, error) {
	if b, ok := w.forms[f]; ok {
		return b, nil
	}
	b, err := d.host.Alloc(c.ctx, f.rows*f.width*dtype.BF16.Bytes(1))
	if err != nil {
		return nil, err
	}
	c.quantize(dtype.BFloat16s(b.Bytes()), src, f)
	if err := c.ctx.Err(); err != nil { // it is not whole
		_ = b.Close()
		return nil, err
	}
	w.forms[f] = b
	return b, nil
}

// quantize writes a form of src, a weight's elements.
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
			quantizeColumns(dst[r*f.width:], f.width, src[f.offset+r*f.stride:], f.stride, min(blockSize, f.rows-r), f.width)
		}
	})
}
