package skill

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/workspace"
	"github.com/npukit/npukit/skill/manual"
)

// quick returns options for a deployment that takes seconds.
func quick(t testing.TB) *Options {
	return &Options{Dir: t.TempDir(), SeqLen: 96, Positions: 48, Repetitions: 3, plain: testing.Short(),
		Observe: func(e Event) { t.Logf("%s %s: %s", e.Phase, e.What, e.Text) }}
}

func deployment(t testing.TB, path string, dev npu.Device, opts *Options) *Deployment {
	t.Helper()
	d, err := NewDeployment(path, dev, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// checkDeployed checks a finished deployment.
func checkDeployed(t *testing.T, d *Deployment) {
	t.Helper()
	for _, p := range d.State().Phases[:Evaluation] {
		if p.Status != journal.Passed {
			t.Errorf("phase %s is %s: %s", p.Phase, p.Status, p.Reason)
		}
		if len(p.Gates) == 0 && p.Status == journal.Passed {
			t.Errorf("phase %s passed without a gate", p.Phase)
		}
		for _, g := range p.Gates {
			name := g.Name
			if journal.IsKernelGate(name) {
				name = journal.GateKernel + "/..."
			}
			if !slices.ContainsFunc(p.Phase.Info().Gates, func(i journal.GateInfo) bool { return i.Name == name }) {
				t.Errorf("gate %s of phase %s is not in its description", g.Name, p.Phase)
			}
		}
	}
	dir := d.ws.Dir
	for _, name := range []string{"plan.json", "plan.md", "progress.md", "issues.md", "lessons.md", "perf_opt_traj.md",
		"phase_timing.json", "thresholds.json",
		"performance.json", "performance.md", "journal.jsonl", "kernels/matmul.md"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	p, err := plan.Read(filepath.Join(dir, workspace.FilePlan))
	if err != nil {
		t.Fatal(err)
	}
	if p.Status != plan.Draft {
		t.Errorf("without an evaluation the plan is %q, want a draft", p.Status)
	}
}

// A tiny model is deployed on the CPU device, end to end, and accepted.
func TestDeployCPU(t *testing.T) {
	t.Parallel()
	path, dev, opts := skilltest.Tiny("qwen3-qknorm"), skilltest.OpenCPU(t), small(t)
	opts.SeqLen, opts.plain = 64, false
	d := deployment(t, path, dev, opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkDeployed(t, d)
	if d.State().Subject.Golden == "" {
		t.Error("the golden file beside the model was not found")
	}
	for _, pattern := range []string{"perf_opt_traj.png", workspace.FolderReports + "/*.png"} {
		if list, err := filepath.Glob(d.ws.Path(pattern)); err != nil || len(list) == 0 {
			t.Errorf("no picture %s, %v", pattern, err)
		}
	}
	checkAccepted(t, d, path, dev, opts)
}

// A tiny model is deployed on the virtual array, end to end, with predicted times, and accepted.
// Its lessons save work in the next deployment.
func TestDeploySim(t *testing.T) {
	t.Parallel()
	path, dev, opts := skilltest.ArrayModel(t), skilltest.OpenSim(t, sim.Options{}), small(t)
	if testing.Short() {
		path = arrayModel(t, 256)
	}
	opts.SeqLen = 64
	d := deployment(t, path, dev, opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkDeployed(t, d)
	kept := 0
	for _, a := range d.State().Attempts {
		if a.Value.Outcome == Kept {
			kept++
		}
		if a.Value.After != nil && !a.Value.After.Predicted {
			t.Errorf("%s: the time of a virtual array is %+v", a.Value.Step, a.Value.After)
		}
	}
	if kept < 3 {
		t.Errorf("%d changes were kept", kept)
	}
	page, err := os.ReadFile(filepath.Join(d.ws.Dir, "perf_opt_traj.md"))
	if err != nil || !strings.Contains(string(page), "predicted") {
		t.Errorf("the trajectory does not say that it is predicted: %v", err)
	}
	checkAccepted(t, d, path, dev, opts)
	t.Run("gain", func(t *testing.T) { gainAttack(t, opts.Dir, path, dev) })
	t.Run("lessons", func(t *testing.T) { planLessonsSaveWork(t, opts.Dir) })
}

// The trajectory describes the measurement, and the journal keeps the turns.
func TestTurnsAreWrittenDown(t *testing.T) {
	opts := small(t)
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	measured := 0
	for _, a := range d.State().Attempts {
		if a.Value.After == nil {
			continue
		}
		measured++
		if turns := a.Value.Turns; turns == nil || turns.Count < 2*opts.Repetitions-1 || !strings.Contains(a.Value.Why,
			"turns, noise") {
			t.Errorf("%s: %+v, %q", a.Value.Step, turns, a.Value.Why)
		}
		var again Attempt
		if err := json.Unmarshal(skilltest.Must(json.Marshal(a.Value)), &again); err != nil ||
			!reflect.DeepEqual(again.Turns,
				a.Value.Turns) {
			t.Errorf("read again: %+v, %v", again.Turns, err)
		}
	}
	page := string(skilltest.Must(os.ReadFile(d.ws.Path("perf_opt_traj.md"))))
	if measured == 0 || !strings.Contains(page, "timed in turns") {
		t.Errorf("%d attempts were measured; the trajectory:\n%s", measured, page)
	}
}

// real is the virtual array under the name of a real one.
type real struct{ npu.Device }

func (r real) Host() npu.Device { return npu.HostOf(r.Device) }
func (r real) Info() npu.Info {
	i := r.Device.Info()
	i.Kind = "xdna"
	return i
}

// Kernels of a real array are timed, and their rows in the registry have the time. Those of a
// virtual one never do.
func TestRowsOfARealArray(t *testing.T) {
	t.Parallel()
	path := skilltest.ArrayModel(t)
	for _, virtual := range []bool{true, false} {
		dev := skilltest.OpenSim(t, sim.Options{})
		if !virtual {
			dev = real{dev}
		}
		opts := quick(t)
		opts.plain, opts.Observe = true, nil
		d := deployment(t, path, dev, opts)
		for _, p := range []Phase{Reference, KernelValidation} {
			if _, err := d.RunPhase(context.Background(), p); err != nil {
				t.Fatal(err)
			}
		}
		rows := 0
		for _, k := range d.State().Kernels {
			if k.Row == nil {
				continue
			}
			rows++
			if k.Predicted == 0 || k.Measured > 0 == virtual || k.Row.Latency > 0 == virtual ||
				strings.Contains(k.Row.Note, "virtual array") != virtual {
				t.Errorf("virtual: %v: %s is predicted at %g us, measured at %g, its row has %g: %s", virtual, k.Key,
					k.Predicted, k.Measured, k.Row.Latency, k.Row.Note)
			}
		}
		if rows == 0 {
			t.Errorf("virtual: %v: no rows", virtual)
		}
	}
}

// Each built-in skill has a manual of its name, in the same order.
func TestBuiltInSkillsHaveManuals(t *testing.T) {
	list := manual.All()
	if len(list) != len(BuiltIn()) {
		t.Fatalf("%d manuals, %d skills", len(list), len(BuiltIn()))
	}
	for i, s := range BuiltIn() {
		if list[i].Name != s.Name() {
			t.Errorf("manual %d is %s, the skill is %s", i, list[i].Name, s.Name())
		}
	}
}
