package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// verifyOutput has the fields of `verify --json` that programs read.
type verifyOutput struct {
	Model, Device, Format, Reference, IDs string
	OK                                    *bool
	Verdict                               string
	HuggingFace                           string `json:"hugging_face"`
	Gates                                 []struct {
		Name, Of, Against string
		OK                bool
		Report            map[string]any
	}
	Reasons   []string
	Diagnosis *struct {
		OK       bool
		First    string
		Findings []map[string]any
	}
	Seconds float64
}

func goldenOf(name string) string { return filepath.Join(tiny(name), "golden.safetensors") }

// One model of each family passes, against Hugging Face's outputs and against the oracle alone, in
// both number formats.
func TestVerifyTinyModels(t *testing.T) {
	for _, name := range []string{"llama-tied-rope-scaled", "llama-untied-sharded", "smollm-mha", "qwen2-bias",
		"qwen3-qknorm"} {
		for _, activations := range []string{"bf16", "f32"} {
			out := parse[verifyOutput](t, succeed(t, "", "verify", tiny(name), "--golden", goldenOf(name),
				"--activations", activations, "--diagnose", "--json"))
			if out.OK == nil || !*out.OK || out.Verdict != "pass" || out.HuggingFace != "agrees" ||
				len(out.Reasons) != 0 || out.Format != "cpu-"+activations {
				t.Errorf("%s %s: %+v", name, activations, out)
			}
			if d := out.Diagnosis; d == nil || !d.OK || d.First != "" {
				t.Errorf("%s %s: the diagnosis of a right device is %+v", name, activations, d)
			}
			var gates []string
			for _, g := range out.Gates {
				gates = append(gates, g.Of+" "+g.Name+" "+g.Against)
				if !g.OK || g.Report["ok"] != true {
					t.Errorf("%s: %+v", name, g)
				}
			}
			want := []string{"oracle logits: input_ids golden", "device logits: input_ids golden",
				"device greedy: input_ids golden", "device determinism itself"}
			if name == "llama-tied-rope-scaled" { // the only one whose golden file has enough ids
				want = slices.Insert(want, 3, "device prompt: 64 ids at once oracle")
			}
			if !slices.Equal(gates, want) {
				t.Errorf("%s: gates %q, want %q", name, gates, want)
			}
		}
		out := parse[verifyOutput](t, succeed(t, "", "verify", tiny(name), "--positions", "48", "--json"))
		if !*out.OK || out.HuggingFace != "unproven" || out.Reference != "oracle" ||
			!strings.Contains(out.IDs, "random") || len(out.Gates) != 5 {
			t.Errorf("%s without a golden file: %+v", name, out)
		}
	}
}

// A model with a tokenizer is verified on a text, as the report states. The output has a line for
// each gate, the verdict, and its limits.
func TestVerifyForPeople(t *testing.T) {
	out := succeed(t, "", "verify", chatty(t), "--positions", "64", "--show", "--diagnose")
	for _, want := range []string{"chatty on ", "number format cpu-bf16", "ids: a text", "PASS  logits: text",
		"PASS  prompt: 32 ids at once", "PASS  greedy: \"The capital of France is\"",
		"PASS  determinism", "no op is wrong", "\nPASS: ", "unproven", "scripts/golden.py", "  device     ",
		"  reference  "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// The text is longer than this context, so its beginning is scored.
	short := parse[verifyOutput](t, succeed(t, "", "verify", chatty(t), "--ctx", "64", "--json"))
	if !*short.OK || short.Gates[0].Report["positions"] != 63.0 {
		t.Errorf("in a context of 64: %+v", short)
	}
	out = succeed(t, "", "verify", tiny("smollm-mha"), "--golden", goldenOf("smollm-mha"))
	if strings.Contains(out, "unproven") || !strings.Contains(out, "reference: transformers") ||
		!strings.Contains(out, "oracle against golden") {
		t.Errorf("with a golden file:\n%s", out)
	}
}

// hasty is a device that reads one id wrong in a pass with very many rows.
type hasty struct{ npu.Device }

func (d hasty) Submit(ctx context.Context, runs []npu.Run) error {
	for _, r := range runs {
		rows := 0
		for _, s := range r.Segments {
			rows += s.Rows
		}
		for i, a := range r.Exec.Program().Args {
			if a.Type == dtype.I32 && a.Kind == npu.In && rows > 90 {
				ids := dtype.Int32s(r.Args[i].Bytes())
				ids[40] ^= 1
				defer func() { ids[40] ^= 1 }()
				break // picked rows are I32 too
			}
		}
	}
	return d.Device.Submit(ctx, runs)
}

// The prompt gate finds faults that occur only in long prompts. No other gate has passes with as
// many rows.
func TestVerifyLongPrompts(t *testing.T) {
	dev, err := cpu.Open(&cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, d := range []npu.Device{dev, hasty{dev}} {
		v := &verifier{app: &app{out: io.Discard, err: io.Discard}, path: chatty(t), positions: 128}
		err := v.on(context.Background(), d)
		if d == npu.Device(dev) {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, errVerify) {
			t.Errorf("a device that reads long prompts wrong passes: %v", err)
		}
		for _, g := range v.result.Gates {
			if prompt := strings.HasPrefix(g.Name, "prompt: 96 ids"); g.OK == prompt {
				t.Errorf("%s: passed %v\n%v", g.Name, g.OK, g.Report)
			}
		}
	}
}

// Outputs of another model fail with exit code 1 and the reasons, on both sides.
func TestVerifyAgainstAnotherModelsOutputs(t *testing.T) {
	text := map[string]any{"source": "a test", "text": map[string]any{"file": "t.txt", "input_ids": []int{1, 2, 3, 4,
		5, 6}, "nll": []float64{1, 1, 1, 1, 1}}}
	path := filepath.Join(t.TempDir(), "golden.json")
	write(t, path, text)
	r := command("", "verify", tiny("smollm-mha"), "--golden", path)
	if r.code != 1 || !strings.Contains(r.out, "FAIL  logits: t.txt") ||
		!strings.Contains(r.out, "made from other weights") ||
		!strings.Contains(r.out, "mean NLL") || r.stderr != "npukit verify: verification failed\n" {
		t.Errorf("exit code %d, stderr %q\n%s", r.code, r.stderr, r.out)
	}
	r = command("", "verify", tiny("smollm-mha"), "--golden", path, "--json")
	out := parse[verifyOutput](t, r.out)
	if r.code != 1 || *out.OK || out.Verdict != "fail" || out.HuggingFace != "differs" || len(out.Reasons) != 2 {
		t.Errorf("exit code %d: %+v", r.code, out)
	}
}

// Reports are saved as text, JSON and pictures.
func TestVerifyReports(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	succeed(t, "", "verify", tiny("qwen3-qknorm"), "--golden", goldenOf("qwen3-qknorm"), "--report", dir, "--diagnose")
	for _, name := range []string{"01-logits-oracle.png", "02-logits-device.png", "02-logits-device.txt",
		"03-greedy-device.json", "04-determinism-device.txt",
		"trace.png", "trace.json", "diagnosis.txt", "diagnosis.json"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(data) == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasSuffix(name, ".json") && !json.Valid(data) {
			t.Errorf("%s is not JSON", name)
		}
		if strings.HasSuffix(name, ".png") && !strings.HasPrefix(string(data), "\x89PNG") {
			t.Errorf("%s is not a picture", name)
		}
	}
}

// A wrong command line exits with 2 and a wrong file with 1, both with the reason.
func TestVerifyMistakes(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, []byte("no golden file"), 0o600); err != nil {
		t.Fatal(err)
	}
	model := tiny("smollm-mha")
	for _, tc := range []struct {
		name, says string
		code       int
		args       []string
	}{
		{"no model", "MODEL is missing", 2, nil},
		{"too few positions", "--positions is 3", 2, []string{model, "--positions", "3"}},
		{"text and JSON", "show", 2, []string{model, "--show", "--json"}},
		{"no such device", "unknown device \"abacus\"", 2, []string{model, "--device", "abacus"}},
		{"no such model", "there is no model", 1, []string{"nosuch"}},
		{"no such golden file", "no such file", 1, []string{model, "--golden", "nosuch"}},
		{"a damaged golden file", "damaged", 1, []string{model, "--golden", damaged}},
		{"another vocabulary", "another model", 1, []string{model, "--golden", goldenOf("qwen3-qknorm")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := command("", append([]string{"verify"}, tc.args...)...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.says) || r.out != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %d and %q", r.code, r.out, r.stderr, tc.code,
					tc.says)
			}
		})
	}
}

// A real model agrees with Hugging Face's implementation, from its file to the verdict.
func TestVerifySmolLM2(t *testing.T) {
	path := testenv.DemoModel(t)
	if testing.Short() {
		t.Skip("takes about 10 seconds on two cores")
	}
	file := filepath.Join(testenv.Root(), "testdata", "smollm2-135m", "golden.json")
	out := parse[verifyOutput](t, succeed(t, "", "verify", path, "--golden", file, "--positions", "96", "--diagnose",
		"--json"))
	if !*out.OK || !out.Diagnosis.OK || out.HuggingFace != "agrees" || len(out.Gates) != 4*3+2+1+1+1 {
		t.Errorf("%+v", out)
	}
}

// The script that makes golden files has help and rejects wrong arguments, without the packages
// that it computes with.
func TestGoldenScriptExplainsItself(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	script := filepath.Join(testenv.Root(), "scripts", "golden.py")
	for _, tc := range []struct {
		args, want string
		code       int
	}{
		{"--help", "Makes a golden file", 0},
		{tiny("smollm-mha") + " --greedy -1", "from 0 on", 2},
	} {
		// -S ignores installed packages.
		cmd := exec.Command(python, append([]string{"-I", "-S", script}, strings.Fields(tc.args)...)...)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != tc.code || !strings.Contains(string(out),
			tc.want) {
			t.Errorf("golden.py %s: exit code %d\n%s", tc.args, cmd.ProcessState.ExitCode(), out)
		}
	}
}
