package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// block is a small model's work: most kinds of commands, with hazards between them.
func block(d *Device, t testing.TB) npu.Executable {
	const dim, heads, kvHeads, hd, hid = 96, 6, 2, 16, 200
	p := npu.NewProgram("block")
	x := p.In("x", bf, op.Rows, dim)
	angles := p.In("angles", f32, op.Rows, hd)
	w := p.In("w", bf, 4*dim+2*hid, dim)
	down := p.In("down", bf, dim, hid)
	norm := p.In("norm", f32, dim)
	kc, vc := p.State("k", bf, kvHeads, op.Capacity, hd), p.State("v", bf, kvHeads, op.Capacity, hd)
	n := p.Scratch("n", bf, op.Rows, dim)
	q, k, v := p.Scratch("q", bf, op.Rows, heads*hd), p.Scratch("kk", bf, op.Rows, kvHeads*hd),
		p.Scratch("vv", bf, op.Rows, kvHeads*hd)
	at, r := p.Scratch("at", bf, op.Rows, dim), p.Scratch("r", bf, op.Rows, dim)
	g, u := p.Scratch("g", bf, op.Rows, hid), p.Scratch("u", bf, op.Rows, hid)
	y := p.Out("y", bf, op.Rows, dim)
	matmul := func(name string, n, k int, a, w, y npu.Ref) {
		p.Launch(name, op.MatMul{M: op.Rows, K: k, N: n, TransB: true}, a, w, y)
	}
	p.Launch("norm1", op.RMSNorm{Rows: op.Rows, Width: dim, Eps: 1e-5}, x, norm, n)
	matmul("q", heads*hd, dim, n, w.Rows(0, heads*hd), q)
	matmul("k", kvHeads*hd, dim, n, w.Rows(dim, kvHeads*hd), k)
	matmul("v", kvHeads*hd, dim, n, w.Rows(2*dim, kvHeads*hd), v)
	p.Launch("q_rope", op.RoPE{Rows: op.Rows, Heads: heads, HeadDim: hd}, q, angles, q)
	p.Launch("k_rope", op.RoPE{Rows: op.Rows, Heads: kvHeads, HeadDim: hd}, k, angles, k)
	p.Launch("k_write", op.KVWrite{Rows: op.Rows, KVHeads: kvHeads, HeadDim: hd}, k, kc)
	p.Launch("v_write", op.KVWrite{Rows: op.Rows, KVHeads: kvHeads, HeadDim: hd}, v, vc)
	p.Launch("attn", op.Attention{Rows: op.Rows, Heads: heads, KVHeads: kvHeads, HeadDim: hd, Cached: true}, q, kc, vc,
		at)
	matmul("o", dim, dim, at, w.Rows(3*dim, dim), r)
	p.Launch("residual1", op.Add{Rows: op.Rows, Width: dim}, x, r, r)
	p.Launch("norm2", op.RMSNorm{Rows: op.Rows, Width: dim, Eps: 1e-5}, r, norm, n)
	matmul("gate", hid, dim, n, w.Rows(4*dim, hid), g)
	matmul("up", hid, dim, n, w.Rows(4*dim+hid, hid), u)
	p.Launch("act", op.SiLUMul{Rows: op.Rows, Width: hid}, g, u, g)
	matmul("down", dim, hid, g, down, n)
	p.Launch("residual2", op.Add{Rows: op.Rows, Width: dim}, r, n, y)
	e, err := d.Load(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// blocks runs block several times over random inputs, each run on the output of the one before, and
// returns the last output and a state.
func blocks(t testing.TB, d *Device, rows []int, times int) []byte {
	e := block(d, t)
	rng := rand.New(rand.NewPCG(5, 5))
	args := make([]npu.Buffer, len(e.Program().Args))
	total := 0
	for _, n := range rows {
		total += n
	}
	for i, a := range e.Program().Args {
		if a.Kind != npu.In && a.Kind != npu.Out {
			continue
		}
		n := (op.Size{Rows: total}).Elements(a.Shape)
		args[i] = alloc(t, d, a.Type.Bytes(n))
		x := random(rng, n)
		for j := range x {
			x[j] /= 8
		}
		encode(args[i].Bytes(), a.Type, x)
	}
	var segs []npu.Segment
	for _, n := range rows {
		segs = append(segs, npu.Segment{Rows: n, State: []npu.Buffer{alloc(t, d, 2*2*2048*16),
			alloc(t, d, 2*2*2048*16)}})
	}
	var runs []npu.Run
	for i := range times {
		a := append([]npu.Buffer(nil), args...)
		if i%2 == 1 {
			a[0], a[len(a)-1] = a[len(a)-1], a[0]
		}
		s := append([]npu.Segment(nil), segs...)
		for j := range s {
			s[j].Pos = i * s[j].Rows
		}
		runs = append(runs, npu.Run{Exec: e, Args: a, Segments: s})
	}
	if err := d.Submit(context.Background(), runs); err != nil {
		t.Fatal(err)
	}
	out := append([]byte(nil), runs[times-1].Args[len(args)-1].Bytes()...)
	return append(out, segs[0].State[1].Bytes()...)
}

func TestThreadsDoNotChangeResults(t *testing.T) {
	for _, kernels := range usable(t) {
		for _, rows := range [][]int{{1}, {7}, {100}, {1, 1, 1}, {3, 40, 1}} {
			var want []byte
			for _, threads := range []int{1, 2, 3} {
				got := blocks(t, open(t, &Options{Threads: threads, Kernels: kernels}), rows, 12)
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, rows %v: %d threads give other bits than 1", kernels, rows, threads)
				}
			}
		}
	}
}

// Scratch memory is not cleared between runs. No result may depend on its content.
func TestRunsRepeatToTheBit(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		first := blocks(t, d, []int{20}, 3)
		blocks(t, d, []int{1, 70}, 2)
		if !bytes.Equal(first, blocks(t, d, []int{20}, 3)) {
			t.Error("the same runs give different bits the second time")
		}
	})
}

func TestCancelInsideOneProduct(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		p := npu.NewProgram("big")
		a, w, y := p.In("a", bf, 2048, 4096), p.In("w", bf, 8192, 4096), p.Out("y", bf, 2048, 8192)
		p.Launch("product", op.MatMul{M: 2048, K: 4096, N: 8192, TransB: true}, a, w, y)
		e, err := d.Load(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		args := []npu.Buffer{alloc(t, d, 2*2048*4096), alloc(t, d, 2*8192*4096), alloc(t, d, 2*2048*8192)}
		run := npu.Run{Exec: e, Args: args}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		var runs []npu.Run
		for range 100 {
			runs = append(runs, run)
		}
		began := time.Now()
		err = d.Submit(ctx, runs)
		if took := time.Since(began); took > time.Second { // the promise is 100 ms on an idle machine
			t.Errorf("a cancelled Submit took %v", took)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		// The device works on, and the next Submit is not cancelled.
		if got := blocks(t, d, []int{1}, 1); got == nil {
			t.Error("nothing")
		}
	})
}

func TestSubmitsFromManyGoroutines(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		want := blocks(t, d, []int{5}, 4)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5 {
					if got := blocks(t, d, []int{5}, 4); !bytes.Equal(got, want) {
						t.Error("another result beside other goroutines")
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestWaitingForTheDeviceObeysTheContext(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	if err := d.lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := d.Submit(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a deadline", err)
	}
	d.unlock()
	if err := d.Submit(context.Background(), nil); err != nil {
		t.Errorf("an empty Submit: %v", err)
	}
}

func TestUseAfterClose(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		ctx := context.Background()
		e := block(d, t)
		b := alloc(t, d, 100)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
		_, allocErr := d.Alloc(ctx, 1)
		_, loadErr := d.Load(ctx, e.Program())
		_, constErr := d.Const(ctx, npu.Source{})
		for i, err := range []error{allocErr, loadErr, constErr, d.Submit(ctx, []npu.Run{{Exec: e}})} {
			if !errors.Is(err, npu.ErrClosed) {
				t.Errorf("call %d after Close: %v, want ErrClosed", i, err)
			}
		}
		b.Bytes()[99] = 1 // stays until it is closed itself
	})
}

func TestCloseWhileInUse(t *testing.T) {
	for _, kernels := range usable(t) {
		d, err := Open(&Options{Threads: 2, Kernels: kernels})
		if err != nil {
			t.Fatal(err)
		}
		p := npu.NewProgram("add")
		x, y := p.In("x", f32, 512, 512), p.Out("y", f32, 512, 512)
		p.Launch("add", op.Add{Rows: 512, Width: 512}, x, x, y)
		e, err := d.Load(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		a, b := alloc(t, d, 4*512*512), alloc(t, d, 4*512*512)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					if err := d.Submit(context.Background(),
						[]npu.Run{{Exec: e, Args: []npu.Buffer{a, b}}}); err != nil {
						if !errors.Is(err, npu.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestOpenAndCloseLeaksNothing(t *testing.T) {
	mappings := func() int {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip("no /proc/self/maps on this system")
		}
		return bytes.Count(b, []byte("\n"))
	}
	kernels := usable(t)
	times := 1000
	if testing.Short() {
		times = 50
	}
	cycle := func(n int) {
		for i := range n {
			d, err := Open(&Options{Threads: 4, Kernels: kernels[i%len(kernels)]})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cycle(20)
	before, goroutines := mappings(), runtime.NumGoroutine()
	cycle(times)
	if after := mappings(); after > before+20 {
		t.Errorf("%d mappings before, %d after %d devices", before, after, times)
	}
	if after := runtime.NumGoroutine(); after > goroutines+2 {
		t.Errorf("%d goroutines before, %d after", goroutines, after)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{Threads: -1}, "Threads"}, {Options{Threads: 1 << 20}, "Threads"},
		{Options{Kernels: "sve"}, `unknown kernels "sve"`},
	} {
		if _, err := Open(&tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want an error about %s", tc.o, err, tc.want)
		}
	}
	d := open(t, nil)
	if d.Info().Threads != defaultThreads || !strings.Contains(d.Info().Name, d.Kernels()) {
		t.Errorf("the default is %+v", d.Info())
	}
}

// NPUKIT_KERNELS is the default of Options.Kernels and its upper limit.
func TestKernelsOfTheEnvironment(t *testing.T) {
	for _, tc := range []struct{ limit, kernels, want, err string }{
		{limit: "go", want: "go"},
		{limit: "go", kernels: "go", want: "go"},
		{limit: "go", kernels: "generic", err: "above the limit NPUKIT_KERNELS=go"},
		{limit: "generic", kernels: "amx", err: "ask for one of go, generic"},
		{limit: "amx", kernels: "go", want: "go"},
		{limit: "go", kernels: "sve", err: `unknown kernels "sve"`},
		{limit: "AVX2", err: `NPUKIT_KERNELS: unknown kernels "AVX2", want one of go, generic`},
		{limit: "avx2,avx512", kernels: "go", err: "NPUKIT_KERNELS"},
	} {
		t.Setenv(KernelsVariable, tc.limit)
		d, err := Open(&Options{Threads: 1, Kernels: tc.kernels})
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%+v: error %v", tc, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", tc, err)
		case d.Kernels() != tc.want:
			t.Errorf("%+v: %s", tc, d.Kernels())
		}
		if err == nil {
			d.Close()
		}
	}
}

// Of all kernels that this machine can execute the variable takes those that it names, not faster
// ones that stand before them.
func TestEnvironmentNamesTheKernelsThatRun(t *testing.T) {
	names := usable(t)
	for _, name := range names {
		t.Setenv(KernelsVariable, name)
		if d := open(t, &Options{Threads: 1}); d.Kernels() != name {
			t.Errorf("%s=%s opens %s", KernelsVariable, name, d.Kernels())
		}
	}
	for _, name := range KernelNames() {
		t.Setenv(KernelsVariable, "")
		d, want := Open(&Options{Threads: 1, Kernels: name})
		if want == nil {
			d.Close()
		}
		t.Setenv(KernelsVariable, name)
		if d, err := Open(&Options{Threads: 1}); (err == nil) != (want == nil) {
			t.Errorf("%s=%s: error %v, want %v", KernelsVariable, name, err, want)
		} else if err == nil {
			d.Close()
		}
	}
}

// With a quota of one core there is one thread on any machine, even if main has raised GOMAXPROCS for
// other goroutines.
func TestDefaultThreadsObeyGOMAXPROCS(t *testing.T) {
	const child = "NPUKIT_TEST_THREADS"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1", "GOMAXPROCS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, procs := range []int{1, 7} {
		runtime.GOMAXPROCS(procs)
		if n := open(t, nil).Info().Threads; n != 1 {
			t.Errorf("%d threads with GOMAXPROCS 1 at the start and %d now, want 1", n, procs)
		}
	}
}

// The trace names every launch once per run, inside the span of its run.
func TestTrace(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		e := block(d, t)
		var mu sync.Mutex
		var spans []npu.Span
		ctx := npu.WithTracer(context.Background(), func(s npu.Span) {
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, s)
		})
		args := make([]npu.Buffer, len(e.Program().Args))
		for i, a := range e.Program().Args {
			if a.Kind == npu.In || a.Kind == npu.Out {
				args[i] = alloc(t, d, a.Type.Bytes((op.Size{Rows: 20}).Elements(a.Shape)))
			}
		}
		state := []npu.Buffer{alloc(t, d, 1<<16), alloc(t, d, 1<<16)}
		var runs []npu.Run
		for i := range 2 {
			runs = append(runs, npu.Run{Name: fmt.Sprintf("layer.%d", i), Exec: e, Args: args,
				Segments: []npu.Segment{{Rows: 20, State: state}}})
		}
		if err := d.Submit(ctx, runs); err != nil {
			t.Fatal(err)
		}
		launches := e.Program().Launches
		if len(spans) != 2*(len(launches)+1) {
			t.Fatalf("%d spans, want %d", len(spans), 2*(len(launches)+1))
		}
		for run := range 2 {
			part := spans[run*(len(launches)+1):]
			whole := part[len(launches)]
			if whole.Name != runs[run].Name || whole.Category != "program" {
				t.Errorf("the run's span is %+v", whole)
			}
			for i, l := range launches {
				s := part[i]
				if s.Name != runs[run].Name+"."+l.Name || s.Category != "op" || s.Duration < 0 ||
					s.Start.Before(whole.Start) ||
					s.Start.Add(s.Duration).After(whole.Start.Add(whole.Duration)) {
					t.Errorf("span %d is %+v, want %s within %+v", i, s, l.Name, whole)
				}
			}
		}
	})
}

// A closed buffer and a closed program say so, as those of every device do.
func TestUseOfWhatIsClosed(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	ctx := context.Background()
	p := npu.NewProgram("add")
	x, y := p.In("x", f32, 4), p.Out("y", f32, 4)
	p.Launch("add", op.Add{Rows: 1, Width: 4}, x, x, y)
	e, err := d.Load(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	in, out := alloc(t, d, 16), alloc(t, d, 16)
	for _, bad := range [][2]int{{-1, 4}, {15, 2}, {1 << 62, 1 << 62}} {
		if err := in.Sync(npu.ToDevice, bad[0], bad[1]); err == nil || strings.Contains(err.Error(), "to -") {
			t.Errorf("a sync of %v: %v", bad, err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.Sync(npu.ToDevice, 0, 4); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("a sync of a closed buffer: %v, want ErrClosed", err)
	}
	in = alloc(t, d, 16)
	run := []npu.Run{{Exec: e, Args: []npu.Buffer{in, out}}}
	if err := d.Submit(ctx, run); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Submit(ctx, run); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("a run of a closed program: %v, want ErrClosed", err)
	}
}

// A failed allocation returns ErrMemory, as on every device.
func TestNoMemory(t *testing.T) {
	m, err := newMemory(1 << 62)
	if !errors.Is(err, npu.ErrMemory) {
		t.Errorf("four exabytes: %v, want ErrMemory", err)
	}
	m.free()
}

// mine is an op that is none of package op's.
type mine struct{ op.Add }

func (mine) Kind() string { return "Mine" }

// An op without a kernel is refused when its program is loaded, not when it runs.
func TestLoadRefusesOpsOfOthers(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	p := npu.NewProgram("p")
	x, y := p.In("x", f32, 4), p.Out("y", f32, 4)
	p.Launch("mine", mine{op.Add{Rows: 1, Width: 4}}, x, x, y)
	if _, err := d.Load(context.Background(), p); err == nil || !strings.Contains(err.Error(), "no kernel for Mine") {
		t.Errorf("an op of another package: %v", err)
	}
}

// Submit checks all arguments before it runs anything, and its error names the bad one.
func TestBadRuns(t *testing.T) {
	d := open(t, &Options{Threads: 1})
	other := open(t, &Options{Threads: 1, Kernels: "go"})
	ctx := context.Background()
	p := npu.NewProgram("embed")
	ids, table, y := p.In("ids", i32, op.Rows), p.Const("table", dtype.Q8_0, 8, 32), p.Out("y", f32, op.Rows, 32)
	p.Launch("embed", op.Embed{Rows: op.Rows, Vocab: 8, Width: 32}, ids, table, y)
	e, err := d.Load(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	weights, err := d.Const(ctx, npu.Source{Layout: npu.T("t"),
		From: tensors{"t": {Type: dtype.BF16, Shape: []int{8, 32}, Data: make([]byte, 8*32*2)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer weights.Close()
	in, out := alloc(t, d, 8), alloc(t, d, 2*32*4)
	closed, err := d.Alloc(ctx, 8)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	segs := []npu.Segment{{Rows: 2}}
	good := npu.Run{Name: "r", Exec: e, Args: []npu.Buffer{in, weights, out}, Segments: segs}
	if err := d.Submit(ctx, []npu.Run{good}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		want string
		args []npu.Buffer
		id   int32
	}{
		{"no buffer", []npu.Buffer{in, weights, nil}, 0},
		{"another device", []npu.Buffer{in, weights, alloc(t, other, 256)}, 0},
		{"used after Close", []npu.Buffer{closed, weights, out}, 0},
		{"needs 256 bytes", []npu.Buffer{in, weights, in}, 0},
		{"Device.Const", []npu.Buffer{in, alloc(t, d, 1024), out}, 0},
		{"read-only", []npu.Buffer{in, weights, weights}, 0},
		{"id 1 is 8, want 0 to 7", []npu.Buffer{in, weights, out}, 8},
		{"id 1 is -1", []npu.Buffer{in, weights, out}, -1},
	} {
		dtype.Int32s(in.Bytes())[1] = tc.id
		bad := good
		bad.Args = tc.args
		err := d.Submit(ctx, []npu.Run{good, bad})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want an error with %q", err, tc.want)
		}
		dtype.Int32s(in.Bytes())[1] = 0
	}
	if err := other.Submit(ctx, []npu.Run{good}); err == nil || !strings.Contains(err.Error(), "another device") {
		t.Errorf("an executable of another device: %v", err)
	}
	if _, err := d.Alloc(ctx, 0); err == nil {
		t.Error("Alloc of nothing succeeded")
	}
	if err := in.Sync(npu.ToDevice, 4, 5); err == nil {
		t.Error("Sync beyond the end succeeded")
	}
}

// tensors is a checkpoint in a test's memory.
type tensors map[string]npu.Tensor

func (m tensors) Tensor(name string) (npu.Tensor, error) {
	t, ok := m[name]
	if !ok {
		return t, fmt.Errorf("no tensor %q", name)
	}
	return t, nil
}

// The choice by timing is the same every time, also on a machine that is busy with something else.
func TestChoiceOfKernelsIsStable(t *testing.T) {
	first := open(t, &Options{Threads: 1}).Kernels()
	for range 5 {
		if k := open(t, &Options{Threads: 1}).Kernels(); k != first {
			t.Errorf("%s, and %s before", k, first)
		}
	}
}

// With more threads than the machine has cores those who wait for each other sleep: every one of
// them is woken, and nobody begins before all others are done.
func TestMoreThreadsThanCores(t *testing.T) {
	const steps, rows, width = 40, 64, 256
	p := npu.NewProgram("chain")
	x := p.In("x", f32, rows, width)
	last := x
	for i := range steps { // each reads the result of the previous one, written by all threads
		kind := npu.Scratch
		if i == steps-1 {
			kind = npu.Out
		}
		next := p.Arg(kind, fmt.Sprint("y", i), f32, rows, width)
		p.Launch(fmt.Sprint(i), op.Add{Rows: rows, Width: width}, x, last, next)
		last = next
	}
	for _, kernels := range usable(t) {
		d := open(t, &Options{Threads: 2*runtime.NumCPU() + 6, Kernels: kernels})
		in, out := alloc(t, d, 4*rows*width), alloc(t, d, 4*rows*width)
		xs := make([]float64, rows*width)
		for i := range xs {
			xs[i] = float64(i % 100)
		}
		encode(in.Bytes(), f32, xs)
		for range 20 {
			clear(out.Bytes())
			submit(t, d, p, slices.Concat([]npu.Buffer{in}, make([]npu.Buffer, steps-1), []npu.Buffer{out})...)
			for i, y := range decode(t, out.Bytes(), f32, rows*width) {
				if y != xs[i]*(steps+1) {
					t.Fatalf("%s: element %d is %v, want %v", kernels, i, y, xs[i]*(steps+1))
				}
			}
		}
	}
}
