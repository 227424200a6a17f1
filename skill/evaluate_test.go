package skill

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
)

// loose are options for an evaluation of what [small] has deployed. Machines that run tests are busy, so that measured times say nothing there.
func loose() *EvaluateOptions {
	return &EvaluateOptions{Positions: 16, Repetitions: 3, tolerance: 100}
}

// failing are the names of the checks that do not hold.
func failing(r EvaluationReport) []string {
	var list []string
	for _, c := range r.Checks {
		if !c.OK {
			list = append(list, c.Name)
		}
	}
	return list
}

// inProcess is an evaluator on a device that is open already.
func inProcess(dev npu.Device) Evaluator {
	return func(ctx context.Context, dir string) (EvaluationReport, error) {
		return Evaluate(ctx, dir, dev, loose())
	}
}

// An honest deployment is accepted, on the software device and on the virtual array, alone and as the last phase, and the evaluator leaves its own figures.
func TestEvaluateAccepts(t *testing.T) {
	for name, tc := range map[string]struct {
		path func(testing.TB) string
		dev  func(*testing.T) npu.Device
	}{
		"cpu": {func(testing.TB) string { return tiny("smollm-mha") }, func(t *testing.T) npu.Device { return openCPU(t) }},
		"sim": {npuTiny, func(t *testing.T) npu.Device { return openSim(t, sim.Options{}) }},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, path, dev, opts := context.Background(), tc.path(t), tc.dev(t), small(t)
			opts.SeqLen = 64
			d := deployment(t, path, dev, opts)
			if err := d.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := Settle(ctx, opts.Dir, dev, inProcess(dev), loose())
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
			if p, err := model.ReadPlan(filepath.Join(opts.Dir, FilePlan)); err != nil || p.Status != model.PlanAccepted {
				t.Errorf("the plan: %+v, %v", p.Status, err)
			}
			page, err := os.ReadFile(filepath.Join(opts.Dir, FileEvaluation))
			if err != nil || !strings.Contains(string(page), ": accepted") || !strings.Contains(string(page), "control kernel") {
				t.Errorf("the report: %s, %v", page, err)
			}
			// Accepted plans can be evaluated again.
			if r, err := Settle(ctx, opts.Dir, dev, inProcess(dev), loose()); err != nil || !r.OK {
				t.Errorf("again: %v, %v", failing(r), err)
			}
			// And as the last phase of a deployment that goes on.
			opts.Evaluate = inProcess(dev)
			d = deployment(t, path, dev, opts)
			if _, err := d.Phase(Evaluation).Run(ctx); err != nil {
				t.Error(err)
			}
			if d.State().PlanStatus() != model.PlanAccepted || !slices.ContainsFunc(d.State().Phases[Evaluation].Gates, func(g GateResult) bool { return g.OK }) {
				t.Errorf("as a phase: %+v", d.State().Phases[Evaluation])
			}
		})
	}
}

func TestMain(m *testing.M) {
	Main(func(_ context.Context, device string) (npu.Device, error) {
		if device == "sim" {
			return sim.Open(&sim.Options{Contexts: 256})
		}
		return cpu.Open(&cpu.Options{Threads: 2})
	}, loose())
	os.Exit(m.Run())
}
