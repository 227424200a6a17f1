package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/skill"
)

// A deployment for the virtual array, with predicted figures, is accepted with exit code 0. After
// its plan is changed, the exit code is 1 and the plan no longer runs.
func TestEvaluate(t *testing.T) {
	path, dir := t.TempDir(), filepath.Join(t.TempDir(), "w")
	spec := ckptgen.Spec{Family: "llama", Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512,
		Vocab: 512, Context: 512, Tie: true}
	if err := ckptgen.Write(path, spec, 7); err != nil {
		t.Fatal(err)
	}
	succeed(t, "", "deploy", path, "--dir", dir, "--seq", "64", "--device", "sim")
	if r := command("", "evaluate", dir, "--artefacts", "x"); r.code != 2 ||
		!strings.Contains(r.stderr, "--artefacts needs --device xdna, not sim") {
		t.Errorf("programs for the virtual array: exit code %d, stderr %q", r.code, r.stderr)
	}
	out := succeed(t, "", "evaluate", dir)
	if !strings.Contains(out, ": accepted, ") || !strings.Contains(out, "evaluation_report.md") {
		t.Errorf("the verdict is %q", out)
	}
	made := filepath.Join(dir, "plan.json")
	p, err := plan.Read(made)
	if err != nil || p.Status != plan.Accepted {
		t.Fatalf("the plan is %v, %v", p, err)
	}

	figures := filepath.Join(dir, "performance.json")
	data, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(figures, []byte(strings.Replace(string(data), `"tokens_per_s": `, `"tokens_per_s": 9`, 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	r := command("", "evaluate", dir, "--json")
	var report skill.EvaluationReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatal(err)
	}
	if r.code != 1 || report.OK || !strings.Contains(r.stderr, "not accepted: figures file") {
		t.Errorf("better figures: exit code %d, %v, stderr %q", r.code, report.OK, r.stderr)
	}
	if r := command("", "run", path, "--device", "sim", "--plan", made, "--ids", "1,2,3", "--max-tokens",
		"2"); r.code != 1 || !strings.Contains(r.stderr, "failed its evaluation") {
		t.Errorf("a failed plan runs: exit code %d, stderr %q", r.code, r.stderr)
	}
}

// A journal edited to name an unknown device is rejected, and its plan no longer runs.
func TestEvaluateAForgedDevice(t *testing.T) {
	path, dir := t.TempDir(), filepath.Join(t.TempDir(), "w")
	if err := ckptgen.Write(path, ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 64, Heads: 2, KVHeads: 1,
		HeadDim: 32, FFN: 128, Vocab: 64, Context: 64}, 7); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	d, err := skill.NewDeployment(path, dev, &skill.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(dir, "journal.jsonl")
	type record struct { // a line of the journal
		Seq   int             `json:"seq"`
		Time  string          `json:"time"`
		Kind  string          `json:"kind"`
		Phase string          `json:"phase"`
		Data  json.RawMessage `json:"data"`
		Sum   string          `json:"sum"`
	}
	var r record
	if data, err := os.ReadFile(journal); err != nil || json.Unmarshal(data, &r) != nil {
		t.Fatalf("not one record: %v", err)
	}
	seal := func(r record) []byte {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	r.Data, r.Sum = json.RawMessage(strings.Replace(string(r.Data), `"device":"cpu"`, `"device":"toaster"`, 1)), ""
	r.Sum = fmt.Sprintf("%x", sha256.Sum256(seal(r)))
	if err := os.WriteFile(journal, append(seal(r), '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	got := command("", "evaluate", dir)
	if got.code != 1 || !strings.Contains(got.stderr, "not accepted: ") || !strings.Contains(got.stderr, "device") ||
		!strings.Contains(got.out, "the deployment was for toaster") {
		t.Errorf("exit code %d, stderr %q, stdout %q", got.code, got.stderr, got.out)
	}

	// A plan that cannot be read cannot be marked as failed. The output reports that with the other
	// findings.
	if err := os.Symlink("/proc/self/mem", filepath.Join(dir, "plan.json")); err != nil {
		t.Skip(err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "plan.json")); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Skip("the user can read every file")
	}
	got = command("", "evaluate", dir)
	if got.code != 1 || !strings.Contains(got.out, "the deployment was for toaster") || !strings.Contains(got.stderr,
		"not accepted: ") || !strings.Contains(got.stderr, "plan.json: input/output error") {
		t.Errorf("a plan that cannot be read: exit code %d, stderr %q, stdout %q", got.code, got.stderr, got.out)
	}
}

// The command has flags for where programs come from, and its help explains the missing verdict.
func TestEvaluateHelp(t *testing.T) {
	out := succeed(t, "", "evaluate", "--help")
	for _, want := range []string{"--artefacts", "--compile", "without a verdict", "when it is idle",
		"cannot be opened", "--kernels or --threads differ"} {
		if !strings.Contains(out, want) {
			t.Errorf("the help lacks %q:\n%s", want, out)
		}
	}
}

// Wrong usage exits with 2, and a folder that is not a workspace with 1.
func TestEvaluateRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no folder":   {[]string{"evaluate"}, 2, "W is missing"},
		"two folders": {[]string{"evaluate", "a", "b"}, 2, "unexpected argument"},
		"threads":     {[]string{"evaluate", "a", "--threads", "-1"}, 2, "positive"},
		"kernels":     {[]string{"evaluate", "a", "--kernels", "x"}, 2, "unknown kernels"},
		"no workspace": {[]string{"evaluate", t.TempDir()}, 1,
			"is no workspace, which is the folder that npukit deploy --dir names"},
		"not a model": {[]string{"evaluate", t.TempDir(), "--model", "nowhere"}, 1, "nowhere"},
		"not even there": {[]string{"evaluate", filepath.Join(t.TempDir(), "x")}, 1,
			"is no workspace, which is the folder that npukit deploy --dir names"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command("", tc.args...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.want) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", r.code, r.stderr, tc.code, tc.want)
			}
		})
	}
}

// The evaluator's process gets all flags of the deployment's device, and the kernels of a variable
// that it does not see.
func TestEvaluatorOpensTheSameDevice(t *testing.T) {
	t.Setenv(cpu.KernelsVariable, "go")
	if got, err := parseDeviceText(deviceText(deviceFlags{device: "cpu"})); err != nil || got.kernels != "go" {
		t.Errorf("with %s=go it gets %+v, %v", cpu.KernelsVariable, got, err)
	}
	t.Setenv(cpu.KernelsVariable, "")
	for _, want := range []deviceFlags{
		{device: "cpu", threads: 1},
		{device: "cpu", threads: 2, kernels: "go", inPlace: true},
		{device: "xdna", artefacts: "a folder", compile: "a command --fast"},
	} {
		got, err := parseDeviceText(deviceText(want))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
