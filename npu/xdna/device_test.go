package xdna

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/xrt"
)

const width = 64

// addProgram returns a program with y = a + b over one row and an unused scratch argument.
func addProgram(name string) *npu.Program {
	p := npu.NewProgram(name)
	a := p.In("a", dtype.BF16, 1, width)
	b := p.In("b", dtype.BF16, 1, width)
	p.Scratch("dead", dtype.BF16, 1, width)
	y := p.Out("y", dtype.BF16, 1, width)
	p.Launch("add", op.Add{Rows: 1, Width: width}, a, b, y)
	return p
}

// gemvProgram returns a program with y = 2 w x that uses scratch.
func gemvProgram(name string) *npu.Program {
	p := npu.NewProgram(name)
	w := p.Const("w", dtype.BF16, width, width)
	x := p.In("x", dtype.BF16, 1, width)
	s := p.Scratch("s", dtype.BF16, 1, width)
	y := p.Out("y", dtype.BF16, 1, width)
	p.Launch("product", op.MatMul{M: 1, K: width, N: width, TransB: true}, x, w, s)
	p.Launch("twice", op.Add{Rows: 1, Width: width}, s, s, y)
	return p
}

// each returns one binary per program.
func each(programs ...*npu.Program) map[string][]*npu.Program {
	groups := map[string][]*npu.Program{}
	for _, p := range programs {
		groups[p.Name+".elf"] = []*npu.Program{p}
	}
	return groups
}

func load(t *testing.T, d npu.Device, p *npu.Program) npu.Executable {
	t.Helper()
	e, err := d.Load(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, e) })
	return e
}

func closeIt(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// vector returns a buffer with all elements set to value, on both sides.
func vector(t *testing.T, d npu.Device, value float32) npu.Buffer {
	t.Helper()
	b, err := d.Alloc(context.Background(), 2*width)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, b) })
	for i := range dtype.BFloat16s(b.Bytes()) {
		dtype.F32ToBF16(dtype.BFloat16s(b.Bytes())[i:i+1], []float32{value})
	}
	if err := b.Sync(npu.ToDevice, 0, b.Len()); err != nil {
		t.Fatal(err)
	}
	return b
}

// first syncs a buffer and returns its first element.
func first(t *testing.T, b npu.Buffer) float32 {
	t.Helper()
	if err := b.Sync(npu.FromDevice, 0, b.Len()); err != nil {
		t.Fatal(err)
	}
	return dtype.BFloat16s(b.Bytes())[0].Float32()
}

func submit(t *testing.T, d npu.Device, runs ...npu.Run) {
	t.Helper()
	if err := d.Submit(context.Background(), runs); err != nil {
		t.Fatal(err)
	}
}

func add(e npu.Executable, a, b, y npu.Buffer) npu.Run {
	return npu.Run{Exec: e, Args: []npu.Buffer{a, b, nil, y}}
}

// Results do not depend on whether a buffer has separate memory for the device.
func TestSync(t *testing.T) {
	for _, noWrap := range []bool{false, true} {
		t.Run(fmt.Sprintf("copies=%v", noWrap), func(t *testing.T) {
			f := &fake{noWrap: noWrap}
			p := addProgram("add")
			d := f.open(t, each(p), Options{})
			e := load(t, d, p)
			a, b, y := vector(t, d, 2), vector(t, d, 3), vector(t, d, 0)
			submit(t, d, add(e, a, b, y))
			if v := first(t, y); v != 5 {
				t.Errorf("2 + 3 = %v", v)
			}
			// Change half of a and sync a quarter.
			dtype.F32ToBF16(dtype.BFloat16s(a.Bytes())[:width/2], slices.Repeat([]float32{7}, width/2))
			if err := a.Sync(npu.ToDevice, 0, width/2); err != nil {
				t.Fatal(err)
			}
			submit(t, d, add(e, a, b, y))
			first(t, y)
			got := dtype.BFloat16s(y.Bytes())
			for i, want := range map[int]float32{0: 10, width/4 - 1: 10, width / 4: 5, width - 1: 5} {
				if v := got[i].Float32(); v != want {
					t.Errorf("element %d is %v, want %v", i, v, want)
				}
			}
		})
	}
}

// The device reads the output of a host program after a sync.
func TestHostProgramsShareBuffers(t *testing.T) {
	for _, noWrap := range []bool{false, true} {
		f := &fake{noWrap: noWrap}
		p := addProgram("add")
		d := f.open(t, each(p), Options{})
		e, onHost := load(t, d, p), load(t, d.Host(), p)
		a, b, x, y := vector(t, d, 2), vector(t, d, 3), vector(t, d, 0), vector(t, d, 0)
		submit(t, d.Host(), npu.Run{Exec: onHost, Args: []npu.Buffer{npu.HostBuffer(a),
			npu.HostBuffer(b), nil, npu.HostBuffer(x)}})
		if err := x.Sync(npu.ToDevice, 0, x.Len()); err != nil {
			t.Fatal(err)
		}
		submit(t, d, add(e, x, b, y))
		if v := first(t, y); v != 8 {
			t.Errorf("copies=%v: 2 + 3 + 3 = %v", noWrap, v)
		}
	}
}

// tensors are weights for tests.
type tensors map[string]npu.Tensor

func (m tensors) Tensor(name string) (npu.Tensor, error) { return m[name], nil }

// A weight is written and synced once, even if several buffers use it. Its memory is freed with the
// last one, and small weights share a slab.
func TestSharedWeights(t *testing.T) {
	f := &fake{}
	p := gemvProgram("gemv")
	d := f.open(t, each(p), Options{})
	e := load(t, d, p)
	data := make([]float32, width*width)
	for i := range data {
		data[i] = float32(i % width) // row r, column c: c
	}
	raw := make([]byte, 2*len(data))
	dtype.F32ToBF16(dtype.BFloat16s(raw), data)
	half := make([]byte, 2*len(data))
	for i, v := range dtype.BFloat16s(raw) {
		bits := v.Float32()
		if bits != 0 {
			dtype.F32ToBF16(dtype.BFloat16s(half)[i:i+1], []float32{bits / 2})
		}
	}
	from := tensors{"w": {Type: dtype.BF16, Shape: []int{width, width}, Data: raw},
		"half": {Type: dtype.BF16, Shape: []int{width, width}, Data: half}}
	constant := func(layout npu.Layout) npu.Buffer {
		b, err := d.Const(context.Background(), npu.Source{Layout: layout, From: from})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeIt(t, b) })
		return b
	}
	before := f.syncs
	w, again := constant(npu.T("w")), constant(npu.T("w"))
	if n := f.syncs - before; n != 1 {
		t.Errorf("%d syncs for two buffers of one weight, want 1", n)
	}
	turned, other := constant(npu.Layout{Op: "transpose", Args: []npu.Layout{npu.T("w")}}),
		constant(npu.T("half"))
	if f.memories != 1+3 { // a slab and three pieces
		t.Errorf("%d objects for three small weights, want a slab and three pieces", f.memories)
	}
	x, y := vector(t, d, 1), vector(t, d, 0)
	for _, tc := range []struct {
		name string
		w    npu.Buffer
		want float32
	}{{"as it is", w, 2 * 2016}, {"shared", again, 2 * 2016}, {"transposed", turned,
		0}, {"another tensor", other, 2016}} {
		submit(t, d, npu.Run{Exec: e, Args: []npu.Buffer{tc.w, x, nil, y}})
		if v := first(t, y); v != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, v, tc.want)
		}
	}
	closeIt(t, w)
	submit(t, d, npu.Run{Exec: e, Args: []npu.Buffer{again, x, nil, y}})
	if err := d.Submit(context.Background(), []npu.Run{{Exec: e,
		Args: []npu.Buffer{w, x, nil, y}}}); !errors.Is(err, npu.ErrClosed) {
		t.Errorf("a closed weight: %v", err)
	}
	if err := d.Submit(context.Background(), []npu.Run{{Exec: e,
		Args: []npu.Buffer{again, again, nil, again}}}); err == nil {
		t.Error("a weight as an output was accepted")
	}
}

// Runs with equal arguments are created once, and scratch is shared and never synced.
func TestRunsAreReused(t *testing.T) {
	f := &fake{}
	p, q := addProgram("add"), addProgram("add2")
	d := f.open(t, each(p, q), Options{})
	e, e2 := load(t, d, p), load(t, d, q)
	a, b, y, z := vector(t, d, 1), vector(t, d, 1), vector(t, d, 0), vector(t, d, 0)
	submit(t, d, add(e, a, b, y), add(e2, y, b, z))
	memories, syncs := f.memories, f.syncs
	for range 10 {
		submit(t, d, add(e, a, b, y), add(e2, y, b, z))
	}
	if f.runs != 2 || f.memories != memories || f.syncs != syncs {
		t.Errorf("22 dispatches made %d runs, %d more objects and %d syncs; want 2, 0, 0", f.runs,
			f.memories-memories, f.syncs-syncs)
	}
	if v := first(t, z); v != 3 {
		t.Errorf("1 + 1 + 1 = %v", v)
	}
	submit(t, d, add(e, b, a, y))
	if f.runs != 3 {
		t.Errorf("other arguments: %d runs, want 3", f.runs)
	}
}

// Scratch has the largest sizes of any program, independent of the order of arguments. A list may
// hold programs of several sizes.
func TestScratchIsShared(t *testing.T) {
	f := &fake{}
	var programs []*npu.Program
	for i := range 6 {
		p := npu.NewProgram(fmt.Sprint("p", i))
		a, b := p.In("a", dtype.BF16, 1, width), p.In("b", dtype.BF16, 1, width)
		sizes := []int{1, i + 1}
		if i%2 == 1 {
			slices.Reverse(sizes)
		}
		s := p.Scratch("s", dtype.BF16, sizes[0], width)
		r := p.Scratch("r", dtype.BF16, sizes[1], width)
		p.Launch("add", op.Add{Rows: 1, Width: width}, a, b, s.Rows(0, 1))
		p.Launch("copy", op.Cast{Rows: 1, Width: width}, s.Rows(0, 1), r.Rows(0, 1))
		p.Launch("again", op.Cast{Rows: 1, Width: width}, r.Rows(0, 1), p.Out("y", dtype.BF16, 1, width))
		programs = append(programs, p)
	}
	d := f.open(t, map[string][]*npu.Program{"all.elf": programs}, Options{})
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	before := f.memories
	var runs []npu.Run
	for i, p := range programs {
		from, to := x, y
		if i%2 == 1 {
			from, to = y, x
		}
		runs = append(runs, npu.Run{Exec: load(t, d, p), Args: []npu.Buffer{from, one, nil, nil, to}})
	}
	submit(t, d, runs[:2]...)
	submit(t, d, runs[2])
	submit(t, d, runs[3:]...)
	if v := first(t, x); v != 6 {
		t.Errorf("6 additions of 1 give %v", v)
	}
	bytes := 0
	for _, s := range d.scratch.byRank {
		bytes += s.size
	}
	if n := f.memories - before; n != 2 || bytes != 7*2*width {
		t.Errorf("%d memories for scratch, of %d bytes; want 2, as large as the largest "+
			"program's: %d", n, bytes, 7*2*width)
	}
}

// The number of open contexts is limited. The least recently used one is closed, its runs are
// created again, and buffers keep their contents.
func TestContextLimit(t *testing.T) {
	f := &fake{}
	var programs []*npu.Program
	for i := range 13 {
		programs = append(programs, addProgram(fmt.Sprintf("add%d", i)))
	}
	d := f.open(t, each(programs...), Options{})
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	var runs []npu.Run
	for i, p := range programs {
		from, to := x, y
		if i%2 == 1 {
			from, to = y, x
		}
		runs = append(runs, add(load(t, d, p), from, one, to))
	}
	if f.opened != 0 {
		t.Errorf("%d contexts before the first run", f.opened)
	}
	submit(t, d, runs...)
	if v := first(t, y); v != 13 {
		t.Errorf("13 additions of 1 give %v", v)
	}
	if f.most != defaultContexts || f.opened != 13 {
		t.Errorf("%d contexts at once, %d opened; want %d, 13", f.most, f.opened, defaultContexts)
	}
	// The last eight are open: running them again opens none; running another closes only the
	// oldest.
	submit(t, d, runs[5:]...)
	submit(t, d, runs[4])
	submit(t, d, runs[6:]...)
	if f.opened != 14 {
		t.Errorf("%d contexts opened, want 14", f.opened)
	}
}

// If other processes hold contexts, the device runs with fewer than its limit, and returns an error
// if it gets none.
func TestDriverShortOfContexts(t *testing.T) {
	f := &fake{contexts: 2}
	programs := []*npu.Program{addProgram("add0"), addProgram("add1"), addProgram("add2")}
	d := f.open(t, each(programs...), Options{})
	a, y := vector(t, d, 1), vector(t, d, 0)
	var runs []npu.Run
	for _, p := range programs {
		runs = append(runs, add(load(t, d, p), a, a, y))
	}
	submit(t, d, append(runs, runs...)...)
	f.contexts = -1
	if err := d.contexts.dropAll(); err != nil {
		t.Fatal(err)
	}
	f.contexts, f.alive = 1, f.alive+1 // another process has the only one
	err := d.Submit(context.Background(), runs)
	if !errors.Is(err, npu.ErrNoContext) || !strings.Contains(err.Error(), "add0") {
		t.Errorf("no context at all: %v", err)
	}
	f.alive--
}

// Consecutive runs of one context share a list, and an identical list is reused.
func TestRunsShareList(t *testing.T) {
	f := &fake{}
	p, q, r := addProgram("add0"), addProgram("add1"), addProgram("other")
	d := f.open(t, map[string][]*npu.Program{"both.elf": {p, q}, "other.elf": {r}}, Options{})
	e0, e1, e2 := load(t, d, p), load(t, d, q), load(t, d, r)
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	runs := []npu.Run{add(e0, x, one, y), add(e1, y, one, x), add(e0, x, x, y), add(e2, y, one, x),
		add(e1, x, one, y)}
	for range 3 {
		submit(t, d, runs...)
	}
	// By hand: a pass maps x to 2(x+2)+1, and y is one more.
	want := float32(0)
	for range 3 {
		want = 2*(want+2) + 1
	}
	if v := first(t, y); v != want+1 {
		t.Errorf("y = %v, want %v", v, want+1)
	}
	if f.opened != 2 || f.lists != 3 || f.adds != 3 {
		t.Errorf("%d contexts, %d lists executed, %d runs put into lists; want 2, 3, 3", f.opened,
			f.lists, f.adds)
	}
	// A run in the list can also be started alone, and be in a Submit twice.
	submit(t, d, runs[0])
	submit(t, d, runs[0], runs[1], runs[0], runs[1])
	if f.lists != 5 {
		t.Errorf("%d lists, want 5: a run is in a list once", f.lists)
	}
}

// Closing a program of a shared context closes only its own runs.
func TestCloseSharedContext(t *testing.T) {
	f := &fake{}
	p, q := addProgram("add0"), addProgram("add1")
	d := f.open(t, map[string][]*npu.Program{"both.elf": {p, q}}, Options{})
	e0, e1 := load(t, d, p), load(t, d, q)
	one, y := vector(t, d, 1), vector(t, d, 0)
	submit(t, d, add(e0, one, one, y), add(e1, one, one, y))
	closeIt(t, e0)
	if l := d.contexts.alive[0]; len(l.runs) != 1 || len(l.kernels) != 1 {
		t.Errorf("%d runs and %d kernels remain, want those of the other program", len(l.runs),
			len(l.kernels))
	}
	submit(t, d, add(e1, one, one, y))
	if f.opened != 1 || f.runs != 2 {
		t.Errorf("%d contexts opened, %d runs made; want 1, 2", f.opened, f.runs)
	}
	closeIt(t, e1)
	if f.alive != 0 {
		t.Error("the context is still open")
	}
}

// A failed run of a long list is repeated with the same inputs: later runs have not been executed.
func TestRetryInLongList(t *testing.T) {
	const n = 50
	chain := func(t *testing.T, d *Device, e npu.Executable) (runs []npu.Run, x npu.Buffer) {
		x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
		for i := range n {
			from, to := x, y
			if i%2 == 1 {
				from, to = y, x
			}
			r := add(e, from, one, to)
			if i > 1 {
				r.Args[1] = vector(t, d, 1) // otherwise identical to the run before the last
			}
			runs = append(runs, r)
		}
		return runs, x
	}
	p := addProgram("add")
	for _, place := range []int{0, 5, 23, 24, 30, n - 1} {
		f := &fake{fail: map[int]error{place: xrt.ErrFailed}}
		d := f.open(t, each(p), Options{})
		runs, x := chain(t, d, load(t, d, p))
		submit(t, d, runs...)
		if v := first(t, x); v != n || len(f.started) != n+1 {
			t.Errorf("run %d failed once: %d additions of 1 give %v, with %d runs", place, n, v,
				len(f.started))
		}
	}
	if !emulation() {
		return
	}
	d, emu := emulated(t, each(p), Options{})
	runs, x := chain(t, d, load(t, d, p))
	for _, script := range []string{"", "run 6 error", "run 6 abort", "run 30 error"} {
		clear(x.Bytes())
		if err := errors.Join(x.Sync(npu.ToDevice, 0, x.Len()), emu.Script(script)); err != nil {
			t.Fatal(err)
		}
		submit(t, d, runs...)
		if v := first(t, x); v != n {
			t.Errorf("script %q: %d additions of 1 give %v", script, n, v)
		}
	}
}

// If the heap is full, runs are bound to new arguments instead of created.
func TestHeapBudget(t *testing.T) {
	f := &fake{}
	p, q := addProgram("add"), addProgram("big")
	d := f.open(t, each(p, q), Options{})
	e, big := load(t, d, p), load(t, d, q)
	e.(*executable).config.cost = heapBudget / 4
	big.(*executable).config.cost = heapBudget * 2 // its first run is created nevertheless
	one, y := vector(t, d, 1), vector(t, d, 0)
	for i := range 20 {
		x := vector(t, d, float32(i))
		submit(t, d, add(e, x, one, y))
		if v := first(t, y); v != float32(i+1) {
			t.Fatalf("%d + 1 = %v", i, v)
		}
	}
	if f.runs != 4 {
		t.Errorf("%d runs were made, want 4: the heap has room for no more", f.runs)
	}
	submit(t, d, add(big, one, one, y))
	if v := first(t, y); v != 2 || d.contexts.heap != heapBudget*2 {
		t.Errorf("1 + 1 = %v with %d bytes of heap in use, want %d", v, d.contexts.heap, heapBudget*2)
	}
}

// After a lost context the failed run is retried once in a new one. Earlier runs are not repeated.
func TestLostContext(t *testing.T) {
	open := func(t *testing.T, fail map[int]error) (*fake, *Device, []npu.Run, npu.Buffer) {
		f := &fake{fail: fail}
		p, q := addProgram("add0"), addProgram("add1")
		d := f.open(t, map[string][]*npu.Program{"both.elf": {p, q}}, Options{})
		e0, e1 := load(t, d, p), load(t, d, q)
		x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
		return f, d, []npu.Run{{Name: "layer.0", Exec: e0, Args: []npu.Buffer{x, one, nil, y}},
			{Name: "layer.1", Exec: e1, Args: []npu.Buffer{y, one, nil, x}},
			{Name: "layer.2", Exec: e0, Args: []npu.Buffer{x, x, nil, y}}}, y
	}
	for _, cause := range []error{xrt.ErrAborted, xrt.ErrFailed, xrt.ErrDeviceLost} {
		f, d, runs, y := open(t, map[int]error{1: cause})
		submit(t, d, runs...)
		if v := first(t, y); v != 4 || f.opened != 2 ||
			strings.Join(f.started, " ") != "add0 add1 add1 add0" {
			t.Errorf("%v: result %v, %d contexts, ran %v", cause, v, f.opened, f.started)
		}
	}
	f, d, runs, y := open(t, map[int]error{1: xrt.ErrAborted, 2: xrt.ErrAborted})
	err := d.Submit(context.Background(), runs)
	if !errors.Is(err, npu.ErrDeviceLost) || !strings.Contains(err.Error(), "layer.1") ||
		len(f.started) != 3 {
		t.Errorf("lost twice: %v, ran %v", err, f.started)
	}
	submit(t, d, runs...) // the device has recovered
	if v := first(t, y); v != 4 {
		t.Errorf("after recovery: %v, want 4", v)
	}

	f, d, runs, _ = open(t, map[int]error{0: xrt.ErrTimeout})
	if err := d.Submit(context.Background(), runs[:1]); !errors.Is(err, npu.ErrTimeout) ||
		len(f.started) != 1 {
		t.Errorf("timeout: %v, ran %v, want no retry", err, f.started)
	}

	// A run that overwrites its input is not repeated.
	f, d, runs, y = open(t, map[int]error{0: xrt.ErrAborted})
	runs[0].Args[0] = y
	if err := d.Submit(context.Background(), runs[:1]); !errors.Is(err, npu.ErrDeviceLost) ||
		len(f.started) != 1 {
		t.Errorf("in-place run: %v, ran %v", err, f.started)
	}
}

// An error names the run that cannot be added to a list. Runs before it are executed, and the
// context stays usable.
func TestRunThatCannotBeMade(t *testing.T) {
	f := &fake{noRun: "add1"}
	p, q := addProgram("add0"), addProgram("add1")
	d := f.open(t, map[string][]*npu.Program{"both.elf": {p, q}}, Options{})
	e0, e1 := load(t, d, p), load(t, d, q)
	x, y, z, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	runs := []npu.Run{add(e0, x, one, y), add(e0, y, one, z), add(e1, z, one, x)}
	for i := range runs {
		runs[i].Name = fmt.Sprint("layer.", i)
	}
	if err := d.Submit(context.Background(), runs); err == nil ||
		!strings.Contains(err.Error(), "layer.2") {
		t.Errorf("the error does not name the run: %v", err)
	}
	if v := first(t, z); v != 2 {
		t.Errorf("before it, 1 + 1 = %v", v)
	}
	f.noRun = ""
	submit(t, d, runs...)
	if v := first(t, x); v != 3 || f.opened != 1 {
		t.Errorf("1 + 1 + 1 = %v, and %d contexts were opened, want 1", v, f.opened)
	}
}

// Submit returns when its context is done, and later calls wait for the device.
func TestCancelledSubmit(t *testing.T) {
	f := &fake{delay: map[int]time.Duration{1: 500 * time.Millisecond}}
	p := addProgram("add")
	d := f.open(t, each(p), Options{})
	e := load(t, d, p)
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	submit(t, d, add(e, x, one, y))
	ctx := f.untilWorking(t)
	if err := d.Submit(ctx, []npu.Run{add(e, y, one, x)}); !errors.Is(err, context.Canceled) ||
		!f.working() {
		t.Errorf("%v; device busy: %v", err, f.working())
	}
	if err := d.Submit(ctx, []npu.Run{add(e, y, one, x)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a second Submit with the canceled context: %v", err)
	}
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := d.Submit(short, []npu.Run{add(e, y, one, x)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Submit while the device is busy: %v", err)
	}
	x.Bytes()[0] = 1 // waits, because the device may still write x
	if f.working() {
		t.Error("the host accessed the buffer while a command was running")
	}
	submit(t, d, add(e, one, one, y))
	if v := first(t, y); v != 2 {
		t.Errorf("1 + 1 = %v", v)
	}
	if len(f.started) != 3 {
		t.Errorf("%d commands started, want 3", len(f.started))
	}
}

// Another process has exclusive use of the NPU while it holds the lock.
func TestLockBetweenProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "npu.lock")
	other, err := newFileLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	f := &fake{}
	p := addProgram("add")
	d := f.open(t, each(p), Options{Lock: path})
	e := load(t, d, p)
	one, y := vector(t, d, 1), vector(t, d, 0)
	if err := other.lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err = d.Submit(ctx, []npu.Run{add(e, one, one, y)})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) ||
		len(f.started) != 0 {
		t.Fatalf("lock held by another process: %v, %d commands", err, len(f.started))
	}
	unlocked := make(chan error)
	time.AfterFunc(50*time.Millisecond, func() { unlocked <- other.unlock() })
	done := make(chan error)
	go func() { done <- d.Submit(context.Background(), []npu.Run{add(e, one, one, y)}) }()
	if err := errors.Join(<-unlocked, <-done); err != nil {
		t.Fatal(err)
	}
	// The lock is free after a Submit and after an abandoned attempt.
	if err := other.lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := other.unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestLockOfAnotherUser(t *testing.T) {
	if _, err := newFileLock(filepath.Join(t.TempDir(), "no folder", "npu.lock")); err == nil ||
		!strings.Contains(err.Error(), "Options.Lock") {
		t.Errorf("invalid lock path: %v", err)
	}
	path := filepath.Join(t.TempDir(), "npu.lock")
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	l, err := newFileLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.lock(context.Background()), l.unlock(), l.close()); err != nil {
		t.Error(err)
	}
}

// Open returns an error that names the missing part: XRT, or a problem of the machine.
func TestOpenWithoutNPU(t *testing.T) {
	if n, err := xrt.Count(); err == nil && n > 0 {
		t.Skip("there is an NPU")
	}
	if _, err := Open(context.Background(), nil); !errors.Is(err, xrt.ErrUnavailable) &&
		!errors.Is(err, xrt.ErrNoDevice) {
		t.Errorf("Open: %v", err)
	}
}

// Invalid requests are rejected before any command is sent to the device.
func TestInvalidRequests(t *testing.T) {
	f := &fake{}
	p := addProgram("add")
	d := f.open(t, each(p), Options{})
	e := load(t, d, p)
	one, y := vector(t, d, 1), vector(t, d, 0)
	other := (&fake{}).open(t, each(p), Options{})
	foreign := vector(t, other, 1)
	open := npu.NewProgram("rows")
	x := open.In("x", dtype.BF16, op.Rows, width)
	z := open.Out("z", dtype.BF16, op.Rows, width)
	open.Launch("add", op.Add{Rows: op.Rows, Width: width}, x, x, z)
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a program of any rows": {second(d.Load(context.Background(), open)), "fixed shapes"},
		"a program without artefact": {second(d.Load(context.Background(), addProgram("none"))),
			"make verify"},
		"a foreign buffer": {d.Submit(context.Background(),
			[]npu.Run{add(e, one, foreign, y)}), "another device"},
		"a foreign program": {d.Submit(context.Background(),
			[]npu.Run{add(load(t, other, p), one, one, y)}), "another device"},
		"a buffer of 0 bytes":      {second(d.Alloc(context.Background(), 0)), "0 bytes"},
		"a sync beyond the end":    {one.Sync(npu.ToDevice, 2*width-1, 2), "the buffer has"},
		"a sync of negative bytes": {one.Sync(npu.ToDevice, 4, -1), "the buffer has"},
		"a sync to nowhere":        {one.Sync(npu.Direction(2), 0, 1), "Direction(2)"},
		"too many contexts":        {second(newDevice(f, Options{Contexts: -1})), "Contexts"},
		"no folder of artefacts": {second(newDevice(f, Options{Artefacts: t.TempDir()})),
			"build_peano"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, tc.err, tc.want)
		}
	}
	if err := second(d.Load(context.Background(), addProgram("none"))); !errors.Is(err, ErrNoArtefact) {
		t.Errorf("no artefact: %v", err)
	}
	if len(f.started) != 0 {
		t.Errorf("%d commands started", len(f.started))
	}
}

func second[T any](_ T, err error) error { return err }

// After Close every method returns an error, and closing again does nothing.
func TestClosed(t *testing.T) {
	f := &fake{}
	p := addProgram("add")
	d := f.open(t, each(p), Options{})
	e := load(t, d, p)
	one, y := vector(t, d, 1), vector(t, d, 0)
	submit(t, d, add(e, one, one, y))
	closeIt(t, y)
	if err := d.Submit(context.Background(), []npu.Run{add(e, one, one, y)}); !errors.Is(err,
		npu.ErrClosed) {
		t.Errorf("a closed buffer: %v", err)
	}
	if len(d.contexts.alive[0].runs) != 0 {
		t.Error("a run still has a closed buffer")
	}
	closeIt(t, e)
	if f.alive != 0 {
		t.Errorf("%d contexts open after their last program was closed", f.alive)
	}
	if err := d.Submit(context.Background(), []npu.Run{add(e, one, one, one)}); !errors.Is(err,
		npu.ErrClosed) {
		t.Errorf("a closed program: %v", err)
	}
	closeIt(t, d)
	closeIt(t, d)
	for name, err := range map[string]error{
		"Load":   second(d.Load(context.Background(), p)),
		"Alloc":  second(d.Alloc(context.Background(), 4)),
		"Const":  second(d.Const(context.Background(), npu.Source{})),
		"Submit": d.Submit(context.Background(), nil),
	} {
		if !errors.Is(err, npu.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
