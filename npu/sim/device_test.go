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

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// sum is a program of one published kernel: an addition of n elements.
func sum(n int) *npu.Program {
	p := npu.NewProgram("sum")
	x, z := p.In("x", dtype.BF16, n), p.In("z", dtype.BF16, n)
	p.Launch("add", op.Add{Rows: 1, Width: n}, x, z, p.Out("y", dtype.BF16, n))
	p.Map(npu.Mapping{Tile: []int{1024}, Herd: []int{8, 1}})
	return p
}

const sumWidth = 1 << 16

// sums is a loaded sum with its buffers: x is 1 and z 2 everywhere, on both sides.
type sums struct {
	d       *Device
	e       npu.Executable
	x, z, y npu.Buffer
}

func newSums(t testing.TB, opts *Options) sums {
	t.Helper()
	d := open(t, opts)
	e, err := d.Load(t.Context(), sum(sumWidth))
	if err != nil {
		t.Fatal(err)
	}
	one, two, none := empty(1, sumWidth), empty(1, sumWidth), empty(1, sumWidth)
	for i := range sumWidth {
		one.bf[i], two.bf[i] = 0x3f80, 0x4000
	}
	return sums{d, e, alloc(t, d, &one), alloc(t, d, &two), alloc(t, d, &none)}
}

func (s sums) submit(ctx context.Context) error {
	return s.d.Submit(ctx, []npu.Run{{Name: "r", Exec: s.e, Args: []npu.Buffer{s.x, s.z, s.y}}})
}

// first is the first element on the host's side.
func first(b npu.Buffer) float32 { return dtype.BFloat16s(b.Bytes())[0].Float32() }

func set(b npu.Buffer, i int, v float32) { dtype.BFloat16s(b.Bytes())[i] = dtype.FromFloat32(v) }

// Without a sync each side goes on seeing what it saw.
func TestStale(t *testing.T) {
	s := newSums(t, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.submit(t.Context()))
	if got := first(s.y); got != 0 {
		t.Errorf("the host sees %g before the output has been synced", got)
	}
	must(s.y.Sync(npu.FromDevice, 0, s.y.Len()))
	if got := first(s.y); got != 3 {
		t.Errorf("1 + 2 = %g", got)
	}
	set(s.x, 0, 5)
	set(s.x, 1, 6)
	must(s.x.Sync(npu.ToDevice, 2, 2)) // of element 1 alone
	must(s.submit(t.Context()))
	must(s.y.Sync(npu.FromDevice, 0, 4))
	if y := dtype.BFloat16s(s.y.Bytes()); y[0].Float32() != 3 || y[1].Float32() != 8 {
		t.Errorf("%g and %g: the device must see the old 1 and the new 6, plus 2", y[0].Float32(), y[1].Float32())
	}
}

// Debug mode names the argument whose sync is missing, in either direction, and is content with a runtime that syncs.
func TestMissingSync(t *testing.T) {
	s := newSums(t, &Options{Debug: true})
	for range 2 {
		if err := s.submit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.y.Sync(npu.FromDevice, 0, 2); err != nil {
			t.Fatal(err)
		}
		_ = first(s.y)
	}
	set(s.z, 7, 1)
	var missing *CoherencyError
	if err := s.submit(t.Context()); !errors.As(err, &missing) || missing.Arg != "z" || missing.Direction != npu.ToDevice || missing.Offset != 14 {
		t.Fatalf("an input was changed: %v, want a CoherencyError for z from byte 14 on", err)
	}
	if err := s.z.Sync(npu.ToDevice, 0, s.z.Len()); err != nil {
		t.Fatal(err)
	}
	if err := s.submit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = first(s.y)
	if err := s.submit(t.Context()); !errors.As(err, &missing) || missing.Arg != "y" || missing.Direction != npu.FromDevice {
		t.Fatalf("an output was read: %v, want a CoherencyError for y", err)
	}
	if err := s.submit(t.Context()); err != nil {
		t.Errorf("a missing sync is reported once: %v", err)
	}
	if err := s.y.Sync(npu.FromDevice, 0, s.y.Len()); err != nil {
		t.Fatal(err)
	}
	set(s.y, 3, 9) // and now an output that becomes an input
	err := s.d.Submit(t.Context(), []npu.Run{{Exec: s.e, Args: []npu.Buffer{s.y, s.z, s.x}}})
	if !errors.As(err, &missing) || missing.Arg != "x" || missing.Offset != 6 {
		t.Errorf("an output was synced, changed and not synced back: %v, want a CoherencyError for x from byte 6 on", err)
	}
}

// An output that is the next program's input stays on the device: nothing is to be synced, and debug mode agrees.
func TestChained(t *testing.T) {
	s := newSums(t, &Options{Debug: true})
	runs := []npu.Run{
		{Exec: s.e, Args: []npu.Buffer{s.x, s.z, s.y}},
		{Exec: s.e, Args: []npu.Buffer{s.y, s.z, s.x}},
	}
	if err := s.d.Submit(t.Context(), runs); err != nil {
		t.Fatal(err)
	}
	if err := s.x.Sync(npu.FromDevice, 0, s.x.Len()); err != nil {
		t.Fatal(err)
	}
	if got := first(s.x); got != 5 {
		t.Errorf("1 + 2 + 2 = %g", got)
	}
}

// The host's device works on the host's side of a buffer.
func TestHost(t *testing.T) {
	s := newSums(t, nil)
	h := npu.HostOf(s.d)
	if !h.Info().AnyRows || s.d.Info().AnyRows {
		t.Errorf("AnyRows: host %v, array %v", h.Info().AnyRows, s.d.Info().AnyRows)
	}
	e, err := h.Load(t.Context(), sum(sumWidth))
	if err != nil {
		t.Fatal(err)
	}
	args := []npu.Buffer{npu.HostBuffer(s.x), npu.HostBuffer(s.z), npu.HostBuffer(s.y)}
	if err := h.Submit(t.Context(), []npu.Run{{Exec: e, Args: args}}); err != nil {
		t.Fatal(err)
	}
	if got := first(s.y); got != 3 {
		t.Errorf("1 + 2 = %g on the host", got)
	}
	if err := s.y.Sync(npu.FromDevice, 0, 2); err != nil {
		t.Fatal(err)
	}
	if got := first(s.y); got != 0 {
		t.Errorf("the device has %g, which the host never synced", got)
	}
}

// Faults come with the errors that a real device has, and what the user can do about them helps.
func TestFaults(t *testing.T) {
	t.Run("timeout", func(t *testing.T) {
		s := newSums(t, &Options{Faults: &Faults{Timeout: 1}})
		if err := s.submit(t.Context()); !errors.Is(err, npu.ErrTimeout) || !strings.Contains(err.Error(), `"r"`) {
			t.Errorf("%v, want ErrTimeout of run r", err)
		}
	})
	t.Run("lost", func(t *testing.T) {
		s := newSums(t, &Options{Contexts: 1, Faults: &Faults{Lost: 0.5, Seed: 1}})
		lost := false
		for range 20 {
			err := s.submit(t.Context())
			if lost && !errors.Is(err, npu.ErrDeviceLost) {
				t.Fatalf("%v, want ErrDeviceLost until the program has been loaded again", err)
			}
			if !lost && err != nil {
				if !errors.Is(err, npu.ErrDeviceLost) {
					t.Fatal(err)
				}
				lost = true
				continue
			}
			if lost {
				if s.e, err = s.d.Load(t.Context(), sum(sumWidth)); err != nil {
					t.Fatal(err) // the one context is free again
				}
				lost = false
			}
		}
		for s.submit(t.Context()) != nil {
			var err error
			if s.e, err = s.d.Load(t.Context(), sum(sumWidth)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.y.Sync(npu.FromDevice, 0, 2); err != nil {
			t.Fatal(err)
		}
		if got := first(s.y); got != 3 {
			t.Errorf("1 + 2 = %g after the context was lost: buffers outlive it", got)
		}
	})
	t.Run("refused", func(t *testing.T) {
		d := open(t, &Options{Faults: &Faults{Refuse: 1}})
		if _, err := d.Alloc(t.Context(), 64); !errors.Is(err, npu.ErrMemory) {
			t.Errorf("%v, want ErrMemory", err)
		}
	})
	t.Run("flipped", func(t *testing.T) {
		var seen [2][]byte
		for i := range seen {
			s := newSums(t, &Options{Faults: &Faults{Flip: 1, Seed: 5}})
			if err := s.submit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.y.Sync(npu.FromDevice, 0, s.y.Len()); err != nil {
				t.Fatal(err)
			}
			seen[i] = bytes.Clone(s.y.Bytes())
			wrong := 0
			for _, v := range dtype.BFloat16s(s.y.Bytes()) {
				if v.Float32() != 3 {
					wrong++
				}
			}
			if wrong != 1 {
				t.Errorf("%d wrong elements, want one", wrong)
			}
		}
		if !bytes.Equal(seen[0], seen[1]) {
			t.Error("the same seed flipped another bit")
		}
	})
	t.Run("not a probability", func(t *testing.T) {
		if _, err := Open(&Options{Faults: &Faults{Flip: math.NaN()}}); err == nil {
			t.Error("accepted")
		}
	})
}

// There are as many contexts as the driver has; closing a program gives one back.
func TestContexts(t *testing.T) {
	d := open(t, nil)
	var loaded []npu.Executable
	for range xdna2.NPU2().DriverContexts {
		e, err := d.Load(t.Context(), sum(sumWidth))
		if err != nil {
			t.Fatal(err)
		}
		loaded = append(loaded, e)
	}
	if _, err := d.Load(t.Context(), sum(sumWidth)); !errors.Is(err, npu.ErrNoContext) {
		t.Errorf("%v, want ErrNoContext", err)
	}
	for range 2 { // closing twice gives one back
		if err := loaded[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Load(t.Context(), sum(sumWidth)); err != nil {
		t.Error(err)
	}
	if _, err := d.Load(t.Context(), sum(sumWidth)); !errors.Is(err, npu.ErrNoContext) {
		t.Errorf("%v, want ErrNoContext", err)
	}
	if err := d.Submit(t.Context(), []npu.Run{{Exec: loaded[0], Args: make([]npu.Buffer, 3)}}); err == nil {
		t.Error("a closed program ran")
	}
}

// Options.Memory bounds what buffers have together.
func TestMemory(t *testing.T) {
	d := open(t, &Options{Memory: 1000})
	b, err := d.Alloc(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(t.Context(), 401); !errors.Is(err, npu.ErrMemory) {
		t.Errorf("%v, want ErrMemory", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(t.Context(), 1000); err != nil {
		t.Error(err)
	}
}

// A program that does not fit is refused with the rule, the launch and what would fit.
func TestRefused(t *testing.T) {
	d := open(t, nil)
	p := sum(sumWidth)
	p.Map(npu.Mapping{Tile: []int{8192}, Herd: []int{8, 1}})
	_, err := d.Load(t.Context(), p)
	var refused *xdna2.ResourceError
	if !errors.As(err, &refused) || refused.Launch != "add" || refused.Rule == "" || refused.Wanted <= refused.Available || len(refused.Advice) == 0 {
		t.Errorf("%v, want a ResourceError with rule, launch, wanted and available, and advice", err)
	}
}

// A cancelled Submit returns within 100 ms, whatever the device is doing: quantising, multiplying, attending.
func TestCancel(t *testing.T) {
	d := open(t, nil)
	gemm := func(variant string) *npu.Program {
		p := npu.NewProgram("gemm")
		const n = 2048
		p.Launch("product", op.MatMul{M: n, K: n, N: n}, p.In("a", dtype.BF16, n, n), p.In("w", dtype.BF16, n, n), p.Out("y", dtype.BF16, n, n))
		p.Map(npu.Mapping{Variant: variant})
		return p
	}
	attention := npu.NewProgram("attention")
	o := op.Attention{Rows: 4096, Heads: 8, KVHeads: 8, HeadDim: 64}
	var refs []npu.Ref
	for _, x := range o.Operands()[:3] {
		refs = append(refs, attention.In(x.Name, dtype.BF16, x.Shape...))
	}
	attention.Launch("attention", o, append(refs, attention.Out("y", dtype.BF16, 4096, 512))...)
	for _, p := range []*npu.Program{gemm("drain"), gemm("direct"), attention} {
		args := fill(t, d, p)
		e, err := d.place(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{0, 5 * time.Millisecond, 60 * time.Millisecond} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			var runs []npu.Run
			for range 50 {
				runs = append(runs, npu.Run{Exec: e, Args: args})
			}
			go func() { done <- d.Submit(ctx, runs) }()
			time.Sleep(after)
			cancel()
			began := time.Now()
			select {
			case err := <-done:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s cancelled after %v: %v", p.Name, after, err)
				}
				if late := time.Since(began); late > 100*time.Millisecond {
					t.Logf("%s returned %v after it was cancelled", p.Name, late) // other processes may have the cores
				}
			case <-time.After(3 * time.Second):
				t.Fatalf("%s cancelled after %v goes on for 3 s", p.Name, after)
			}
		}
	}
}

// Predicted times are reported as such, and add up to the clock.
func TestClock(t *testing.T) {
	s := newSums(t, nil)
	before := s.d.Clock()
	var spans []npu.Span
	ctx := npu.WithTracer(t.Context(), func(s npu.Span) { spans = append(spans, s) })
	if err := s.submit(ctx); err != nil {
		t.Fatal(err)
	}
	if len(spans) != 2 || spans[0].Name != "r" || spans[0].Category != PredictedRun || spans[1].Name != "r.add" || spans[1].Category != PredictedLaunch {
		t.Fatalf("spans %+v, want the predicted run r and its launch r.add, and nothing measured", spans)
	}
	run := s.d.Clock() - before
	if run != spans[0].Duration || run < 80*time.Microsecond || run > time.Millisecond || spans[1].Duration >= run {
		t.Errorf("the clock advanced by %v, the run is predicted to take %v, its launch %v", run, spans[0].Duration, spans[1].Duration)
	}
	before = s.d.Clock()
	if err := s.x.Sync(npu.ToDevice, 0, s.x.Len()); err != nil {
		t.Fatal(err)
	}
	if s.d.Clock() <= before {
		t.Error("a sync to the device costs nothing")
	}
	if _, err := Open(&Options{Host: "mine"}); err == nil {
		t.Error("an unknown host profile was accepted")
	}
}

// With Options.Timing nothing is computed, and the clock runs all the same.
func TestTimingOnly(t *testing.T) {
	s := newSums(t, &Options{Timing: true})
	before := s.d.Clock()
	if err := s.submit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.y.Sync(npu.FromDevice, 0, 2); err != nil {
		t.Fatal(err)
	}
	if first(s.y) != 0 || s.d.Clock() == before {
		t.Errorf("output %g, clock %v", first(s.y), s.d.Clock()-before)
	}
}

// What does not belong together is refused, and what is closed is not used.
func TestMisuse(t *testing.T) {
	s, other := newSums(t, nil), newSums(t, nil)
	small, err := s.d.Alloc(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := s.d.Alloc(t.Context(), s.x.Len())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
	}
	data := normal(rand.New(rand.NewPCG(1, 1)), 1, sumWidth, 1)
	weight, err := s.d.Const(t.Context(), npu.Source{Layout: npu.T("w"),
		From: tensors{"w": {Type: dtype.BF16, Shape: []int{sumWidth}, Data: dtype.AsBytes(data.bf)}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]npu.Run{
		"a weight as output":       {Exec: s.e, Args: []npu.Buffer{s.x, s.z, weight}},
		"another device's buffer":  {Exec: s.e, Args: []npu.Buffer{s.x, other.z, s.y}},
		"another device's program": {Exec: other.e, Args: []npu.Buffer{s.x, s.z, s.y}},
		"a host buffer":            {Exec: s.e, Args: []npu.Buffer{npu.HostBuffer(s.x), s.z, s.y}},
		"a buffer too small":       {Exec: s.e, Args: []npu.Buffer{s.x, s.z, small}},
		"a closed buffer":          {Exec: s.e, Args: []npu.Buffer{s.x, s.z, closed}},
		"no program":               {Args: []npu.Buffer{s.x, s.z, s.y}},
	} {
		if err := s.d.Submit(t.Context(), []npu.Run{r}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, err := range []error{s.x.Sync(npu.ToDevice, -1, 1), s.x.Sync(npu.ToDevice, 0, s.x.Len()+1), s.x.Sync(npu.FromDevice, math.MaxInt, 2),
		closed.Sync(npu.ToDevice, 0, 1)} {
		if err == nil {
			t.Error("a sync outside the buffer, or of a closed one, was accepted")
		}
	}
	for _, n := range []int{0, -1, math.MaxInt} {
		if _, err := s.d.Alloc(t.Context(), n); err == nil {
			t.Errorf("Alloc(%d) was accepted", n)
		}
	}
	if err := s.d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.submit(t.Context()); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("Submit on a closed device: %v", err)
	}
	if _, err := s.d.Load(t.Context(), sum(sumWidth)); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("Load on a closed device: %v", err)
	}
}

type tensors map[string]npu.Tensor

func (m tensors) Tensor(name string) (npu.Tensor, error) {
	x, ok := m[name]
	if !ok {
		return x, errors.New("no such tensor")
	}
	return x, nil
}

// Weights become BF16, whatever they were; what is made for kernels is shared between buffers of the same weight and freed with the last.
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
		"q8":   {Type: dtype.Q8_0, Shape: []int{1, 32}, Data: append([]byte{0, 0x3c}, bytes.Repeat([]byte{0xfe}, 32)...)}, // 32 times 1 * -2
	}
	a := normal(r, 8, k, 1)
	program := npu.NewProgram("product")
	program.Launch("product", op.MatMul{M: 8, K: k, N: n}, program.In("a", dtype.BF16, 8, k), program.Const("w", dtype.BF16, k, n),
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
		t.Error("the same weight in another type gives other numbers")
	}
	if len(d.weights) != 2 || len(d.converted) != 1 {
		t.Errorf("%d weights and %d converted tensors, want 2 and 1: one for each address", len(d.weights), len(d.converted))
	}
	for _, w := range weights {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(d.weights) != 0 || len(d.converted) != 0 {
		t.Errorf("%d weights and %d converted tensors are left", len(d.weights), len(d.converted))
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

// Goroutines may use a device at once.
func TestConcurrent(t *testing.T) {
	s := newSums(t, &Options{Debug: true})
	done := make(chan error)
	for range 4 {
		go func() {
			e, err := s.d.Load(t.Context(), sum(sumWidth))
			for range 10 {
				if err != nil {
					break
				}
				y, aerr := s.d.Alloc(t.Context(), s.y.Len())
				if err = aerr; err != nil {
					break
				}
				if err = s.d.Submit(t.Context(), []npu.Run{{Exec: e, Args: []npu.Buffer{s.x, s.z, y}}}); err == nil {
					err = y.Sync(npu.FromDevice, 0, y.Len())
				}
				if got := first(y); err == nil && got != 3 {
					err = errors.New("1 + 2 is not 3")
				}
				err = errors.Join(err, y.Close())
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
