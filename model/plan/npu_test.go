package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

var updatePlans = flag.Bool("update-plans", false, "rewrite testdata/npu/plans")

// The plans of the ten configurations are the reviewed ones: testdata/npu/plans has the dispatches
// of their first layer and of their head, and a digest of the whole plan.
func TestNPUPlanGolden(t *testing.T) {
	for name, c := range npuConfigs() {
		got := planSummary(t, npuPlan(t, c, nil))
		file := filepath.Join("testdata", "npu", "plans", name+".txt")
		if *updatePlans {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got == string(want) {
			continue
		}
		a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Errorf("%s, line %d:\n got %s\nwant %s\n(go test -update-plans rewrites it)",
					name, i+1, a[i], b[i])
				break
			}
		}
		if len(a) != len(b) {
			t.Errorf("%s has %d lines, want %d", name, len(a), len(b))
		}
	}
}

func planSummary(t *testing.T, p *Plan) string {
	t.Helper()
	unpriced := *p // costs are left out: a fit of the clock changes them
	unpriced.Decode.Cost, unpriced.Prefill = 0, slices.Clone(p.Prefill)
	for i := range unpriced.Prefill {
		unpriced.Prefill[i].Cost = 0
	}
	data, err := json.Marshal(&unpriced)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes, sha256 %x\n", len(data), sha256.Sum256(data))
	for _, s := range settings(p) {
		fmt.Fprintf(&b, "%s: %s\n", s.name, s.value)
	}
	for _, q := range p.Programs {
		fmt.Fprintf(&b, "program %s (%s)\n", q.Name, q.Instance)
		for i, a := range q.Args {
			fmt.Fprintf(&b, "  %d %s\n", i, argString(a))
		}
		for _, l := range q.Launches {
			var args []string
			for _, v := range l.Args {
				args = append(args, fmt.Sprint(v.Arg))
			}
			fmt.Fprintf(&b, "  launch %s %s %s(%s)\n", l.Name, mappingString(l.Mapping),
				opString(l.Op), strings.Join(args, ", "))
		}
	}
	for _, pass := range p.Passes() {
		fmt.Fprintf(&b, "pass of %d rows\n", pass.Rows)
		for _, s := range pass.allSteps() {
			if strings.HasPrefix(s.Name, "layer.") && s.Name != "layer.0" {
				continue
			}
			var args []string
			for i := range s.Args {
				args = append(args, bindingString(s.Args, i))
			}
			fmt.Fprintf(&b, "  %s %s %s: %s\n", s.Name, s.On, s.Program, strings.Join(args, "; "))
		}
	}
	return b.String()
}

// The mappings of the nine models are the registry's wherever it has a published measurement of the
// shape.
func TestNPUPlanTakesMeasuredTiles(t *testing.T) {
	registry := xdna2.PublishedRegistry()
	for name, c := range npuConfigs() {
		p := npuPlan(t, c, nil)
		measured, guessed := 0, 0
		for _, q := range p.Programs {
			for _, l := range q.Launches {
				m := l.Mapping
				if m.Herd == nil || m.Variant == "cascade" {
					continue
				}
				list, err := registry.Candidates(l.Op, dtype.BF16, op.Size{})
				if err != nil || len(list) == 0 {
					continue
				}
				_, shape, err := xdna2.ShapeOf(l.Op, op.Size{})
				if err != nil {
					t.Fatal(err)
				}
				rows := 0
				hit := false
				for _, r := range list {
					k := r.Mapping
					if r.Shape == shape && k.Variant == m.Variant && k.Layout == m.Layout &&
						r.Record == xdna2.Published {
						rows++
						hit = hit || slices.Equal(k.Tile, m.Tile) && slices.Equal(k.Herd, m.Herd)
					}
				}
				if rows > 0 && !hit {
					t.Errorf(
						"%s, program %s, launch %s: %s is not the mapping that the registry has measured",
						name, q.Name, l.Name, mappingString(m))
				}
				if hit {
					measured++
				} else {
					guessed++
				}
			}
		}
		t.Logf("%s: %d launches with a measured mapping, %d without", name, measured, guessed)
	}
}

// The steps from one op per dispatch to the tuned plan: dispatches per layer, and the change that
// each step makes.
func TestKnobSteps(t *testing.T) {
	c := npuConfigs()["llama32_1b"]
	knobs := NaiveKnobs()
	before := npuPlan(t, c, &NPUOptions{Knobs: &knobs})
	if a, b := dispatches(before.Prefill[0].Steps, "layer.5"), dispatches(before.Decode.Steps, "layer.5"); a != 15 ||
		b != 14 {
		t.Errorf("the naive plan has %d and %d dispatches per layer, want 15 and 14", a, b)
	}
	want := []struct {
		prefill, decode int
		change          string // a line of the diff
	}{
		{15, 14, `launch attn.norm: {"variant":"scalar","herd":[1,1]} -> {"herd":[1,1]}`},
		{15, 14, "runtime.context_reuse: false -> true"},
		{15, 14, "runtime.buffer_reuse: false -> true"},
		{
			15,
			14,
			`{"variant":"fused-cast","tile":[32,64,32,64],"herd":[4,4]} -> ` +
				`{"variant":"fused-cast","tile":[64,256,32,128],"herd":[4,4]}`,
		},
		{8, 7, "+ program o_ffn: "},
		{3, 2, "+ program rms_gemms_rope: "},
		{3, 2, "runtime.skip_transfers: false -> true"},
		{
			3,
			2,
			`"tile":[64,256,32,128],"herd":[4,4]} -> {"variant":"fused-cast","tile":[64,512,32,128],"herd":[8,4]}`,
		},
		{3, 2, "- program heads_first"},
		{3, 2, "- program lm_head_gemm"},
	}
	steps := KnobSteps()
	if len(steps) != len(want) {
		t.Fatalf("%d steps, want %d", len(steps), len(want))
	}
	for i, s := range steps {
		s.Take(&knobs)
		after := npuPlan(t, c, &NPUOptions{Knobs: &knobs})
		a, b := dispatches(after.Prefill[0].Steps, "layer.5"), dispatches(after.Decode.Steps, "layer.5")
		if a != want[i].prefill || b != want[i].decode {
			t.Errorf("%s: %d and %d dispatches per layer, want %d and %d", s.Name, a, b,
				want[i].prefill, want[i].decode)
		}
		diff := strings.Join(Diff(before, after), "\n")
		if !strings.Contains(diff, want[i].change) {
			t.Errorf("%s changes\n%s\nwant a line with %s", s.Name, diff, want[i].change)
		}
		before = after
	}
	if diff := Diff(before, npuPlan(t, c, nil)); len(diff) != 0 {
		t.Errorf("all steps taken differ from the default: %q", diff)
	}
}

// Every other knob changes the plan too.
func TestKnobs(t *testing.T) {
	c := npuConfigs()["qwen3_0_6b"]
	tuned := npuPlan(t, c, nil)
	for want, change := range map[string]func(*Knobs){
		"+ program host_head: pick, norm, lm_head": func(k *Knobs) { k.LMHead = "" },
		"+ program host_attention: attn.core":      func(k *Knobs) { k.Attention = OnHost },
		"head: final_norm (host), lm_head_gemv, logits (host) -> pick (host),": func(k *Knobs) {
			k.FinalNorm = OnDevice
		},
		`launch ffn.act: {"tile":[4096],"herd":[8,1]} -> {"variant":"scalar"`: func(k *Knobs) {
			k.Kernels = ""
		},
	} {
		k := TunedKnobs()
		change(&k)
		if diff := strings.Join(Diff(tuned, npuPlan(t, c, &NPUOptions{Knobs: &k})), "\n"); !strings.Contains(
			diff, want) {
			t.Errorf("the plans differ by\n%s\nwant %s", diff, want)
		}
	}
	for want, k := range map[string]Knobs{
		`knob tiles is "large"`:           {Tiles: "large"},
		`knob final_norm is "npu"`:        {FinalNorm: OnDevice},
		`knob decode_attention is "chip"`: {DecodeAttention: "chip"},
	} {
		if _, err := NewNPU(c, &NPUOptions{Knobs: &k}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", k, err, want)
		}
	}
}

// A model that the array cannot run is refused with the name of the rule.
func TestNPUPlanRefusals(t *testing.T) {
	small := func(change func(*checkpoint.Config)) *checkpoint.Config {
		c := *npuConfigs()["qwen3_0_6b"]
		change(&c)
		return &c
	}
	for _, tc := range []struct {
		name, rule string
		c          *checkpoint.Config
		knobs      func(*Knobs)
		lengths    []int
	}{
		{"head_dim 16", "R-DIV-9", small(func(c *checkpoint.Config) { c.HeadDim = 16 }), nil, nil},
		{"head_dim 96", "R-DIV-9", small(func(c *checkpoint.Config) { c.HeadDim = 96 }), nil, nil},
		{"decode attention on the array", "R-KER-1", small(func(*checkpoint.Config) {}),
			func(k *Knobs) { k.DecodeAttention = OnDevice }, nil},
		{"a residual stream that no vector divides", "R-DIV-1",
			small(func(c *checkpoint.Config) { c.Hidden = 1000 }), nil, nil},
		{"a sequence length that no tile divides", "R-DIV-", small(func(*checkpoint.Config) {}), nil, []int{100}},
	} {
		k := TunedKnobs()
		if tc.knobs != nil {
			tc.knobs(&k)
		}
		p, err := NewNPU(tc.c, &NPUOptions{Knobs: &k, Lengths: tc.lengths})
		var resource *xdna2.ResourceError
		if p != nil || !errors.As(err, &resource) {
			t.Errorf("%s: %v, want a resource error", tc.name, err)
			continue
		}
		if !strings.HasPrefix(resource.Rule, tc.rule) ||
			!strings.HasPrefix(err.Error(), "plan: qwen3 for the NPU: ") {
			t.Errorf("%s: rule %s, want %s: %v", tc.name, resource.Rule, tc.rule, err)
		}
	}
	c := npuConfigs()["llama32_1b"]
	for want, o := range map[string]*NPUOptions{
		"the sequence length is 200000":          {SeqLen: 200000},
		"prefill lengths [4096]: want 2 to 2048": {SeqLen: 2048, Lengths: []int{4096}},
		"prefill lengths [1 64]: want 2":         {Lengths: []int{64, 1}},
	} {
		if _, err := NewNPU(c, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", o, err, want)
		}
	}
}

// Invalid configurations are refused; they cause no division by zero.
func TestNPUPlanConfigs(t *testing.T) {
	for want, change := range map[string]func(*checkpoint.Config){
		"layers is 0":                    func(c *checkpoint.Config) { c.Layers = 0 },
		"hidden size is -8":              func(c *checkpoint.Config) { c.Hidden = -8 },
		"key heads is 0":                 func(c *checkpoint.Config) { c.KVHeads = 0 },
		"32 heads, 5 key heads":          func(c *checkpoint.Config) { c.KVHeads = 5 },
		"vocabulary is 1073741824":       func(c *checkpoint.Config) { c.Vocab = 1 << 30 },
		"width of the heads is":          func(c *checkpoint.Config) { c.Heads, c.HeadDim = 1<<20, 1<<10 },
		"and an even head_dim":           func(c *checkpoint.Config) { c.HeadDim = 63 },
		"feed-forward width is 16777217": func(c *checkpoint.Config) { c.FFN = maxWidth + 1 },
	} {
		c := *npuConfigs()["llama32_1b"]
		change(&c)
		if _, err := NewNPU(&c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
	// A configuration within the bounds that is still no model must fail the array's rules quickly.
	c := *npuConfigs()["llama32_1b"]
	c.FFN, c.Vocab = maxWidth, maxWidth
	if _, err := NewNPU(&c, nil); err == nil {
		t.Error("a model of 16 million columns is planned")
	}
}

// Following the advice of a refusal works: a head size without an attention kernel plans with
// attention on the host.
func TestNPUPlanHostAttention(t *testing.T) {
	c := *npuConfigs()["qwen3_0_6b"]
	c.HeadDim = 16
	k := TunedKnobs()
	k.Attention = OnHost
	p := npuPlan(t, &c, &NPUOptions{Knobs: &k})
	if p.Program("flash_attn") != nil || stepOf(p, "layer.3", "host_attention").On != OnHost {
		t.Error("attention is not on the host")
	}
}

// A deployment's own measurement of a shape has precedence over published ones.
func TestNPUPlanTakesOwnTiles(t *testing.T) {
	c, r := npuConfigs()["llama32_1b"], xdna2.PublishedRegistry()
	tile := []int{32, 256, 32, 128}
	row := xdna2.Row{
		ID:      "own/q",
		Kernel:  xdna2.GEMM,
		Shape:   xdna2.Shape{M: 2048, K: 2048, N: 2048},
		Out:     dtype.BF16,
		Status:  xdna2.OK,
		Latency: 2000,
		Mapping: npu.Mapping{Variant: "fused-cast", Tile: tile, Herd: []int{8, 4}},
	}
	if err := r.Add(row); err != nil {
		t.Fatal(err)
	}
	p := npuPlan(t, c, &NPUOptions{Registry: r})
	if got := p.Program("rms_gemms_rope").Launches[1]; got.Name != "attn.q.f32" ||
		!slices.Equal(got.Mapping.Tile, tile) {
		t.Errorf("launch %s has tile %v, want that of the deployment's row, %v", got.Name,
			got.Mapping.Tile, tile)
	}
}

// Each prefill length is a pass with its own programs.
func TestNPUPlanLengths(t *testing.T) {
	p := npuPlan(t, npuConfigs()["qwen3_0_6b"], &NPUOptions{Lengths: []int{2048, 512, 512}, SeqLen: 4096})
	if len(p.Prefill) != 2 || p.Prefill[0].Rows != 512 || p.Prefill[1].Rows != 2048 || p.Chunk != 2048 {
		t.Fatalf("%d passes, chunk %d, want 512 and 2048", len(p.Prefill), p.Chunk)
	}
	short, long := p.Program("flash_attn.512"), p.Program("flash_attn")
	if short == nil || long == nil || short.Instance != "attention_bf16" || long.Args[0].Shape[1] != 2048 {
		t.Error("the passes do not have programs of their own")
	}
	same := npuPlan(t, npuConfigs()["qwen3_0_6b"], &NPUOptions{SeqLen: 4096})
	for _, line := range Diff(same, p) {
		if !strings.HasPrefix(line, "+ ") {
			t.Errorf("a second length changes more than it adds: %s", line)
		}
	}
}

// Plans survive a round trip through JSON.
func TestNPUPlanJSON(t *testing.T) {
	naive := NaiveKnobs()
	for name, c := range npuConfigs() {
		for _, knobs := range []*Knobs{nil, &naive} {
			p := npuPlan(t, c, &NPUOptions{Knobs: knobs})
			data, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "plan.json")
			if err := os.WriteFile(file, data, 0o644); err != nil {
				t.Fatal(err)
			}
			q, err := Read(file)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			if diff := Diff(p, q); len(diff) != 0 || !bytes.Equal(data, again) {
				t.Errorf("%s: read back: %q", name, diff)
			}
		}
	}
}

// An invalid edit of a plan is refused with an error that names the place.
func TestNPUPlanEdited(t *testing.T) {
	good := npuPlan(t, npuConfigs()["smollm2_135m"], nil)
	data, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	edits := map[string]func(p *Plan){
		"step layer.2": func(p *Plan) {
			stepOf(p, "layer.2", "flash_attn").Args[0].Value = "d.q_rope"
		},
		"unknown program":          func(p *Plan) { stepOf(p, "layer.2", "flash_attn").Program = "flash" },
		"rows: want":               func(p *Plan) { p.Decode.Rows = 2 },
		`on is "gpu"`:              func(p *Plan) { stepOf(p, "layer.0", "kv_write").On = "gpu" },
		"which no earlier step":    func(p *Plan) { p.Prefill[0].Steps = p.Prefill[0].Steps[1:] },
		"2048 rows, the plan 1024": func(p *Plan) { p.SeqLen = 1024 },
		"the step binds 12": func(p *Plan) {
			s := stepOf(p, "layer.0", "rms_gemms_rope")
			s.Args = s.Args[:12]
		},
		"writes no logits": func(p *Plan) { p.Decode.Head = p.Decode.Head[:2] },
		"program kv_write is in BF16": func(p *Plan) { // open rows meet fixed ones
			stepOf(p, "layer.0", "kv_write").On = OnDevice
		},
		"match \"scratch\"":           func(p *Plan) { stepOf(p, "layer.0", "o_ffn_head").Args[1] = Binding{} },
		"wants [2048 768] as a":       func(p *Plan) { p.Program("o_ffn_head").Args[0].Shape[1] = 512 },
		"read before any launch":      func(p *Plan) { q := p.Program("down_add"); q.Launches = q.Launches[1:] },
		"writes state \"k.1\", which": func(p *Plan) { stepOf(p, "layer.0", "kv_write").Args[1].State = "k.1" },
		"reads state \"k.0\", which no": func(p *Plan) {
			q := p.Program("decode_attention")
			q.Launches = q.Launches[1:]
		},
		"write different states":       func(p *Plan) { stepOf(p, "layer.0", "kv_write").Args[1].State = "k.99" },
		"cost of -1 s":                 func(p *Plan) { p.Prefill[0].Cost = -1 },
		"needs steps and a head":       func(p *Plan) { p.Decode.Head = nil },
		"value \"logits\" must be F32": func(p *Plan) { p.Model.Vocab++ },
	}
	for _, want := range slices.Sorted(maps.Keys(edits)) {
		var p Plan
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatal(err)
		}
		edits[want](&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
		if len(Diff(good, &p)) == 0 {
			t.Errorf("%s: Diff does not show the edit", want)
		}
	}
	if diff := Diff(good, good); len(diff) != 0 {
		t.Errorf("a plan differs from itself: %q", diff)
	}
}

// stepOf returns a step of the prefill pass.
func stepOf(p *Plan, name, program string) *Step {
	for i := range p.Prefill[0].Steps {
		if s := &p.Prefill[0].Steps[i]; s.Name == name && s.Program == program {
			return s
		}
	}
	panic("the plan has no step " + name + " of program " + program)
}
