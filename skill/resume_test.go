package skill

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// small returns options for a deployment that takes less than a second.
func small(t testing.TB) *Options {
	return &Options{Dir: t.TempDir(), SeqLen: 40, Positions: 32, Repetitions: 3, plain: testing.Short()}
}

// finished deploys a tiny model and returns the lines of its journal.
func finished(t *testing.T, path string) (opts *Options, lines [][]byte) {
	t.Helper()
	opts = small(t)
	d := deployment(t, path, skilltest.OpenCPU(t), opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(opts.Dir, journal.FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	return opts, bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

// A deployment that was killed after any record, or while it wrote one, is resumed, ends like one
// that was not killed, and runs no gate again that had passed.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	path, dev := skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t)
	_, lines := finished(t, path)
	t.Logf("%d records", len(lines))
	every := 24
	if os.Getenv("NPUKIT_LONG") != "" {
		every = 5
	}
	for n := range len(lines) {
		opts := small(t)
		data := bytes.Join(lines[:n], nil)
		data = append(data, lines[n][:len(lines[n])/2]...) // and half of the next one
		if err := os.WriteFile(filepath.Join(opts.Dir, journal.FileJournal), data, 0o644); err != nil {
			t.Fatal(err)
		}
		d, err := NewDeployment(path, dev, opts)
		if err != nil {
			t.Fatalf("killed behind record %d: %v", n, err)
		}
		done := n%every == 7 // each takes up to a second
		if done {
			err = d.Run(context.Background())
		}
		if err != nil {
			t.Errorf("killed behind record %d: %v", n, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		records, _, err := journal.Read(filepath.Join(opts.Dir, journal.FileJournal))
		if err != nil {
			t.Fatalf("killed behind record %d: %v", n, err)
		}
		if !done {
			continue
		}
		checkDeployed(t, d)
		passed := map[string]bool{}
		for _, r := range records {
			if r.Kind != journal.KindGate {
				continue
			}
			var g GateResult
			if err := jsonOf(r, &g); err != nil {
				t.Fatal(err)
			}
			key := r.Phase.String() + " " + g.Key()
			if passed[key] {
				t.Errorf("killed behind record %d: %s ran again after it had passed", n, key)
			}
			passed[key] = g.OK
		}
	}
}

// Derived files that are lost, incomplete or edited are written again from the journal.
func TestDerivedFilesComeBack(t *testing.T) {
	t.Parallel()
	path, dev := skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t)
	opts, _ := finished(t, path)
	names := []string{workspace.FilePlan, workspace.FileThresholds, workspace.FilePerformance, "plan.md", "progress.md",
		"lessons.md", "perf_opt_traj.md", "kernels/matmul.md"}
	want := map[string][]byte{}
	for i, name := range names {
		file := filepath.Join(opts.Dir, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = data
		switch i % 3 {
		case 0:
			err = os.WriteFile(file, data[:len(data)/2], 0o644)
		case 1:
			err = os.Remove(file)
		default:
			err = os.WriteFile(file, bytes.Replace(data, []byte("a"), []byte("b"), 1), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d := deployment(t, path, dev, opts)
	for _, name := range names {
		if data, err := os.ReadFile(filepath.Join(opts.Dir, name)); err != nil || !bytes.Equal(data, want[name]) {
			t.Errorf("%s did not come back as it was (%v)", name, err)
		}
	}
	if _, err := plan.Read(d.ws.Path(workspace.FilePlan)); err != nil {
		t.Error(err)
	}
}

// A second process is refused with the pid of the first; another model, device or length is refused
// with the difference.
func TestWorkspaceRefuses(t *testing.T) {
	dev := skilltest.OpenCPU(t)
	opts := small(t)
	first := deployment(t, skilltest.Tiny("smollm-mha"), dev, opts)
	_, err := NewDeployment(skilltest.Tiny("smollm-mha"), dev, opts)
	pid := strings.TrimSpace(string(skilltest.Must(os.ReadFile(filepath.Join(opts.Dir, workspace.FileLock)))))
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), pid) {
		t.Errorf("a second one: %v, want process %s", err, pid)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	longer := *opts
	longer.SeqLen = 48
	for name, open := range map[string]func() (*Deployment, error){
		"another model": func() (*Deployment, error) { return NewDeployment(skilltest.Tiny("qwen2-bias"), dev, opts) },
		"another length": func() (*Deployment, error) {
			return NewDeployment(skilltest.Tiny("smollm-mha"), dev,
				&longer)
		},
		"another device": func() (*Deployment, error) {
			return NewDeployment(skilltest.Tiny("smollm-mha"),
				skilltest.OpenSim(t, sim.Options{}), opts)
		},
	} {
		if _, err := open(); !errors.Is(err, ErrOtherModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	again, err := NewDeployment(skilltest.Tiny("smollm-mha"), dev, opts)
	if err != nil {
		t.Fatalf("after the refusals: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// A folder that cannot be written is refused at once, and an unsupported architecture before
// anything is written.
func TestWorkspaceOfNoUse(t *testing.T) {
	dev := skilltest.OpenCPU(t)
	opts := small(t)
	if os.Getuid() != 0 { // root writes everywhere
		if err := os.Chmod(opts.Dir, 0o555); err != nil {
			t.Fatal(err)
		}
		if _, err := NewDeployment(skilltest.Tiny("smollm-mha"), dev, opts); !errors.Is(err, os.ErrPermission) {
			t.Errorf("a read-only folder: %v", err)
		}
	}
	opts.Dir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(opts.Dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDeployment(skilltest.Tiny("smollm-mha"), dev, opts); err == nil {
		t.Error("a file is no folder")
	}

	strange := t.TempDir()
	if err := os.WriteFile(filepath.Join(strange, "config.json"),
		[]byte(`{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	opts.Dir = filepath.Join(t.TempDir(), "w")
	_, err := NewDeployment(strange, dev, opts)
	if err == nil || !strings.Contains(err.Error(), "mixtral") || !strings.Contains(err.Error(), "0 reference") {
		t.Errorf("an unsupported architecture: %v", err)
	}
	if _, err := os.Stat(opts.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("a workspace was made for it")
	}
}

// If the disk is full while a derived file is written, the run ends with an error; with free space
// it resumes.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	path, dev, opts := skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t)
	d := deployment(t, path, dev, opts)
	for _, p := range []Phase{Reference, Finalise} { // those that write the plan
		for due, _ := d.State().Next(); due < p; due, _ = d.State().Next() {
			if _, err := d.RunPhase(context.Background(), due); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(d.ws.Path(workspace.FilePlan)); err != nil {
			t.Fatal(err)
		}
		d.ws.Write = func(string, []byte) error { return errors.New("no space left on device") }
		_, err := d.RunPhase(context.Background(), p)
		var failed *PhaseError
		if err == nil || !strings.Contains(err.Error(), "no space left") || errors.As(err, &failed) {
			t.Fatalf("a full disk in %s: %v", p, err)
		}
		if s := d.State().Phases[p].Status; s != journal.Running {
			t.Errorf("%s is %s, and can go on when there is room", p, s)
		}
		d.ws.Write = atomicfile.Write
	}
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkDeployed(t, d)
}

// If a gate's report cannot be written, the run ends with an error, and the phase has not failed.
func TestReportsCannotBeWritten(t *testing.T) {
	path, dev, opts := skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), small(t)
	d := deployment(t, path, dev, opts)
	reports := d.ws.Path(workspace.FolderReports)
	if err := os.WriteFile(reports, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := d.RunPhase(context.Background(), Reference)
	var failed *PhaseError
	if err == nil || errors.As(err, &failed) || d.State().Phases[Reference].Status != journal.Running {
		t.Errorf("%v; the phase is %s", err, d.State().Phases[Reference].Status)
	}
	if err := os.Remove(reports); err != nil {
		t.Fatal(err)
	}
	if _, err := d.RunPhase(context.Background(), Reference); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
