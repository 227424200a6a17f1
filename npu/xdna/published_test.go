package xdna

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
)

// The published models generate the same token IDs on the device and on npu/cpu with the same plan.
//
// With NPUKIT_LONG on the emulated NPU this runs all nine models with the published widths,
// vocabulary and sequence length and random weights, and every program argument has the published
// size. The two smallest have two layers and prompts of one token, one less than a prefill pass, a
// full pass, and one more. The others have one layer and two prompts, because each pass takes about
// a minute on a small machine. Otherwise only the two smallest run, with a short pass and few
// tokens.
func TestPublishedModels(t *testing.T) {
	long := os.Getenv("NPUKIT_LONG") != "" && emulation()
	for _, m := range published.Models() {
		if !long && m.Name != "Qwen2.5-0.5B" && m.Name != "Qwen3-0.6B" {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			c := m.Config
			rows, vocab := 2048, c.Vocab
			if !long {
				rows, vocab = 256, 600
			}
			layers, lengths := 2, []int{1, rows - 1, rows, rows + 1}
			if c.Hidden > 1024 {
				layers, lengths = 1, []int{1, rows + 1}
			}
			same(t, m.Name, rows, lengths, ckptgen.Spec{Family: c.Family, Layers: layers,
				Hidden: c.Hidden, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
				FFN: c.FFN, Vocab: vocab, Context: rows +
					64, Tie: true, NormEps: c.NormEps, RopeTheta: c.RoPE.Theta}, 4,
				func(p *plan.Plan) {
					if long {
						publishedPrograms(t, m.Folder, onDevice(p))
					}
				})
		})
	}
}

// All 30 layers of SmolLM2-135M, with random weights, generate the same IDs as on npu/cpu.
func TestWholeModel(t *testing.T) {
	if os.Getenv("NPUKIT_LONG") == "" {
		t.Skip("takes half a minute: set NPUKIT_LONG=1")
	}
	rows := rows
	if emulation() {
		rows = 2048
	}
	lengths := []int{1, rows - 1, rows, rows + 1}
	same(t, "SmolLM2-135M", rows, lengths, ckptgen.Spec{Family: "llama", Layers: 30, Hidden: 576,
		Heads: 9, KVHeads: 3, HeadDim: 64, FFN: 1536, Vocab: 49152,
		Context: rows + 64, Tie: true, NormEps: 1e-5, RopeTheta: 100000}, 4, func(*plan.Plan) {})
}

// same compares the IDs that a model generates on the device and on npu/cpu.
func same(t *testing.T, name string, rows int, lengths []int, spec ckptgen.Spec, ids int,
	check func(*plan.Plan)) {
	began := time.Now()
	dir := t.TempDir()
	if err := ckptgen.Write(dir, spec, 3); err != nil {
		t.Fatal(err)
	}
	made := npuPlan(t, dir, rows)
	check(made)
	want := onCPU(t, dir, made)
	var expected [][]int32
	for _, n := range lengths {
		expected = append(expected, generate(t, want, prompt(n, n), ids))
	}
	programs, arguments := onDevice(made), 0
	for _, p := range programs {
		arguments += len(p.Args)
	}
	for how, open := range modelOpeners() {
		t.Run(how, func(t *testing.T) {
			d := open(t, each(programs...), Options{})
			got := openModel(t, d, dir, made)
			for i, n := range lengths {
				if g := generate(t, got, prompt(n, n), ids); !slices.Equal(g, expected[i]) {
					t.Errorf("a prompt of %d ids: %v, on cpu %v", n, g, expected[i])
				}
			}
			if t.Failed() || how != "xrt" {
				return
			}
			lines := fmt.Sprint(lengths)
			record(t, name, fmt.Sprint(spec.Layers), fmt.Sprint(rows), fmt.Sprint(spec.Vocab),
				fmt.Sprint(len(programs)), fmt.Sprint(arguments),
				strings.ReplaceAll(strings.Trim(lines, "[]"), " ",
					", "), fmt.Sprint(ids*len(lengths)), time.Now().UTC().Format(time.DateOnly))
			t.Logf("%s: %v in all", name, time.Since(began).Round(time.Second))
		})
	}
}

// generate returns the IDs that m generates after a prompt.
func generate(t *testing.T, m *model.Model, ids []int32, n int) (got []int32) {
	t.Helper()
	for tok, err := range m.Generate(context.Background(), model.IDs(ids),
		&model.GenerateOptions{MaxTokens: n, Sampling: &model.Sampling{}, IgnoreEOS: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, tok.ID)
	}
	return got
}

// publishedPrograms compares the programs with the published ones, from which the test artefacts
// take their sizes.
func publishedPrograms(t *testing.T, folder string, programs []*npu.Program) {
	t.Helper()
	want, err := published.Programs(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != len(programs) {
		t.Fatalf("%d programs, %d are published", len(programs), len(want))
	}
	for _, w := range want {
		i := slices.IndexFunc(programs, func(p *npu.Program) bool { return p.Name == w.Name })
		if i < 0 || instanceOf(programs[i]) != w.Instance {
			t.Errorf("program %s (%s) is not in the plan", w.Name, w.Instance)
			continue
		}
		if have := published.Args(programs[i]); have != w.Args {
			t.Errorf("program %s: arguments\n got %s\nwant %s", w.Name, have, w.Args)
		}
	}
}

// record writes a line to the report that NPUKIT_REPORT names, replacing an older line for the same
// model.
func record(t *testing.T, cells ...string) {
	t.Helper()
	path := os.Getenv("NPUKIT_REPORT")
	if path == "" {
		return
	}
	head := fmt.Sprintf(reportHead, "`make xrt-report`")
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := []string{}
	if _, rows, ok := strings.Cut(string(data), reportRule); ok {
		lines = slices.DeleteFunc(strings.Split(strings.TrimSpace(rows), "\n"), func(l string) bool {
			return l == "" || strings.HasPrefix(l, "| "+cells[0]+" |")
		})
	}
	lines = append(lines, "| "+strings.Join(cells, " | ")+" |")
	slices.Sort(lines)
	if err := os.WriteFile(path, []byte(head+reportRule+strings.Join(lines, "\n")+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
}

const reportRule = "|---|---|---|---|---|---|---|---|---|\n"

const reportHead = `# Models through XRT on the emulated NPU

Written by %s. Each line is a test that passed on its date: a model of the published
widths, with random weights, opened on ` + "`npu/xdna`" + ` over AMD's unmodified XRT libraries and the
emulated kernel driver (package internal/xrttest), with an ELF for each program in the format of AMD's
assembler, generated the same ids as the same plan on ` + "`npu/cpu`" + ` after every prompt. The programs of
the nine published models, with the sizes of all arguments, are those of Xilinx/mlir-air e972f2942.
The arithmetic is npukit's own: the report covers data movement, not compiled kernels, firmware or
speed.

| model | layers | rows of a prefill pass | vocabulary | programs | arguments | prompts (ids) | ids compared | date |
`
