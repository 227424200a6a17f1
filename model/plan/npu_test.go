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

var updatePlans = flag.Bool("update-plans", false, "write the summaries in testdata/npu/plans anew")

// The plans of the ten configurations are those that have been looked at: testdata/npu/plans holds what their first layer and their head
// dispatch, and a digest of the whole plan.json.
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
				t.Errorf("%s, line %d:\n got %s\nwant %s\n(go test -update-plans writes it anew)", name, i+1, a[i], b[i])
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
	unpriced := *p // the clock may learn, the plan stays
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
			fmt.Fprintf(&b, "  launch %s %s %s(%s)\n", l.Name, mappingString(l.Mapping), opString(l.Op), strings.Join(args, ", "))
		}
	}
	for _, pass := range p.Passes() {
		fmt.Fprintf(&b, "pass of %d rows\n", pass.Rows)
		for _, s := range pass.AllSteps() {
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

// Tiles of the nine models are the registry's wherever it has measured the shape: no program of theirs is mapped by guess where a
// measurement exists.
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
				rows := 0
				hit := false
				for _, r := range list {
					k := r.Row.Mapping
					if r.Distance == 0 && k.Variant == m.Variant && k.Layout == m.Layout && r.Row.Record == xdna2.Published {
						rows++
						hit = hit || slices.Equal(k.Tile, m.Tile) && slices.Equal(k.Herd, m.Herd)
					}
				}
				if rows > 0 && !hit {
					t.Errorf("%s, program %s, launch %s: %s is not what the registry has measured", name, q.Name, l.Name, mappingString(m))
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

// From one op a dispatch to the tuned plan: dispatches a layer, and what each step changes.
func TestKnobSteps(t *testing.T) {
	c := npuConfigs()["llama32_1b"]
	knobs := NaiveKnobs()
	before := npuPlan(t, c, &NPUOptions{Knobs: &knobs})
	if a, b := dispatches(before.Prefill[0].Steps, "layer.5"), dispatches(before.Decode.Steps, "layer.5"); a != 15 || b != 14 {
		t.Errorf("the naive plan has %d and %d dispatches a layer, want 15 and 14", a, b)
	}
	want := []struct {
		prefill, decode int
		change          string // one of the lines that say what the step changes
	}{
		{15, 14, `launch attn.norm: {"variant":"scalar","herd":[1,1]} -> {"herd":[1,1]}`},
		{15, 14, "runtime.context_reuse: false -> true"},
		{15, 14, "runtime.buffer_reuse: false -> true"},
		{15, 14, `{"variant":"fused-cast","tile":[32,64,32,64],"herd":[4,4]} -> {"variant":"fused-cast","tile":[64,256,32,128],"herd":[4,4]}`},
		{8, 7, "+ program o_ffn: "},
		{3, 2, "+ program rms_gemms_rope: "},
		{3, 2, "runtime.skip_transfers: false -> true"},
		{3, 2, `"tile":[64,256,32,128],"herd":[4,4]} -> {"variant":"fused-cast","tile":[64,512,32,128],"herd":[8,4]}`},
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
			t.Errorf("%s: %d and %d dispatches a layer, want %d and %d", s.Name, a, b, want[i].prefill, want[i].decode)
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

// Every other knob changes the plan, too.
func TestKnobs(t *testing.T) {
	c := npuConfigs()["qwen3_0_6b"]
	tuned := npuPlan(t, c, nil)
	for want, change := range map[string]func(*Knobs){
		"+ program host_head: pick, norm, lm_head":                                    func(k *Knobs) { k.LMHead = OnHostSide },
		"+ program host_attention: attn.core":                                         func(k *Knobs) { k.Attention = HostAttention },
		"head: final_norm (host), lm_head_gemv, logits (host) -> pick (host),":        func(k *Knobs) { k.FinalNorm = OnNPUSide },
		"launch ffn.act: {\"tile\":[4096],\"herd\":[8,1]} -> {\"variant\":\"scalar\"": func(k *Knobs) { k.Kernels = ScalarKernels },
	} {
		k := TunedKnobs()
		change(&k)
		if diff := strings.Join(Diff(tuned, npuPlan(t, c, &NPUOptions{Knobs: &k})), "\n"); !strings.Contains(diff, want) {
			t.Errorf("the plans differ by\n%s\nwant %s", diff, want)
		}
	}
	for want, k := range map[string]Knobs{
		`knob tiles is "large"`:           {Tiles: "large"},
		`knob final_norm is "npu"`:        {FinalNorm: OnNPUSide},
		`knob decode_attention is "chip"`: {DecodeAttention: "chip"},
	} {
		if _, err := NewNPU(c, &NPUOptions{Knobs: &k}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", k, err, want)
		}
	}
}

// What the array cannot run is refused with the rule, and with what to do about it.
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
			func(k *Knobs) { k.DecodeAttention = OnNPUSide }, nil},
		{"a residual stream that no vector divides", "R-DIV-1", small(func(c *checkpoint.Config) { c.Hidden = 1000 }), nil, nil},
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
		if !strings.HasPrefix(resource.Rule, tc.rule) || !strings.HasPrefix(err.Error(), "plan: qwen3 for the NPU: ") {
			t.Errorf("%s: rule %s, want %s: %v", tc.name, resource.Rule, tc.rule, err)
		}
	}
	c := npuConfigs()["llama32_1b"]
	for want, o := range map[string]*NPUOptions{
		"a sequence length of 200000 was asked for": {SeqLen: 200000},
		"prefill lengths [4096]: want 2 to 2048":    {SeqLen: 2048, Lengths: []int{4096}},
		"prefill lengths [1 64]: want 2":            {Lengths: []int{64, 1}},
	} {
		if _, err := NewNPU(c, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", o, err, want)
		}
	}
}

// Configurations made by hand into nonsense are refused, never divided by.
func TestNPUPlanConfigs(t *testing.T) {
	for want, change := range map[string]func(*checkpoint.Config){
		"layers is 0":                    func(c *checkpoint.Config) { c.Layers = 0 },
		"hidden size is -8":              func(c *checkpoint.Config) { c.Hidden = -8 },
		"key heads is 0":                 func(c *checkpoint.Config) { c.KVHeads = 0 },
		"32 heads over 5 key heads":      func(c *checkpoint.Config) { c.KVHeads = 5 },
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
	// What passes that check and is still no model is left to the array's rules, which must not be long about it.
	c := *npuConfigs()["llama32_1b"]
	c.FFN, c.Vocab = maxWidth, maxWidth
	if _, err := NewNPU(&c, nil); err == nil {
		t.Error("a model of 16 million columns is planned")
	}
}

// The advice of a refusal can be followed: heads that the array has no attention for plan with attention on the host.
func TestNPUPlanHostAttention(t *testing.T) {
	c := *npuConfigs()["qwen3_0_6b"]
	c.HeadDim = 16
	k := TunedKnobs()
	k.Attention = HostAttention
	p := npuPlan(t, &c, &NPUOptions{Knobs: &k})
	if p.Program("flash_attn") != nil || stepOf(p, "layer.3", "host_attention").On != OnHost {
		t.Error("attention is not on the host")
	}
}

// A deployment's own measurement of a shape goes before the published ones.
func TestNPUPlanTakesOwnTiles(t *testing.T) {
	c, r := npuConfigs()["llama32_1b"], xdna2.PublishedRegistry()
	tile := []int{32, 256, 32, 128}
	row := xdna2.Row{ID: "own/q", Kernel: xdna2.GEMM, Shape: xdna2.Shape{M: 2048, K: 2048, N: 2048}, Out: dtype.BF16,
		Status: xdna2.OK, Latency: 2000, Mapping: npu.Mapping{Variant: "fused-cast", Tile: tile, Herd: []int{8, 4}}}
	if err := r.Add(row); err != nil {
		t.Fatal(err)
	}
	p := npuPlan(t, c, &NPUOptions{Registry: r})
	if got := p.Program("rms_gemms_rope").Launches[1]; got.Name != "attn.q.f32" || !slices.Equal(got.Mapping.Tile, tile) {
		t.Errorf("launch %s has tile %v, want that of the deployment's row, %v", got.Name, got.Mapping.Tile, tile)
	}
}

// Several lengths are passes with programs of their own.
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

// Plans survive JSON.
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

// A plan edited into nonsense is refused, and the reason names the place.
func TestNPUPlanEdited(t *testing.T) {
	good := npuPlan(t, npuConfigs()["smollm2_135m"], nil)
	data, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	edits := map[string]func(p *Plan){
		"step layer.2":                  func(p *Plan) { stepOf(p, "layer.2", "flash_attn").Args[0].Value = "d.q_rope" },
		"there is no program":           func(p *Plan) { stepOf(p, "layer.2", "flash_attn").Program = "flash" },
		"rows: want":                    func(p *Plan) { p.Decode.Rows = 2 },
		`on is "gpu"`:                   func(p *Plan) { stepOf(p, "layer.0", "kv_write").On = "gpu" },
		"which no step before":          func(p *Plan) { p.Prefill[0].Steps = p.Prefill[0].Steps[1:] },
		"2048 rows, the plan 1024":      func(p *Plan) { p.SeqLen = 1024 },
		"the step binds 12":             func(p *Plan) { s := stepOf(p, "layer.0", "rms_gemms_rope"); s.Args = s.Args[:12] },
		"writes no logits":              func(p *Plan) { p.Decode.Head = p.Decode.Head[:2] },
		"program kv_write is in BF16":   func(p *Plan) { stepOf(p, "layer.0", "kv_write").On = OnDevice }, // open rows meet fixed ones
		"which \"scratch\" does not":    func(p *Plan) { stepOf(p, "layer.0", "o_ffn_head").Args[1] = Binding{} },
		"wants [2048 768] as a":         func(p *Plan) { p.Program("o_ffn_head").Args[0].Shape[1] = 512 },
		"read before any launch":        func(p *Plan) { q := p.Program("down_add"); q.Launches = q.Launches[1:] },
		"writes state \"k.1\", which":   func(p *Plan) { stepOf(p, "layer.0", "kv_write").Args[1].State = "k.1" },
		"reads state \"k.0\", which no": func(p *Plan) { q := p.Program("decode_attention"); q.Launches = q.Launches[1:] },
		"does not keep the states":      func(p *Plan) { stepOf(p, "layer.0", "kv_write").Args[1].State = "k.99" },
		"cost of -1 s":                  func(p *Plan) { p.Prefill[0].Cost = -1 },
		"needs steps and a head":        func(p *Plan) { p.Decode.Head = nil },
		"value \"logits\" must be F32":  func(p *Plan) { p.Model.Vocab++ },
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
			t.Errorf("%s: the edit is no difference", want)
		}
	}
	if diff := Diff(good, good); len(diff) != 0 {
		t.Errorf("a plan differs from itself: %q", diff)
	}
}

// stepOf is a step of the prefill pass.
func stepOf(p *Plan, name, program string) *Step {
	for i := range p.Prefill[0].Steps {
		if s := &p.Prefill[0].Steps[i]; s.Name == name && s.Program == program {
			return s
		}
	}
	panic("the plan has no step " + name + " of program " + program)
}
