package sim

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// sum returns a program of one published kernel: an addition of n elements.
func sum(n int) *npu.Program {
	p := npu.NewProgram("sum")
	x, z := p.In("x", dtype.BF16, n), p.In("z", dtype.BF16, n)
	p.Launch("add", op.Add{Rows: 1, Width: n}, x, z, p.Out("y", dtype.BF16, n))
	p.Map(npu.Mapping{Tile: []int{1024}, Herd: []int{8, 1}})
	return p
}

const sumWidth = 1 << 16

// sums is a loaded sum and its buffers: x is 1 and z is 2 everywhere, on both sides.
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

// first returns the first element on the host side.
func first(b npu.Buffer) float32 { return dtype.BFloat16s(b.Bytes())[0].Float32() }

func set(b npu.Buffer, i int, v float32) { dtype.BFloat16s(b.Bytes())[i] = dtype.FromFloat32(v) }

// Nine programs share eight contexts. The clock shows when one is opened: if the program has none,
// in place of the least recently used one. A closed program frees its context.
func TestContexts(t *testing.T) {
	s := newSums(t, nil)
	programs := []npu.Executable{s.e}
	for range xdna2.NPU2().Contexts {
		e, err := s.d.Load(t.Context(), sum(sumWidth))
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, e)
	}
	run := func(i int) time.Duration {
		t.Helper()
		before := s.d.Clock()
		if err := s.d.Submit(t.Context(), []npu.Run{{Exec: programs[i],
			Args: []npu.Buffer{s.x, s.z, s.y}}}); err != nil {
			t.Fatal(err)
		}
		return s.d.Clock() - before
	}
	load := micros(s.d.clock.model.Host.ContextLoad)
	opens := func(i int, want bool, why string) {
		t.Helper()
		if took := run(i); took >= load != want {
			t.Errorf("program %d took %v, opening a context takes %v: %s", i, took, load, why)
		}
	}
	for i := range 8 {
		opens(i, true, "the first run")
	}
	opens(0, false, "there is room for eight")
	opens(8, true, "the ninth")
	opens(1, true, "evicted by the ninth")
	opens(0, false, "used after the second")
	if err := programs[0].Close(); err != nil {
		t.Fatal(err)
	}
	opens(2, true, "evicted by the second")
	opens(3, false, "a closed program made room")
	if err := s.d.Submit(t.Context(), []npu.Run{{Exec: programs[0],
		Args: []npu.Buffer{s.x, s.z, s.y}}}); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("a closed program: %v", err)
	}
	if s.d.opened != 11 {
		t.Errorf("%d contexts were opened, want 11", s.d.opened)
	}
	if got := first(s.y); got != 0 {
		t.Errorf("%g before a sync", got)
	}
}

// The clock includes every context that was opened, even if the run failed. A Submit that is
// canceled first opens none.
func TestClockOfFailedRuns(t *testing.T) {
	for name, f := range map[string]*Faults{"timeout": {Timeout: 1}, "lost": {Lost: 1},
		"no context": {NoContext: 1}} {
		s := newSums(t, &Options{Faults: f})
		before := s.d.Clock()
		var traced time.Duration
		ctx := npu.WithTracer(t.Context(), func(s npu.Span) { traced += s.Duration })
		if err := s.submit(ctx); err == nil {
			t.Fatalf("%s: no error", name)
		}
		want := time.Duration(s.d.opened) * micros(s.d.clock.model.Host.ContextLoad)
		if got := s.d.Clock() - before; (got-want).Abs() > time.Nanosecond || traced != want ||
			s.d.opened > 1 {
			t.Errorf("%s: clock %v, spans %v; %d contexts take %v", name, got, traced, s.d.opened, want)
		}
	}
	s := newSums(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := npu.WithTracer(ctx, func(s npu.Span) {
		if s.Category == spanRun {
			cancel()
		}
	})
	e, err := s.d.Load(t.Context(), sum(sumWidth))
	if err != nil {
		t.Fatal(err)
	}
	args := []npu.Buffer{s.x, s.z, s.y}
	if err := s.d.Submit(done, []npu.Run{{Exec: s.e, Args: args},
		{Exec: e, Args: args}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled after the first run: %v", err)
	}
	if s.d.opened != 1 {
		t.Errorf("%d contexts, want only that of the run before the cancellation", s.d.opened)
	}
}

// Options.Memory limits buffers and weights together. A weight counts once.
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
	// 800 bytes in BF16
	w := npu.Source{Layout: npu.T("w"), From: tensors{"w": {Type: dtype.F32, Shape: []int{20, 20},
		Data: make([]byte, 4*400)}}}
	var weights []npu.Buffer
	for range 2 {
		b, err := d.Const(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, b)
	}
	if _, err := d.Alloc(t.Context(), 201); !errors.Is(err, npu.ErrMemory) {
		t.Errorf("with a weight: %v, want ErrMemory", err)
	}
	for _, b := range weights {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = d.Alloc(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Const(t.Context(), w); !errors.Is(err, npu.ErrMemory) || len(d.weights.byMemory) != 0 ||
		len(d.weights.converted) != 0 {
		t.Errorf("weight over the limit: %v, want ErrMemory; %d weights and %d converted tensors "+
			"remain", err, len(d.weights.byMemory), len(d.weights.converted))
	}
}

// A program that does not fit is rejected with the rule, the launch and what would fit.
func TestRefused(t *testing.T) {
	d := open(t, nil)
	p := sum(sumWidth)
	p.Map(npu.Mapping{Tile: []int{8192}, Herd: []int{8, 1}})
	_, err := d.Load(t.Context(), p)
	var refused *xdna2.ResourceError
	if !errors.As(err, &refused) || refused.Launch != "add" || refused.Rule == "" ||
		refused.Wanted <= refused.Available ||
		len(refused.Advice) == 0 {
		t.Errorf("%v, want a ResourceError with rule, launch, wanted and available, and advice", err)
	}
}

// A canceled Submit returns within 100 ms during quantization, GEMM and attention.
func TestCancel(t *testing.T) {
	d := open(t, nil)
	gemm := func(variant string) *npu.Program {
		p := npu.NewProgram("gemm")
		const n = 2048
		a, w := p.In("a", dtype.BF16, n, n), p.In("w", dtype.BF16, n, n)
		p.Launch("product", op.MatMul{M: n, K: n, N: n}, a, w, p.Out("y", dtype.BF16, n, n))
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
					// other processes may occupy the cores
					t.Logf("%s returned %v after cancellation", p.Name, late)
				}
			case <-time.After(3 * time.Second):
				t.Fatalf("%s canceled after %v still runs 3 s later", p.Name, after)
			}
		}
	}
}

// Predicted spans have their own categories and add up to the clock.
func TestClock(t *testing.T) {
	s := newSums(t, nil)
	before := s.d.Clock()
	var spans []npu.Span
	ctx := npu.WithTracer(t.Context(), func(s npu.Span) { spans = append(spans, s) })
	if err := s.submit(ctx); err != nil {
		t.Fatal(err)
	}
	if len(spans) != 3 || spans[0].Name != "sum" || spans[0].Category != spanContext ||
		spans[1].Name != "r" ||
		spans[1].Category != spanRun || spans[2].Name != "r.add" ||
		spans[2].Category != spanLaunch {
		t.Fatalf("spans %+v, want the predicted context of sum, run r and launch r.add, nothing "+
			"measured", spans)
	}
	open, run, launch := spans[0].Duration, spans[1].Duration, spans[2].Duration
	if took := s.d.Clock() - before; (took-open-run).Abs() > time.Nanosecond ||
		run < 80*time.Microsecond || run > time.Millisecond || launch >= run {
		t.Errorf("clock advanced by %v; predicted %v for the context, %v for the run, %v for its "+
			"launch", took, open, run, launch)
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

// With Options.Timing nothing is computed, and the clock still advances.
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

// With Options.Timing no weight is quantized and no scratch memory is allocated.
func TestTimingMakesNothing(t *testing.T) {
	d := open(t, &Options{Timing: true})
	p := prefillFFN()
	args := fill(t, d, p)
	for i, a := range p.Args {
		if a.Kind == npu.Const {
			n := (op.Size{}).Elements(a.Shape)
			w, err := d.Const(t.Context(), npu.Source{Layout: npu.T("w"),
				From: tensors{"w": {Type: dtype.BF16, Shape: a.Shape, Data: make([]byte, 2*n)}}})
			if err != nil {
				t.Fatal(err)
			}
			args[i] = w
		}
		if a.Kind == npu.Scratch {
			args[i] = nil
		}
	}
	e, err := d.place(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Submit(t.Context(), []npu.Run{{Exec: e, Args: args}}); err != nil {
		t.Fatal(err)
	}
	forms := 0
	for _, w := range d.weights.byMemory {
		forms += len(w.forms)
	}
	if forms != 0 || len(d.scratch) != 0 {
		t.Errorf("%d quantized weights and %d scratch buffers, want none", forms, len(d.scratch))
	}
}

// Mismatched and closed objects are rejected.
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
	for _, err := range []error{s.x.Sync(npu.ToDevice, -1, 1), s.x.Sync(npu.ToDevice, 0, s.x.Len()+1),
		s.x.Sync(npu.FromDevice, math.MaxInt, 2), s.x.Sync(npu.FromDevice, 2,
			math.MaxInt), s.x.Sync(2, 0, 1),
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

// A device may be used by several goroutines.
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
				if err = s.d.Submit(t.Context(), []npu.Run{{Exec: e,
					Args: []npu.Buffer{s.x, s.z, y}}}); err == nil {
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
