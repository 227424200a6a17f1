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
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// The published models say on the device what the same plan says on cpu, id by id.
//
// On the emulated NPU with NPUKIT_LONG these are all nine, with the published widths, vocabulary and length and random weights, and every argument of
// every program has the published size: the two smallest with two layers and prompts of one id, of one less than a prefill pass takes, of all
// that it takes and of one more; the others with one layer and two prompts, because every pass of theirs is a minute of a small machine. Otherwise
// it is the two smallest, with a short pass and few words.
func TestPublishedModelsOnTheDevice(t *testing.T) {
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
			same(t, m.Name, rows, lengths, ckptgen.Spec{Family: c.Family, Layers: layers, Hidden: c.Hidden, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
				FFN: c.FFN, Vocab: vocab, Context: rows + 64, Tie: true, NormEps: c.NormEps, RopeTheta: c.RoPE.Theta}, 4, func(plan *model.Plan) {
				if long {
					publishedSizes(t, m.Folder, onDevice(plan))
				}
			})
		})
	}
}

// A whole model of 30 layers says the same as on cpu: SmolLM2-135M with random weights.
func TestAWholeModelOnTheDevice(t *testing.T) {
	if os.Getenv("NPUKIT_LONG") == "" {
		t.Skip("half a minute for weights and 30 layers: with NPUKIT_LONG")
	}
	rows := rows
	if emulation() {
		rows = 2048
	}
	lengths := []int{1, rows - 1, rows, rows + 1}
	same(t, "SmolLM2-135M", rows, lengths, ckptgen.Spec{Family: "llama", Layers: 30, Hidden: 576, Heads: 9, KVHeads: 3, HeadDim: 64, FFN: 1536, Vocab: 49152,
		Context: rows + 64, Tie: true, NormEps: 1e-5, RopeTheta: 100000}, 4, func(*model.Plan) {})
}

// same holds what a model says on the device against what it says on cpu.
func same(t *testing.T, name string, rows int, lengths []int, spec ckptgen.Spec, ids int, check func(*model.Plan)) {
	began := time.Now()
	dir := t.TempDir()
	if err := ckptgen.Write(dir, spec, 3); err != nil {
		t.Fatal(err)
	}
	plan := npuPlan(t, dir, rows)
	check(plan)
	want := onCPU(t, dir, plan)
	var said [][]int32
	for _, n := range lengths {
		said = append(said, generate(t, want, prompt(n, n), ids))
	}
	programs, arguments := onDevice(plan), 0
	for _, p := range programs {
		arguments += len(p.Args)
	}
	for how, open := range modelOpeners() {
		t.Run(how, func(t *testing.T) {
			d := open(t, each(programs...), Options{})
			got := openModel(t, d, dir, plan)
			for i, n := range lengths {
				if g := generate(t, got, prompt(n, n), ids); !slices.Equal(g, said[i]) {
					t.Errorf("a prompt of %d ids: %v, on cpu %v", n, g, said[i])
				}
			}
			if t.Failed() || how != "xrt" {
				return
			}
			lines := fmt.Sprint(lengths)
			record(t, name, fmt.Sprint(spec.Layers), fmt.Sprint(rows), fmt.Sprint(spec.Vocab), fmt.Sprint(len(programs)), fmt.Sprint(arguments),
				strings.ReplaceAll(strings.Trim(lines, "[]"), " ", ", "), fmt.Sprint(ids*len(lengths)), time.Now().UTC().Format(time.DateOnly))
			t.Logf("%s: %v in all", name, time.Since(began).Round(time.Second))
		})
	}
}

// generate is what a model says after a prompt.
func generate(t *testing.T, m *model.Model, ids []int32, n int) (said []int32) {
	t.Helper()
	for tok, err := range m.Generate(context.Background(), model.IDs(ids), &model.GenerateOptions{MaxTokens: n, Sampling: &model.Sampling{}, IgnoreEOS: true}) {
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, tok.ID)
	}
	return said
}

// publishedSizes holds the programs against the published lists of their arguments, from which the artefacts of these tests get the sizes in
// their manifests: package model's air-abi-args.json, captured from the builders of Xilinx/mlir-air e972f2942.
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

// publishedBytes is the size of "D 2048x512" or "I f32 2048x2048": a role, a type if it is not BF16, a shape.
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

// record writes a line of the report that NPUKIT_REPORT names, in place of an older one for the same model.
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
		lines = slices.DeleteFunc(strings.Split(strings.TrimSpace(rows), "\n"), func(l string) bool { return l == "" || strings.HasPrefix(l, "| "+cells[0]+" |") })
	}
	lines = append(lines, "| "+strings.Join(cells, " | ")+" |")
	slices.Sort(lines)
	if err := os.WriteFile(path, []byte(head+reportRule+strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

const reportRule = "|---|---|---|---|---|---|---|---|---|\n"

const reportHead = `# Models through XRT on the emulated NPU

Written by %s. Each line is a test that passed on its date: a model of the published widths, with random weights, opened on ` + "`npu/xdna`" + ` over
AMD's unmodified XRT libraries and the emulated kernel driver (package xrt/xrttest), with an ELF for each program as AMD's assembler makes them,
said after every prompt exactly the ids that the same plan says on ` + "`npu/cpu`" + `. The sizes of all arguments of the nine published models are those
of Xilinx/mlir-air e972f2942. The array's arithmetic is npukit's own: this says that the right bytes are in the right buffers at the right time, and
nothing about compiled kernels, firmware, or speed.

| model | layers | rows of a prefill pass | vocabulary | programs | arguments | prompts (ids) | ids compared | date |
`
