package skill

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

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// loose returns options for an evaluation of a [small] deployment. Machines that run tests are
// busy, so measured times must not count.
func loose() *EvaluateOptions {
	return &EvaluateOptions{Positions: 32, Repetitions: 3, tolerance: 100}
}

// failing returns the names of the checks that fail.
func failing(r EvaluationReport) []string {
	var list []string
	for _, c := range r.Checks {
		if !c.OK {
			list = append(list, c.Name)
		}
	}
	return list
}

// inProcess returns an evaluator on a device that is open.
func inProcess(dev npu.Device) Evaluator {
	return func(ctx context.Context, dir string) (EvaluationReport, error) {
		return Evaluate(ctx, dir, dev, loose())
	}
}

// lend returns a device that Close does not close.
func lend(dev npu.Device) func(context.Context) (npu.Device, error) {
	return func(context.Context) (npu.Device, error) { return lent{dev}, nil }
}

type lent struct{ npu.Device }

func (lent) Close() error       { return nil }
func (l lent) Host() npu.Device { return npu.HostOf(l.Device) }

// checkAccepted closes the deployment, and checks that evaluations accept it, alone and as the last
// phase.
func checkAccepted(t *testing.T, d *Deployment, path string, dev npu.Device, opts *Options) {
	t.Helper()
	ctx := context.Background()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Settle(ctx, opts.Dir, lend(dev), inProcess(dev), loose())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
		t.Logf("%s: %s", c.Name, c.Detail)
	}
	if !r.OK || r.Measured == nil || r.Measured.TTFT <= 0 {
		t.Errorf("verdict %v, own figures %+v", r.OK, r.Measured)
	}
	if p, err := plan.Read(filepath.Join(opts.Dir, workspace.FilePlan)); err != nil || p.Status != plan.Accepted {
		t.Errorf("the plan: %+v, %v", p.Status, err)
	}
	page, err := os.ReadFile(filepath.Join(opts.Dir, workspace.FileEvaluation))
	if err != nil || !strings.Contains(string(page), ": accepted") || !strings.Contains(string(page),
		"control kernel") {
		t.Errorf("the report: %s, %v", page, err)
	}
	// Again, as the last phase of a deployment that resumes.
	again := *opts
	again.Evaluate = func(context.Context, string) (EvaluationReport, error) { return r, nil }
	d = deployment(t, path, dev, &again)
	if _, err := d.RunPhase(ctx, Evaluation); err != nil {
		t.Error(err)
	}
	if d.State().PlanStatus() != plan.Accepted || !slices.ContainsFunc(d.State().Phases[Evaluation].Gates,
		func(g GateResult) bool { return g.OK }) {
		t.Errorf("as a phase: %+v", d.State().Phases[Evaluation])
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestMain(m *testing.M) {
	Main(func(_ context.Context, device string) (npu.Device, error) {
		kind, file, _ := strings.Cut(device, " ")
		switch kind {
		case "sim":
			return sim.Open(nil)
		case "stuck":
			if file != "" {
				skilltest.Must(0, os.WriteFile(file, fmt.Appendln(nil, os.Getpid()), 0o600))
			}
			time.Sleep(time.Hour)
		}
		return cpu.Open(&cpu.Options{Threads: 2})
	}, loose())
	if what, file, ok := strings.Cut(os.Getenv(orphanMode), " "); ok {
		fmt.Println(leaveOrphan(what, file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// orphanMode is the variable that makes a test's process run something until it is killed.
const orphanMode = "NPUKIT_TEST_ORPHAN"

// leaveOrphan runs an evaluator that hangs, and that writes its process id to a file.
func leaveOrphan(what, file string) error {
	if what == "deployment" {
		return deployUntilKilled(file)
	}
	if what == "evaluator" {
		_, err := InNewProcess("stuck "+file, nil)(context.Background(), filepath.Dir(file))
		return err
	}
	return errors.New("no such process: " + what)
}

// An evaluation in a new process has the same verdicts with any environment.
func TestInNewProcess(t *testing.T) {
	fresh := deployed(t)
	for name, value := range map[string]string{"NPUKIT_THRESHOLDS": "loose", "NPUKIT_ORACLE": "/elsewhere/oracle",
		"NPUKIT_CACHE": "/nowhere", "NPUKIT_TESTDATA": "/nowhere",
		"GODEBUG": "invalid=1", "GOMAXPROCS": "1", "LD_PRELOAD": "", "LANG": "tlh"} {
		t.Setenv(name, value)
	}
	for name, tc := range map[string]struct {
		attack func(v *victim)
		ok     bool
	}{
		"honest":         {func(*victim) {}, true},
		"a swapped plan": {func(v *victim) { v.swapPlan(wrongLayer(v.t)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := fresh(t)
			tc.attack(v)
			opts := &EvaluateOptions{Model: v.model, Golden: filepath.Join(v.model, "golden.safetensors")}
			r, err := InNewProcess("cpu", opts)(context.Background(), v.dir)
			if err != nil {
				t.Fatal(err)
			}
			if r.OK != tc.ok {
				t.Errorf("accepted: %v, failing %q", r.OK, failing(r))
			}
		})
	}
	if _, err := InNewProcess("cpu", nil)(context.Background(), t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "no workspace") {
		t.Errorf("no workspace: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := InNewProcess("cpu", nil)(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Figures that an evaluator did not reproduce are taken again by the next run, and nothing else is.
func TestFiguresAreMeasuredAgain(t *testing.T) {
	t.Parallel()
	path, dev, opts, ctx := skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t), context.Background()
	evaluations := 0
	opts.Evaluate = func(ctx context.Context, dir string) (EvaluationReport, error) {
		r, err := Evaluate(ctx, dir, dev, loose())
		if evaluations++; evaluations == 1 && err == nil {
			i := slices.IndexFunc(r.Checks, func(c journal.EvaluationCheck) bool { return c.Name == "figures" })
			r.OK, r.Checks[i].OK = false, false
		}
		return r, err
	}
	d := deployment(t, path, dev, opts)
	var failed *PhaseError
	if err := d.Run(ctx); !errors.As(err, &failed) || d.State().PlanStatus() != plan.Failed {
		t.Fatalf("it ends with %v", err)
	}
	before := d.State().Measured
	if err := d.Run(ctx); err != nil || d.State().PlanStatus() != plan.Accepted {
		t.Fatalf("again: %v", err)
	}
	s := d.State()
	if n := len(s.Measured); n == len(before) || s.Measured[n-1].Phase != Finalise ||
		s.Phases[Finalise].Attempts != 2 || s.Phases[Decode].Attempts != 1 {
		t.Errorf("%d measurements, then %d; finalise ran %d times", len(before), n, s.Phases[Finalise].Attempts)
	}
}

// The first plan is measured again in turns with the final one.
func TestFirstPlanBesideTheLast(t *testing.T) {
	t.Parallel()
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t))
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	first := d.State().Measured[0].Value.Plan
	endElsewhere(t, d)
	list := d.State().Measured
	beside := list[len(list)-2]
	if p, err := d.Performance(); err != nil || beside.Phase != Finalise || beside.Value.Plan != first ||
		p.First == nil || p.First.TTFT != beside.Value.TTFT || p.Plan == first {
		t.Errorf("the first plan is not measured beside the last: %+v, %v", p, err)
	}
}

// endElsewhere changes the plan of a deployment on the CPU device if it is the first one, and takes
// the figures of both.
func endElsewhere(t *testing.T, d *Deployment) {
	t.Helper()
	e, err := d.env(Finalise)
	if err != nil {
		t.Fatal(err)
	}
	first := d.State().Measured[0].Value.Plan
	for _, c := range hostChanges(Prefill, e.bench.Recipe.SeqLen) {
		r := e.Recipe()
		if c.Take(&r); d.State().Plan == first && skilltest.Must(e.with(r).bench.PlanHash()) != first {
			skilltest.Must(0, e.SetRecipe(r, "a test"))
		}
	}
	if d.State().Plan == first {
		t.Fatal("no change makes another plan")
	}
	if _, err := d.RunPhase(context.Background(), Finalise); err != nil {
		t.Fatal(err)
	}
}

// An evaluator that does not end when it is interrupted is killed.
func TestStuckEvaluator(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	started := time.Now()
	_, err := InNewProcess("stuck", nil)(ctx, t.TempDir())
	if took := time.Since(started); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second+time.Minute {
		t.Errorf("%v after %v", err, took)
	}
}

// If an evaluator has no verdict, the phase resumes when it is run again, the plan stays a draft,
// and the user is not asked.
func TestBusyIsNoVerdict(t *testing.T) {
	t.Parallel()
	path, dev, opts, ctx := skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t), context.Background()
	busy := fmt.Errorf("%w: a test", ErrBusy)
	opts.Evaluate = func(context.Context, string) (EvaluationReport, error) {
		return EvaluationReport{}, busy
	}
	opts.Ask = func(context.Context, Question) (Choice, error) {
		t.Error("somebody was asked")
		return Choice{Direction: "stop"}, nil
	}
	d := deployment(t, path, dev, opts)
	err := d.Run(ctx)
	var failed *PhaseError
	if !errors.Is(err, ErrBusy) || errors.As(err, &failed) || !strings.Contains(err.Error(), "deploy again") {
		t.Errorf("it ends with %v", err)
	}
	s := d.State()
	if s.Phases[Evaluation].Status != journal.Running || s.PlanStatus() != plan.Draft || len(s.Questions) != 0 {
		t.Errorf("phase 7 is %s, the plan %s, %d questions", s.Phases[Evaluation].Status, s.PlanStatus(),
			len(s.Questions))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := plan.Read(filepath.Join(opts.Dir, workspace.FilePlan)); err != nil || p.Status != plan.Draft {
		t.Errorf("the plan: %v, %v", p, err)
	}
	opts.Evaluate = inProcess(dev)
	d = deployment(t, path, dev, opts)
	if err := d.Run(ctx); err != nil || d.State().PlanStatus() != plan.Accepted ||
		d.State().Phases[Evaluation].Attempts != 1 {
		t.Errorf("once it is quiet: %v, %+v", err, d.State().Phases[Evaluation])
	}
}

// An evaluation that was interrupted resumes with the same verdict. It does not use its notes if
// the plan has changed since.
func TestEvaluationGoesOn(t *testing.T) {
	fresh := deployed(t)
	v, dev := fresh(t), skilltest.OpenCPU(t)
	notes := t.TempDir()
	evaluate := func(v *victim, after int) (EvaluationReport, []string, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var steps []string
		opts := loose()
		opts.Model, opts.Golden, opts.Notes = v.model, filepath.Join(v.model, "golden.safetensors"), notes
		opts.Observe = func(e Event) {
			if name, ok := strings.CutPrefix(e.Text, "gate "); ok && !strings.Contains(name, "holds") {
				steps = append(steps, name)
			}
			if strings.HasPrefix(e.Text, "control") && !strings.Contains(e.Text, "holds") {
				steps = append(steps, e.Text)
			}
			if len(steps) == after {
				cancel()
			}
		}
		r, err := Evaluate(ctx, v.dir, dev, opts)
		return r, steps, err
	}
	whole, all, err := evaluate(v, -1)
	if err != nil || !whole.OK {
		t.Fatalf("%v, %q", err, failing(whole))
	}
	done := 0
	for _, after := range []int{len(all) / 3, len(all) / 3} {
		_, steps, err := evaluate(v, after)
		if !errors.Is(err, context.Canceled) || len(steps) != after {
			t.Fatalf("interrupted: %v, %d steps", err, len(steps))
		}
		done += after - 1 // all but the one that was interrupted
	}
	r, steps, err := evaluate(v, -1)
	if err != nil || !r.OK || len(steps) > len(all)-done+6 { // a kind of kernel is a step with all its controls
		t.Errorf("%v, %q; %d steps of %d, and %d were done", err, failing(r), len(steps), len(all), done)
	}
	names := func(r EvaluationReport) (list []string) {
		for _, c := range r.Checks {
			list = append(list, c.Name)
		}
		return list
	}
	if !slices.Equal(names(r), names(whole)) {
		t.Errorf("its checks are %q, want %q", names(r), names(whole))
	}
	if list := skilltest.Must(filepath.Glob(filepath.Join(notes, "*"+".jsonl"))); len(list) > 0 {
		t.Errorf("with a verdict notes remain: %q", list)
	}
	if _, steps, err := evaluate(v, len(all)/2); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v, %d steps", err, len(steps))
	}
	v.swapPlan(wrongLayer(t))
	r, steps, err = evaluate(v, -1)
	if err != nil || r.OK || len(steps) == 0 || !slices.Contains(steps, all[0]) {
		t.Errorf("a swapped plan: %v, accepted %v, %q", err, r.OK, steps)
	}
}

// gainOf takes the figures of a workspace again, and returns the last check of the figures.
func gainOf(t *testing.T, dir string, dev npu.Device) journal.EvaluationCheck {
	t.Helper()
	opts := loose()
	opts.figures = true
	r, err := Evaluate(context.Background(), dir, dev, opts)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Checks); r.OK || n < 2 || r.Checks[n-1].Name != "computed" {
		t.Fatalf("figures alone are accepted: %+v", r)
	}
	r.Checks = r.Checks[:len(r.Checks)-1]
	last := r.Checks[len(r.Checks)-1]
	for _, c := range r.Checks {
		if !c.OK && c != last {
			t.Fatalf("the attack is not consistent: %+v", c)
		}
	}
	return last
}

// gainAttack makes the first figure of a workspace on the virtual array slower, in all files:
// predictions must agree to the last digits.
func gainAttack(t *testing.T, dir, model string, dev npu.Device) {
	t.Helper()
	fresh := func() *victim {
		v := &victim{t, filepath.Join(t.TempDir(), "w"), model}
		copyTo(t, dir, v.dir)
		return v
	}
	v := fresh()
	if c := gainOf(t, v.dir, dev); c.Name != "gain" || !c.OK || !strings.Contains(c.Detail, "predicted again") ||
		!strings.Contains(c.Detail, "every deployment begins") {
		t.Errorf("as it is: %+v", c)
	}
	first := skilltest.Must(ReadState(v.dir)).Measured[0].Value.Plan
	for name, change := range map[string]func(m *Measurement){
		"a first token that takes longer": func(m *Measurement) { m.TTFT *= 1.01 },
		"a token that takes longer":       func(m *Measurement) { m.TokensPerSec /= 1.01 },
	} {
		v := fresh()
		rewrite(v, journal.KindMeasure, func(m *Measurement) {
			if m.Plan == first {
				change(m)
			}
		})
		if c := gainOf(t, v.dir, dev); c.Name != "gain" || c.OK {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Figures from other kernels or threads that are not reproduced are no verdict: the error names the
// device that is needed.
func TestFiguresOfAnotherDevice(t *testing.T) {
	t.Parallel()
	v, dev := deployed(t)(t), skilltest.OpenCPU(t)
	rewrite(v, journal.KindMeasure, func(m *Measurement) {
		claimTimes(m, 1, 1e-3)
		m.Device = "cpu (64 threads, other)"
	})
	opts := loose()
	opts.Model, opts.figures = v.model, true
	_, err := Evaluate(context.Background(), v.dir, dev, opts)
	if err == nil || !strings.Contains(err.Error(), "no verdict") ||
		!strings.Contains(err.Error(), "cpu (64 threads, other)") || !strings.Contains(err.Error(), dev.Info().Name) {
		t.Errorf("error %v", err)
	}
}
