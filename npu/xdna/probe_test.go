package xdna

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// An artefact is opened and run over zeros without a program. Without sizes in the manifest it is
// only opened. Nothing leaks.
func TestProbe(t *testing.T) {
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			p := gemvProgram("gemv")
			d := open(t, each(p), Options{})
			a := *d.Artefacts().Get("gemv")
			got, err := d.ProbeArtefact(context.Background(), &a)
			if err != nil || got.Open <= 0 || got.Run <= 0 {
				t.Errorf("%+v, %v", got, err)
			}
			a.Arguments = nil
			if got, err := d.ProbeArtefact(context.Background(), &a); err != nil || got.Run != 0 {
				t.Errorf("without sizes: %+v, %v", got, err)
			}
			a.Arguments = []int{4}
			if _, err := d.ProbeArtefact(context.Background(), &a); err == nil {
				t.Error("an artefact with too few arguments ran")
			}
			if err := os.Remove(a.Binary); err != nil {
				t.Fatal(err)
			}
			if _, err := d.ProbeArtefact(context.Background(), &a); err == nil {
				t.Error("an artefact without its binary ran")
			}
			to, from, err := d.CopyBandwidth(context.Background(), 1<<20)
			if err != nil || to <= 0 || from <= 0 {
				t.Errorf("bandwidth %v and %v, %v", to, from, err)
			}
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			if _, _, err := d.CopyBandwidth(ended, 1<<20); !errors.Is(err, context.Canceled) {
				t.Errorf("canceled context: %v", err)
			}
		})
	}
}

// A probe returns when its context is done, and other processes get the NPU when it is idle.
func TestCancelledProbe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "npu.lock")
	other, err := newFileLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	f := &fake{delay: map[int]time.Duration{0: 500 * time.Millisecond}}
	p := addProgram("add")
	d := f.open(t, each(p), Options{Lock: path})
	if _, err = d.ProbeArtefact(f.untilWorking(t), d.Artefacts().Get("add")); !errors.Is(err,
		context.Canceled) || !f.working() {
		t.Errorf("%v; device busy: %v", err, f.working())
	}
	if err := other.lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	if f.working() {
		t.Error("another process got the lock while a command was running")
	}
	if err := other.unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ProbeArtefact(context.Background(), d.Artefacts().Get("add")); err != nil {
		t.Error(err)
	}
}

// A program that adds two vectors is recognized without types in its manifest. One with wrong
// results is not.
func TestProbeSum(t *testing.T) {
	sum := func(name string, rows, sumOf int) *npu.Program {
		p := npu.NewProgram(name)
		a, b := p.In("a", dtype.BF16, rows, width), p.In("b", dtype.BF16, rows, width)
		y := p.Out("y", dtype.BF16, rows, width)
		p.Launch("add", op.Add{Rows: rows, Width: width}, a, []npu.Ref{b, a}[sumOf], y)
		return p
	}
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			d := open(t, each(sum("vadd", 3, 0), sum("twice", 3, 1), addProgram("add")), Options{})
			s, err := d.ProbeSum(context.Background(), d.Artefacts().Get("vadd"))
			if err != nil || s.Type != dtype.BF16 || s.Elements != 3*width || s.Run <= 0 {
				t.Errorf("%+v, %v", s, err)
			}
			for name, want := range map[string]string{"twice": "does not add", "add": "three arguments"} {
				if _, err := d.ProbeSum(context.Background(),
					d.Artefacts().Get(name)); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", name, err, want)
				}
			}
		})
	}
}

// Programs compute the same results over the fake and XRT: weights from a slab, scratch, evicted
// contexts, lists.
func TestBothDriversAgree(t *testing.T) {
	for name, open := range openers() {
		t.Run(name, func(t *testing.T) {
			p, q, r := addProgram("add0"), addProgram("add1"), addProgram("other")
			d := open(t, map[string][]*npu.Program{"both.elf": {p, q}, "other.elf": {r}},
				Options{Contexts: 1})
			e0, e1, e2 := load(t, d, p), load(t, d, q), load(t, d, r)
			x, y, one := vector(t, d, 0), vector(t, d, 0), vector(t, d, 1)
			want := float32(0)
			for range 3 {
				submit(t, d, add(e0, x, one, y), add(e1, y, one, x), add(e0, x, x, y),
					add(e2, y, one, x), add(e1, x, one, y))
				want = 2*(want+2) + 1
			}
			if v := first(t, y); v != want+1 {
				t.Errorf("y = %v, want %v", v, want+1)
			}
			// both, other, both, other, both, other, both: consecutive runs share one, across
			// Submits too
			if n := d.contexts.opened; n != 7 {
				t.Errorf("%d contexts were opened, want 7", n)
			}
		})
	}
}
