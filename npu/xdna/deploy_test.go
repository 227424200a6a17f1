package xdna

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill"
)

// toolchain is a device that compiles every program when it is loaded, as with a compile command.
// Programs of different plans have the same names, but artefacts are found by name, so each gets a
// unique one.
type toolchain struct {
	*Device
	t     *testing.T
	dir   string
	array *array
	emu   *xrttest.Emulator // nil over the fake driver

	mu     sync.Mutex
	number uint32
}

func (c *toolchain) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	description, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	q := *p
	q.Name = fmt.Sprintf("%s-%.6x", p.Name, sha256.Sum256(description))
	q.Instance = instanceOf(p)
	if c.artefacts.byName[q.Name] == nil {
		c.compile(&q)
	}
	return c.Device.Load(ctx, &q)
}

func (c *toolchain) compile(p *npu.Program) {
	a := &Artefact{Name: p.Name, Binary: filepath.Join(c.dir, p.Name+".elf"), Kernel: "main:" + p.Instance}
	binary := []byte("fake")
	s := xrttest.NewELFStream(1000 + c.number) // after those that the device was opened with
	c.number++
	for i, arg := range p.Args {
		a.Arguments = append(a.Arguments, argBytes(arg))
		s.Transfer(i, 0, uint32(argBytes(arg)))
	}
	c.array.learn(c.t, p)
	if c.emu != nil {
		c.emu.Register(s.Bytes(), func(mem [][]byte) error { return c.array.compute(p.Name, mem) })
		binary = xrttest.FullELF(c.t, len(p.Args), xrttest.Instance{Name: p.Instance, Stream: s})
	}
	if err := os.WriteFile(a.Binary, binary, 0o666); err != nil {
		c.t.Error(err)
	}
	c.artefacts.byName[p.Name] = a
}

// toolchains returns the devices with a toolchain under test.
func toolchains() map[string]func(t *testing.T, p *npu.Program) *toolchain {
	if emulation() {
		return map[string]func(t *testing.T, p *npu.Program) *toolchain{"xrt": func(t *testing.T,
			p *npu.Program) *toolchain {
			d, emu := emulated(t, each(p), Options{})
			return &toolchain{Device: d, t: t, dir: t.TempDir(), array: newArray(t), emu: emu}
		}}
	}
	return map[string]func(t *testing.T, p *npu.Program) *toolchain{"fake": func(t *testing.T,
		p *npu.Program) *toolchain {
		f := &fake{}
		d := f.open(t, each(p), Options{})
		return &toolchain{Device: d, t: t, dir: t.TempDir(), array: f.array}
	}}
}

// A small model is deployed on the device through all phases by measured times, and the evaluation
// finds no problem, except in its timings if the machine is busy.
func TestDeployment(t *testing.T) {
	if os.Getenv("NPUKIT_LONG") == "" {
		t.Skip("takes ten minutes: set NPUKIT_LONG=1")
	}
	ctx, path := context.Background(), t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64,
		FFN: 256, Vocab: 256, Context: 512, Tie: true}
	if err := ckptgen.Write(path, spec, 7); err != nil {
		t.Fatal(err)
	}
	for how, open := range toolchains() {
		t.Run(how, func(t *testing.T) {
			dev := open(t, onDevice(npuPlan(t, path, rows))[0])
			opts := &skill.Options{Dir: t.TempDir(), SeqLen: rows, Positions: 32, Repetitions: 3,
				Observe: func(e skill.Event) {
					if e.What != "step" {
						t.Logf("%s %s: %.200s", e.Phase, e.What, e.Text)
					}
				}}
			d, err := skill.NewDeployment(path, dev, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer closeIt(t, d)
			if err := d.Run(ctx); err != nil {
				t.Fatal(err)
			}
			kept := 0
			for _, a := range d.State().Attempts {
				if a.Value.Outcome == skill.Kept {
					kept++
				}
				if m := a.Value.After; m != nil && (m.Predicted || a.Value.Turns == nil) {
					t.Errorf("%s: device time %+v", a.Value.Step, m)
				}
			}
			if p, _ := d.State().Next(); p != skill.Evaluation || len(d.State().Attempts) < 15 {
				t.Errorf("stopped in %s after %d changes, %d kept", p,
					len(d.State().Attempts), kept)
			}
			r, err := skill.Evaluate(ctx, opts.Dir, dev,
				&skill.EvaluateOptions{Positions: opts.Positions, Repetitions: opts.Repetitions})
			if errors.Is(err, skill.ErrBusy) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Checks {
				if !c.OK && c.Name != "figures" && c.Name != "gain" {
					t.Errorf("%s: %s", c.Name, c.Detail)
				}
			}
			if r.Measured == nil {
				t.Error("it was not measured")
			}
		})
	}
}

// Without artefacts a deployment stops in the first phase that loads a program, with an error that
// names the program and how to build it.
func TestDeploymentWithoutArtefacts(t *testing.T) {
	path := t.TempDir()
	spec := specs()["llama-split"]
	if err := ckptgen.Write(path, spec, 7); err != nil {
		t.Fatal(err)
	}
	other := *onDevice(npuPlan(t, path, rows))[0]
	other.Name = "another"
	for how, open := range modelOpeners() {
		t.Run(how, func(t *testing.T) {
			d, err := skill.NewDeployment(path, open(t, each(&other), Options{}),
				&skill.Options{Dir: t.TempDir(), SeqLen: rows, Positions: 32, Repetitions: 3})
			if err != nil {
				t.Fatal(err)
			}
			defer closeIt(t, d)
			err = d.Run(context.Background())
			var phase *skill.PhaseError
			if !errors.As(err, &phase) || phase.Report.Phase > skill.KernelValidation ||
				!strings.Contains(err.Error(), "--compile") {
				t.Errorf("stopped with %v", err)
			}
			if d.State().PlanStatus() == plan.Accepted ||
				len(d.State().Attempts) > 0 {
				t.Error("it continued")
			}
		})
	}
}
