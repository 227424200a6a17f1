package xdna

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
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
						publishedSizes(t, m.Folder, onDevice(p))
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

// publishedSizes compares the programs with the published argument lists from which the test
// artefacts take their sizes: air-abi-args.json of package model, captured from the builders of
// Xilinx/mlir-air e972f2942.
func publishedSizes(t *testing.T, folder string, programs []*npu.Program) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Root(), "model", "testdata", "npu", "air-abi-args.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lists struct {
		Models map[string][]struct{ Program, Instance, Args string }
	}
	if err := json.Unmarshal(data, &lists); err != nil {
		t.Fatal(err)
	}
	want := lists.Models[folder]
	if len(want) != len(programs) || len(want) == 0 {
		t.Fatalf("%d programs, %d are published", len(programs), len(want))
	}
	for _, w := range want {
		i := slices.IndexFunc(programs, func(p *npu.Program) bool { return p.Name == w.Program })
		if i < 0 || instanceOf(programs[i]) != w.Instance {
			t.Errorf("program %s (%s) is not in the plan", w.Program, w.Instance)
			continue
		}
		var have []string
		for _, a := range programs[i].Args {
			have = append(have, fmt.Sprint(argBytes(a)))
		}
		var sizes []string
		for text := range strings.SplitSeq(w.Args, "; ") {
			sizes = append(sizes, fmt.Sprint(publishedBytes(t, text)))
		}
		if !slices.Equal(have, sizes) {
			t.Errorf("program %s: arguments of %v bytes, published are %v", w.Program, have, sizes)
		}
	}
}

// publishedBytes returns the size of e.g. "D 2048x512" or "I f32 2048x2048": role, type unless
// BF16, shape.
func publishedBytes(t *testing.T, text string) int {
	t.Helper()
	fields, typ := strings.Fields(text), dtype.BF16
	if len(fields) == 3 && fields[1] == "f32" {
		typ = dtype.F32
	} else if len(fields) != 2 {
		t.Fatalf("argument %q", text)
	}
	elements := 1
	for d := range strings.SplitSeq(fields[len(fields)-1], "x") {
		n, err := strconv.Atoi(d)
		if err != nil {
			t.Fatalf("argument %q: %v", text, err)
		}
		elements *= n
	}
	return typ.Bytes(elements)
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

Written by %s. Each line is a test that passed on its date: a model of the published widths, with
random weights, opened on ` + "`npu/xdna`" + ` over AMD's unmodified XRT libraries and the
emulated kernel driver (package xrt/xrttest), with an ELF for each
program in the format of AMD's assembler,
generated the same ids as the same plan on ` + "`npu/cpu`" + ` after every prompt.
The sizes of all arguments of the nine published models are
those of Xilinx/mlir-air e972f2942. The arithmetic is npukit's own: the report covers data movement,
not compiled kernels, firmware or speed.

| model | layers | rows of a prefill pass | vocabulary | programs | arguments | prompts (ids) | ids compared | date |
`
