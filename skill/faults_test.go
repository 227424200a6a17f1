package skill

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// Weights that the array's programs cannot read fail phase 0, by name.
func TestOtherWeightTypes(t *testing.T) {
	opts := small(t)
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenSim(t, sim.Options{}), opts) // FP32
	err := d.Run(context.Background())
	var phase *PhaseError
	if !errors.As(err, &phase) || phase.Report.Phase != Reference {
		t.Fatalf("it ends with %v", err)
	}
}

// ready returns a deployment on the virtual array with a right plan, in the phase of the full
// model.
func ready(t *testing.T) (*Deployment, *Env) {
	t.Helper()
	opts := quick(t)
	opts.Observe = nil
	d := deployment(t, skilltest.ArrayModel(t), skilltest.OpenSim(t, sim.Options{}), opts)
	if _, err := d.RunPhase(context.Background(), Reference); err != nil {
		t.Fatal(err)
	}
	e, err := d.env(FullModel)
	if err != nil {
		t.Fatal(err)
	}
	return d, e
}

// diagnosed asks the skills about a gate of the model that fails, and returns the first that finds a
// cause.
func diagnosed(t *testing.T, d *Deployment, e *Env, gate string) (skill string, o Outcome) {
	t.Helper()
	ctx := context.Background()
	list := gates.OfModel(e.bench)
	v, err := list[slices.IndexFunc(list, func(g gates.Gate) bool { return g.Name == gate })].Check(ctx, e.bench)
	if err != nil {
		t.Fatal(err)
	}
	if v.OK() {
		t.Fatalf("the gate passes:\n%v", v)
	}
	s, err := e.symptomOf(ctx, GateResult{Name: journal.GatePaper, Reasons: gates.Reasons(v)})
	if err != nil {
		t.Fatal(err)
	}
	for _, sk := range d.skills {
		if !sk.Trigger(*s) {
			continue
		}
		if o, err = e.ask(ctx, sk, *s); err != nil {
			t.Fatal(err)
		}
		if o.Cause != "" {
			return sk.Name(), o
		}
	}
	t.Fatalf("no skill has a cause for %s", s)
	return "", o
}

// spoil replaces the plan of the recipe.
func spoil(t *testing.T, e *Env, change func(p *plan.Plan)) {
	t.Helper()
	planned, err := e.bench.Models.Plan(e.bench.Recipe)
	if err != nil {
		t.Fatal(err)
	}
	p := *planned.Plan
	p.Prefill = append([]plan.Pass(nil), p.Prefill...)
	pass := &p.Prefill[0]
	pass.Steps = append([]plan.Step(nil), pass.Steps...)
	for i := range pass.Steps {
		pass.Steps[i].Args = append([]plan.Binding(nil), pass.Steps[i].Args...)
	}
	change(&p)
	planned.Plan = &p
	if planned.Hash, err = models.PlanHash(&p); err != nil {
		t.Fatal(err)
	}
}

// A plan that binds one layer's weight in another layer is found by its names.
func TestWrongLayerKey(t *testing.T) {
	d, e := ready(t)
	spoil(t, e, func(p *plan.Plan) {
		var first npu.Layout
		for _, s := range p.Prefill[0].Steps {
			for i, b := range s.Args {
				if b.Const == nil || !strings.Contains(b.Const.String(), "mlp.down_proj") {
					continue
				}
				if s.Name == "layer.0" {
					first = *b.Const
				} else {
					s.Args[i].Const = &first
				}
			}
		}
	})
	name, o := diagnosed(t, d, e, journal.GatePaper)
	if name != (bufferCorruption{}).Name() || !strings.HasPrefix(o.Cause, "wrong layer key") ||
		!strings.Contains(o.Evidence, "layers.0.mlp.down_proj") {
		t.Errorf("%s: %+v", name, o)
	}
}

// deaf is a device that ignores syncs to it after the first ones of a buffer: it computes from
// stale data.
type deaf struct {
	npu.Device
	on *bool
}

func (d deaf) Host() npu.Device { return npu.HostOf(d.Device) }

func (d deaf) Alloc(ctx context.Context, n int) (npu.Buffer, error) {
	b, err := d.Device.Alloc(ctx, n)
	return &deafBuffer{Buffer: b, on: d.on}, err
}

func (d deaf) Submit(ctx context.Context, runs []npu.Run) error {
	for i := range runs {
		for j, b := range runs[i].Args {
			if x, ok := b.(*deafBuffer); ok {
				runs[i].Args[j] = x.Buffer
			}
		}
	}
	return d.Device.Submit(ctx, runs)
}

type deafBuffer struct {
	npu.Buffer
	on    *bool
	heard int
}

func (b *deafBuffer) HostBuffer() npu.Buffer { return npu.HostBuffer(b.Buffer) }

func (b *deafBuffer) Sync(dir npu.Direction, offset, n int) error {
	if dir == npu.ToDevice && *b.on {
		if b.heard++; b.heard > 1 {
			return nil
		}
	}
	return b.Buffer.Sync(dir, offset, n)
}

// Inputs that are synced only once are found to be stale.
func TestStaleBuffer(t *testing.T) {
	on := false
	opts := quick(t)
	opts.Observe = nil
	d := deployment(t, skilltest.ArrayModel(t), deaf{skilltest.OpenSim(t, sim.Options{}), &on}, opts)
	if _, err := d.RunPhase(context.Background(), Reference); err != nil {
		t.Fatal(err)
	}
	e, err := d.env(FullModel)
	if err != nil {
		t.Fatal(err)
	}
	on = true
	name, o := diagnosed(t, d, e, journal.GateDeterminism)
	if name != (bufferCorruption{}).Name() || !strings.HasPrefix(o.Cause, "stale buffer") {
		t.Errorf("%s: %+v", name, o)
	}
}

// The remedy for attention that hangs is attention on the host, whose kernel reads no cache: the
// kernels of such a plan pass.
func TestAttentionOnTheHostIsValidated(t *testing.T) {
	t.Parallel()
	d, e := ready(t)
	r := e.Recipe()
	r.Prefill.Attention = plan.OnHost
	if err := e.SetRecipe(r, "the fused attention kernel hangs"); err != nil {
		t.Fatal(err)
	}
	if report, err := d.RunPhase(context.Background(), KernelValidation); err != nil || !report.Passed {
		t.Fatalf("%+v, %v", report, err)
	}
	if !slices.ContainsFunc(d.State().Kernels, func(k journal.KernelNote) bool {
		return k.Kind == "Attention" &&
			k.On == plan.OnHost && k.OK
	}) {
		t.Error("no attention on the host was tried")
	}
}

// A virtual array that checks syncs names the one that is missing, and the skill reports it.
func TestNamedSync(t *testing.T) {
	_, e := ready(t)
	s := Symptom{Phase: FullModel, Err: &sim.CoherencyError{Run: "layer.0", Program: "q", Arg: "x"},
		Recipe: e.bench.Recipe}
	if !(bufferCorruption{}).Trigger(s) {
		t.Fatal("not triggered")
	}
	o, err := e.ask(context.Background(), bufferCorruption{}, s)
	if err != nil || !strings.HasPrefix(o.Cause, "missing sync") || !strings.Contains(o.Evidence, `"x"`) {
		t.Errorf("%+v, %v", o, err)
	}
}

// A merge that the array refuses is distinguished from a kernel that it refuses alone.
func TestRoutingCongestion(t *testing.T) {
	_, e := ready(t)
	merged := e.Recipe()
	merged.Prefill.MergePost = true
	s := Symptom{Phase: Prefill, Err: &xdna2.ResourceError{Rule: "R-BD-1"}, Error: "R-BD-1", Recipe: merged}
	if !(routingCongestion{}).Trigger(s) {
		t.Fatal("not triggered by a refusal")
	}
	o, err := e.ask(context.Background(), routingCongestion{}, s)
	if err != nil || !strings.Contains(o.Cause, "prefill after attention") || !o.Fixed {
		t.Errorf("merged: %+v, %v", o, err)
	}
	s.Recipe = e.Recipe()
	if o, err = e.ask(context.Background(), routingCongestion{}, s); err != nil ||
		!strings.HasPrefix(o.Cause, "placement") {
		t.Errorf("apart: %+v, %v", o, err)
	}
}

// Faults of the virtual array end in a right deployment, or in one that did not pass: never in a
// wrong one.
func TestSimFaults(t *testing.T) {
	t.Parallel()
	path := skilltest.ArrayModel(t)
	for name, f := range map[string]sim.Faults{
		"context lost now and then": {Seed: 3, Lost: 0.002},
		"hangs now and then":        {Seed: 5, Timeout: 0.002},
		"always hangs":              {Seed: 1, Timeout: 1},
		"memory refused":            {Seed: 1, Refuse: 1},
	} {
		t.Run(name, func(t *testing.T) {
			opts := quick(t)
			opts.Observe = nil
			d := deployment(t, path, skilltest.OpenSim(t, sim.Options{Faults: &f}), opts)
			var err error
			for _, p := range Phases()[:Prefill] {
				if _, err = d.RunPhase(context.Background(), p); err != nil {
					break
				}
			}
			s := d.State()
			t.Logf("%v; %d issues", err, len(s.Issues))
			for _, i := range s.Issues {
				t.Logf("%s: %s", i.Phase, i.Value.Cause)
			}
			var phase *PhaseError
			if err != nil && !errors.As(err, &phase) {
				t.Errorf("it ends with %v", err)
			}
			if err != nil && len(s.Questions) == 0 && len(s.Issues) == 0 {
				t.Error("it failed, and nobody was told why")
			}
			if (f.Timeout == 1 || f.Refuse == 1) && err == nil {
				t.Error("a device that never works has passed")
			}
		})
	}
}

// The programs of a plan take turns if there are more of them than hardware contexts. That is a
// note, and no failure.
func TestMoreProgramsThanContexts(t *testing.T) {
	_, e := ready(t)
	p, err := e.Plan()
	if err != nil {
		t.Fatal(err)
	}
	over := p.CheckContexts(xdna2.NPU2())
	if over == nil {
		t.Fatal("the first plan has few programs")
	}
	v, err := checkPlanFile(e)
	if err != nil || !v.OK() {
		t.Fatalf("%v, %v", v, err)
	}
	if line, _, _ := gates.Describe(v); !strings.Contains(line, "note: ") || !strings.Contains(line, over.Error()) {
		t.Errorf("it does not say %q: %s", over, line)
	}
}
