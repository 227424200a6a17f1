package skill

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
)

// tiny is the path of one of the repository's random models.
func tiny(name string) string { return filepath.Join(testenv.Root(), "testdata", "tiny-models", name) }

func openCPU(t testing.TB) npu.Device {
	t.Helper()
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func openSim(t testing.TB, opts sim.Options) npu.Device {
	t.Helper()
	dev, err := sim.Open(&opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// quick are options for a deployment that takes seconds.
func quick(t testing.TB) *Options {
	return &Options{Dir: t.TempDir(), SeqLen: 96, Positions: 48, Repetitions: 3, plain: testing.Short(), Observe: func(e Event) { t.Logf("%s %s: %s", e.Phase, e.What, e.Text) }}
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

// npuTiny writes a random model that the array can run.
func npuTiny(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512, Vocab: 512, Context: 512, Tie: true}
	if testing.Short() {
		spec.Hidden, spec.Heads, spec.KVHeads, spec.FFN, spec.Vocab = 128, 2, 1, 256, 256
	}
	if err := ckptgen.Write(dir, spec, 7); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkDeployed holds a finished deployment to what everyone expects of one.
func checkDeployed(t *testing.T, d *Deployment) {
	t.Helper()
	for _, p := range d.State().Phases[:Evaluation] {
		if p.Status != Passed {
			t.Errorf("phase %s is %s: %s", p.Phase, p.Status, p.Reason)
		}
		if len(p.Gates) == 0 && p.Status == Passed {
			t.Errorf("phase %s passed without a gate", p.Phase)
		}
		for _, g := range p.Gates {
			name := g.Name
			if isKernelGate(name) {
				name = GateKernel + "/..."
			}
			if !slices.ContainsFunc(p.Phase.Info().Gates, func(i GateInfo) bool { return i.Name == name }) {
				t.Errorf("gate %s of phase %s is not in its description", g.Name, p.Phase)
			}
		}
	}
	dir := d.ws.dir
	for _, name := range []string{"plan.json", "plan.md", "progress.md", "issues.md", "lessons.md", "perf_opt_traj.md", "phase_timing.json", "thresholds.json",
		"performance.json", "performance.md", "journal.jsonl", "kernels/matmul.md"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	p, err := plan.Read(filepath.Join(dir, FilePlan))
	if err != nil {
		t.Fatal(err)
	}
	if p.Status != plan.Draft {
		t.Errorf("without an evaluation the plan is %q, want a draft", p.Status)
	}
}

// A tiny model is deployed on the software device, end to end, and accepted.
func TestDeployCPU(t *testing.T) {
	t.Parallel()
	path, dev, opts := tiny("qwen3-qknorm"), openCPU(t), small(t)
	opts.SeqLen, opts.plain = 64, false
	d := deployment(t, path, dev, opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkDeployed(t, d)
	if d.State().Subject.Golden == "" {
		t.Error("the golden file beside the model was not found")
	}
	for _, pattern := range []string{"perf_opt_traj.png", FolderReports + "/*.png"} {
		if list, err := filepath.Glob(d.ws.path(pattern)); err != nil || len(list) == 0 {
			t.Errorf("no picture %s, %v", pattern, err)
		}
	}
	checkAccepted(t, d, path, dev, opts)
}

// A tiny model is deployed on the virtual array, end to end, with predicted times, and accepted; what was learnt saves the next deployment work.
func TestDeploySim(t *testing.T) {
	t.Parallel()
	path, dev, opts := npuTiny(t), openSim(t, sim.Options{}), small(t)
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
	page, err := os.ReadFile(filepath.Join(d.ws.dir, "perf_opt_traj.md"))
	if err != nil || !strings.Contains(string(page), "predicted") {
		t.Errorf("the trajectory does not say that it is predicted: %v", err)
	}
	checkAccepted(t, d, path, dev, opts)
	t.Run("gain", func(t *testing.T) { gainAttack(t, opts.Dir, path, dev) })
	t.Run("lessons", func(t *testing.T) { planLessonsSaveWork(t, opts.Dir) })
}
