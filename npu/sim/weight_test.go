package sim

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

type tensors map[string]npu.Tensor

func (m tensors) Tensor(name string) (npu.Tensor, error) {
	x, ok := m[name]
	if !ok {
		return x, errors.New("no such tensor")
	}
	return x, nil
}

// Weights of any type are converted to BF16. Quantized copies are shared between buffers of the
// same weight and freed with the last one.
func TestConst(t *testing.T) {
	const k, n = 64, 32
	d := open(t, nil)
	r := rand.New(rand.NewPCG(3, 3))
	bf := normal(r, n, k, 1)
	wide := make([]float32, n*k)
	dtype.BF16ToF32(wide, bf.bf)
	from := tensors{
		"bf16": {Type: dtype.BF16, Shape: []int{n, k}, Data: dtype.AsBytes(bf.bf)},
		"f32":  {Type: dtype.F32, Shape: []int{n, k}, Data: dtype.AsBytes(wide)},
		"cut":  {Type: dtype.F32, Shape: []int{n, k + 1}, Data: dtype.AsBytes(wide)},
		"huge": {Type: dtype.F32, Shape: []int{math.MaxInt, 2}, Data: dtype.AsBytes(wide)},
		"none": {Type: dtype.Q8_0, Shape: []int{0}},
		// 32 times 1 * -2
		"q8": {Type: dtype.Q8_0, Shape: []int{1, 32},
			Data: append([]byte{0, 0x3c}, bytes.Repeat([]byte{0xfe}, 32)...)},
	}
	a := normal(r, 8, k, 1)
	program := npu.NewProgram("product")
	program.Launch("product", op.MatMul{M: 8, K: k, N: n}, program.In("a", dtype.BF16, 8, k),
		program.Const("w", dtype.BF16, k, n),
		program.Out("y", dtype.BF16, 8, n))
	program.Map(npu.Mapping{Variant: "drain"})
	e, err := d.place(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	var outputs [][]byte
	var weights []npu.Buffer
	for _, name := range []string{"bf16", "f32", "f32"} {
		l, err := npu.ParseLayout("transpose(" + name + ")")
		if err != nil {
			t.Fatal(err)
		}
		w, err := d.Const(t.Context(), npu.Source{Layout: l, From: from})
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, w)
		y := empty(8, n)
		ab, yb := alloc(t, d, &a), alloc(t, d, &y)
		if err := d.Submit(t.Context(), []npu.Run{{Exec: e, Args: []npu.Buffer{ab, w, yb}}}); err != nil {
			t.Fatal(err)
		}
		if err := yb.Sync(npu.FromDevice, 0, yb.Len()); err != nil {
			t.Fatal(err)
		}
		outputs = append(outputs, bytes.Clone(yb.Bytes()))
		if err := d.Submit(t.Context(), []npu.Run{{Exec: e, Args: []npu.Buffer{ab, w, w}}}); err == nil {
			t.Error("a weight was written")
		}
	}
	if !bytes.Equal(outputs[0], outputs[1]) || !bytes.Equal(outputs[1], outputs[2]) {
		t.Error("the same weight in another type produces different results")
	}
	if len(d.weights.byMemory) != 2 || len(d.weights.converted) != 1 {
		t.Errorf("%d weights and %d converted tensors, want 2 and 1: one per address",
			len(d.weights.byMemory), len(d.weights.converted))
	}
	for _, w := range weights {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(d.weights.byMemory) != 0 || len(d.weights.converted) != 0 {
		t.Errorf("%d weights and %d converted tensors remain", len(d.weights.byMemory), len(d.weights.converted))
	}
	for _, name := range []string{"missing", "cut", "huge", "none"} {
		if _, err := d.Const(t.Context(), npu.Source{Layout: npu.T(name), From: from}); err == nil {
			t.Errorf("tensor %q was accepted", name)
		}
	}
	q8, err := d.Const(t.Context(), npu.Source{Layout: npu.T("q8"), From: from})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range dtype.BFloat16s(q8.Bytes()) {
		if v.Float32() != -2 {
			t.Errorf("element %d of a quantised weight is %g, want -2", i, v.Float32())
		}
	}
}

// closing calls before when its memory is closed.
type closing struct {
	npu.Buffer
	before func()
}

func (c closing) Close() error { c.before(); return c.Buffer.Close() }

// A weight is removed from the table before its memory is freed, because another weight can then
// reuse the address.
func TestCloseRemovesWeightFirst(t *testing.T) {
	d := open(t, nil)
	w, err := d.Const(t.Context(), npu.Source{Layout: npu.T("w"),
		From: tensors{"w": {Type: dtype.BF16, Shape: []int{8, 8}, Data: make([]byte, 128)}}})
	if err != nil {
		t.Fatal(err)
	}
	b, known := w.(*buffer), -1
	b.dev = closing{b.dev, func() { known = len(d.weights.byMemory) }}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if known != 0 {
		t.Errorf("%d weights were in the table when its memory was freed", known)
	}
}

// A conversion in progress blocks only callers that need the tensor, and if it is abandoned another
// caller takes over.
func TestConcurrentConversion(t *testing.T) {
	s := newSums(t, nil)
	d := s.d
	x := npu.Tensor{Type: dtype.F32, Shape: []int{1, 64}, Data: make([]byte, 4*64)}
	key := tensorKey{unsafe.SliceData(x.Data), len(x.Data), x.Type}
	// A conversion in progress.
	slow := &converted{key: key, users: 1, sem: make(chan struct{}, 1)}
	slow.sem <- struct{}{}
	d.weights.converted[key] = slow
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.weights.convert(ctx, x); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for it: %v", err)
	}
	if err := s.submit(t.Context()); err != nil {
		t.Errorf("concurrent Submit: %v", err)
	}
	<-slow.sem // abandoned
	c, err := d.weights.convert(t.Context(), x)
	if err != nil || c != slow || c.mem == nil || c.users != 2 {
		t.Fatalf("afterwards: %v, %+v", err, c)
	}
	d.weights.releaseConverted([]*converted{c, slow})
	if len(d.weights.converted) != 0 {
		t.Errorf("%d converted tensors remain", len(d.weights.converted))
	}
}

// A source without tensors is an error that names the field to set.
func TestConstWithoutSource(t *testing.T) {
	d := open(t, &Options{})
	if _, err := d.Const(t.Context(), npu.Source{Layout: npu.T("w")}); err == nil ||
		!strings.Contains(err.Error(), "Source.From is nil") {
		t.Errorf("weight without a source: %v", err)
	}
}
