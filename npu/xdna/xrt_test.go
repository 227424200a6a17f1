package xdna

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/xrt"
)

// Driver limits and faults, injected at the ioctl level, become the documented errors.
func TestEmulatedFaults(t *testing.T) {
	p, q := addProgram("add0"), addProgram("add1")
	d, emu := emulated(t, map[string][]*npu.Program{"both.elf": {p, q}}, Options{})
	e0, e1 := load(t, d, p), load(t, d, q)
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	if d.copies {
		t.Error("buffers are not mapped process memory")
	}
	runs := []npu.Run{{Name: "layer.0", Exec: e0, Args: []npu.Buffer{x, one, nil, y}},
		{Name: "layer.1", Exec: e1, Args: []npu.Buffer{y, one, nil, x}},
		{Name: "layer.2", Exec: e0, Args: []npu.Buffer{x, x, nil, y}}}
	for _, tc := range []struct {
		script string
		want   error // nil if Submit must succeed
		run    string
	}{
		{"", nil, ""},
		{"run 2 error", nil, ""},
		{"run 1 abort", nil, ""},
		{"run 2 error; run 3 error", xrt.ErrFailed, "layer.1"},
		{"run 2 timeout", npu.ErrTimeout, "layer.1"},
		{"", nil, ""}, // recovered
	} {
		if err := x.Sync(npu.ToDevice, 0, x.Len()); err != nil { // reset to 0
			t.Fatal(err)
		}
		if err := emu.Script(tc.script); err != nil {
			t.Fatal(err)
		}
		err := d.Submit(context.Background(), runs)
		if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.run) {
			t.Errorf("script %q: %v, want %v in %s", tc.script, err, tc.want, tc.run)
		}
		if err == nil {
			if v := first(t, y); v != 4 {
				t.Errorf("script %q: result %v, want 4", tc.script, v)
			}
		}
	}
	if err := emu.Script("run 1 delay 500"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	// the run takes 500
	if err := d.Submit(ctx, runs); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(began) > 400*time.Millisecond {
		t.Errorf("cancelled: %v after %v", err, time.Since(began))
	}
	x.Bytes()[0] = 0
	if took := time.Since(began); took < 450*time.Millisecond {
		t.Errorf("host access to a buffer after %v", took)
	}
	submit(t, d, runs...)
}

// Removing the NPU between or during runs returns an error with advice, and everything can still be
// closed.
func TestRemovedNPU(t *testing.T) {
	p := addProgram("add")
	d, emu := emulated(t, each(p), Options{})
	e := load(t, d, p)
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	submit(t, d, add(e, x, one, y))
	if err := emu.Script("run 1 remove"); err != nil {
		t.Fatal(err)
	}
	lost := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, npu.ErrDeviceLost) || !strings.Contains(err.Error(), "Open it again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	lost("the run that it was taken from", d.Submit(context.Background(), []npu.Run{add(e, x, one, y)}))
	lost("the next run", d.Submit(context.Background(), []npu.Run{add(e, x, one, y)}))
	_, err := d.Alloc(context.Background(), 4096)
	lost("a buffer", err)
	lost("a sync", x.Sync(npu.ToDevice, 0, x.Len()))
}

// The device runs with fewer contexts than its limit if the driver has no more.
func TestEmulatedContextLimit(t *testing.T) {
	var programs []*npu.Program
	for i := range 5 {
		programs = append(programs, addProgram(fmt.Sprintf("add%d", i)))
	}
	d, emu := emulated(t, each(programs...), Options{})
	if err := emu.Script("limit contexts 3"); err != nil {
		t.Fatal(err)
	}
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	var runs []npu.Run
	for i, p := range programs {
		from, to := x, y
		if i%2 == 1 {
			from, to = y, x
		}
		runs = append(runs, add(load(t, d, p), from, one, to))
	}
	for range 2 {
		submit(t, d, runs...)
		if v := first(t, y); v != 5 {
			t.Errorf("5 additions of 1 give %v", v)
		}
		if err := x.Sync(npu.ToDevice, 0, x.Len()); err != nil {
			t.Fatal(err)
		}
	}
	if n := emu.Stats().Contexts; n > 3 {
		t.Errorf("%d contexts", n)
	}
}

// Out of memory is a distinct error with advice, and the device stays usable.
func TestEmulatedOutOfMemory(t *testing.T) {
	p := addProgram("add")
	d, emu := emulated(t, each(p), Options{})
	if err := emu.Script("create_bo * ENOMEM"); err != nil {
		t.Fatal(err)
	}
	_, err := d.Alloc(context.Background(), 1<<20)
	if !errors.Is(err, npu.ErrMemory) || !strings.Contains(err.Error(), xrt.ErrMemory.Error()) {
		t.Errorf("Alloc: %v", err)
	}
	if err := emu.Script(""); err != nil {
		t.Fatal(err)
	}
	x, y := vector(t, d, 1), vector(t, d, 0)
	submit(t, d, add(load(t, d, p), x, x, y))
}

// A failed call returns nil, not an object that panics on Close.
func TestDriverReturnsNilOnError(t *testing.T) {
	p := addProgram("add")
	d, _ := emulated(t, each(p), Options{})
	e := load(t, d, p).(*executable)
	hw, err := e.config.open()
	if err != nil {
		t.Fatal(err)
	}
	k, err := hw.kernel(e.artefact)
	if err != nil {
		t.Fatal(err)
	}
	closeIt(t, closer(k.close))
	closeIt(t, closer(hw.close))
	if r, err := k.run(); r != nil || err == nil {
		t.Errorf("a run of a closed kernel: %v, %v", r, err)
	}
	if l, err := hw.list(); l != nil || err == nil {
		t.Errorf("a list of a closed context: %v, %v", l, err)
	}
}

type closer func() error

func (c closer) Close() error { return c() }

// Hundreds of dispatches use no more device resources than the first.
func TestEmulatedLeaks(t *testing.T) {
	p, q := addProgram("add0"), addProgram("add1")
	d, emu := emulated(t, each(p, q), Options{})
	e0, e1 := load(t, d, p), load(t, d, q)
	x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
	var before xrttest.Stats
	for i := range 400 {
		submit(t, d, add(e0, x, one, y), add(e1, y, one, x))
		if i == 10 {
			before = emu.Stats()
		}
	}
	after := emu.Stats()
	if after.Buffers != before.Buffers || after.HeapBytes != before.HeapBytes ||
		after.Syncs != before.Syncs || after.Contexts != 2 {
		t.Errorf("after 20 dispatches %+v, after 800 %+v", before, after)
	}
}

// An xclbin with a separate instruction stream, IRON's format, loads through the same manifest.
func TestEmulatedXclbin(t *testing.T) {
	emu := xrttest.Open(t)
	p := addProgram("add")
	array := newArray(t)
	array.learn(t, p)
	s := xrttest.NewStream(1)
	for i, a := range p.Args {
		s.Transfer(i, 0, uint32(argBytes(a)))
	}
	emu.Register(s.Bytes(), func(mem [][]byte) error { return array.compute("add", mem[:len(p.Args)]) })
	dir := folder(t, map[string]string{"add.xclbin": string(xrttest.Xclbin()),
		"add.insts.bin": string(s.Bytes()),
		manifestName: `{"entries": {"add": {"output_binary": "add.xclbin",
    "kernel": "MLIR_AIE", "insts": "add.insts.bin"}}}`})
	d, err := Open(context.Background(), &Options{Artefacts: dir, Lock: filepath.Join(dir, "npu.lock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, d) })
	if info := d.Info(); info.Kind != "xdna" || info.Array != "xdna2" || info.AnyRows ||
		!strings.Contains(info.Name, "emulated NPU Strix") {
		t.Errorf("%+v", info)
	}
	e := load(t, d, p)
	x, one, y := vector(t, d, 5), vector(t, d, 1), vector(t, d, 0)
	submit(t, d, add(e, x, one, y), add(e, one, one, x))
	if v, w := first(t, y), first(t, x); v != 6 || w != 2 {
		t.Errorf("5 + 1 = %v, 1 + 1 = %v", v, w)
	}
	// A truncated stream would hang the array.
	if err := os.WriteFile(filepath.Join(dir, "add.insts.bin"), s.Bytes()[:40], 0o666); err != nil {
		t.Fatal(err)
	}
	if err := d.contexts.dropAll(); err != nil {
		t.Fatal(err)
	}
	if err := d.Submit(context.Background(), []npu.Run{add(e, x, one, y)}); err == nil ||
		!strings.Contains(err.Error(), "instruction stream") {
		t.Errorf("truncated stream: %v", err)
	}
}

// Load rejects a binary that does not match its manifest.
func TestBinariesMatchManifest(t *testing.T) {
	p := addProgram("add")
	d, _ := emulated(t, each(p), Options{})
	dir := d.Artefacts().Dirs[0]
	s, err := ReadArtefacts(dir)
	if err != nil {
		t.Fatal(err)
	}
	elf, err := os.ReadFile(s.Get("add").Binary)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		elf, kernel string
		args        int
		want        string
	}{
		"another instance":       {string(elf), "main:sub", 4, "no instance"},
		"another kernel":         {string(elf), "side:add", 4, "no kernel"},
		"an argument more":       {string(elf), "main:add", 5, "4 arguments"},
		"an argument less":       {string(elf), "main:add", 3, "4 arguments"},
		"an ELF that is cut off": {string(elf[:len(elf)/2]), "main:add", 4, "ELF"},
		"no ELF at all":          {"hello", "main:add", 4, "ELF"},
	} {
		path := filepath.Join(t.TempDir(), "p.elf")
		if err := os.WriteFile(path, []byte(tc.elf), 0o666); err != nil {
			t.Fatal(err)
		}
		c, err := d.drv.load(path, true)
		if err == nil {
			err = errors.Join(c.check(&Artefact{Name: "add", Binary: path, Kernel: tc.kernel},
				tc.args), c.close())
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
