package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// npuConfigs returns the nine models whose programs are published, and SmolLM2-135M.
func npuConfigs() map[string]*checkpoint.Config {
	llama3 := checkpoint.RoPE{
		Theta:           500000,
		Scaling:         "llama3",
		Factor:          32,
		LowFreqFactor:   1,
		HighFreqFactor:  4,
		OriginalContext: 8192,
	}
	config := func(family string, layers, hidden, heads, kv, hd, ffn, vocab, context int, eps float64,
		rope checkpoint.RoPE,
	) *checkpoint.Config {
		return &checkpoint.Config{
			Family: family, Name: family, Layers: layers, Hidden: hidden, Heads: heads, KVHeads: kv, HeadDim: hd,
			FFN: ffn, Vocab: vocab,
			Context: context, NormEps: eps, RoPE: rope, TieEmbeddings: true,
			QKVBias: family == "qwen2", QKNorm: family == "qwen3",
			DType: dtype.BF16,
		}
	}
	qwen := checkpoint.RoPE{Theta: 1e6}
	return map[string]*checkpoint.Config{
		"llama32_1b": config("llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 1e-5, llama3),
		"llama32_3b": config("llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, 1e-5, llama3),
		"smollm2_1_7b": config("llama", 24, 2048, 32, 32, 64, 8192, 49152, 8192, 1e-5,
			checkpoint.RoPE{Theta: 130000}),
		"qwen25_0_5b": config("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e-6, qwen),
		"qwen25_1_5b": config("qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e-6, qwen),
		"qwen25_3b":   config("qwen2", 36, 2048, 16, 2, 128, 11008, 151936, 32768, 1e-6, qwen),
		"qwen3_0_6b":  config("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e-6, qwen),
		"qwen3_1_7b":  config("qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e-6, qwen),
		"qwen3_4b":    config("qwen3", 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e-6, qwen),
		"smollm2_135m": config("llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e-5,
			checkpoint.RoPE{Theta: 100000}),
	}
}

// The configurations of these tests agree with the models' own config.json files.
func TestNPUConfigsArePublished(t *testing.T) {
	for name, file := range map[string]string{
		"llama32_1b": "Llama-3.2-1B-Instruct", "llama32_3b": "Llama-3.2-3B-Instruct",
		"smollm2_1_7b": "SmolLM2-1.7B-Instruct",
		"qwen25_0_5b":  "Qwen2.5-0.5B-Instruct", "qwen25_1_5b": "Qwen2.5-1.5B-Instruct",
		"qwen25_3b":  "Qwen2.5-3B-Instruct",
		"qwen3_0_6b": "Qwen3-0.6B", "qwen3_1_7b": "Qwen3-1.7B", "qwen3_4b": "Qwen3-4B",
	} {
		want, err := checkpoint.ReadConfig(testenv.Shared(t, "configs/"+file+".config.json"))
		if err != nil {
			t.Fatal(err)
		}
		got := npuConfigs()[name]
		if diff := Diff(npuPlan(t, want, nil), npuPlan(t, got, nil)); len(diff) != 0 ||
			got.RoPE.Theta != want.RoPE.Theta {
			t.Errorf("%s: from config.json to here: %q, theta %g and %g", name, diff,
				want.RoPE.Theta, got.RoPE.Theta)
		}
	}
}

func npuPlan(t *testing.T, c *checkpoint.Config, opts *NPUOptions) *Plan {
	t.Helper()
	p, err := NewNPU(c, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// onArray returns the distinct programs that steps run on the array, in order.
func onArray(p *Plan, steps []Step) (list []*npu.Program) {
	seen := map[string]bool{}
	for _, s := range steps {
		if s.On == OnDevice && !seen[s.Program] {
			seen[s.Program] = true
			list = append(list, p.Program(s.Program))
		}
	}
	return list
}

// The programs, with names and arguments, are the published ones.
func TestNPUPlanArguments(t *testing.T) {
	for _, m := range published.Models() {
		want, err := published.Programs(m.Folder)
		if err != nil {
			t.Fatal(err)
		}
		p := npuPlan(t, &m.Config, nil)
		for phase, got := range map[string][]*npu.Program{
			"prefill": onArray(p, p.Prefill[0].Steps),
			"decode":  onArray(p, p.Decode.Steps),
			"both":    onArray(p, p.Decode.Head),
		} {
			for _, d := range published.Differences(phase, want, got) {
				t.Errorf("%s: %s", m.Name, d)
			}
		}
		if head := onArray(p, p.Prefill[0].Head); len(head) != 1 || head[0] != p.Program("lm_head_gemv") {
			t.Errorf("%s: prefill does not end with lm_head_gemv", m.Name)
		}
	}
}

// Launches per program, and dispatches per layer and pass, are those of the published models.
func TestNPUPlanDispatches(t *testing.T) {
	const split, head8, head19 = "o_gemv 1, gate_gemv 1, up_gemv 1, down_gemv 1, ", "lm_head_gemv 8", "lm_head_gemv 19"
	for _, tc := range []struct {
		model                  string
		prefill, decode        int // dispatches per layer
		prefillRuns, tokenRuns int
		launches               string // by program, on the array
	}{
		{"llama32_1b", 3, 2, 49, 33,
			"rms_gemms_rope 7, flash_attn 1, o_ffn 12, rms_gemv_rope 6, o_gemv_ffn 3, " + head8},
		{"smollm2_1_7b", 3, 2, 73, 49,
			"rms_gemms_rope 9, flash_attn 1, o_ffn 12, rms_gemv_rope 6, o_gemv_ffn 3, " + head8},
		{"llama32_3b", 3, 5, 85, 141, "rms_gemms_rope 9, flash_attn 1, o_ffn 12, rms_gemv_rope 6, " + split + head8},
		{"qwen25_0_5b", 4, 5, 97, 121, "rms_qkv_bias_rope 9, flash_attn 1, o_ffn_head 6, down_add 3, " +
			"rms_qkv_bias_rope_gemv 9, " + split + head19},
		{"qwen25_1_5b", 6, 5, 169, 141,
			"rms_qkv_bias_rope 10, flash_attn 1, o_res_norm 4, gate_up 2, swiglu 1, down_add 3, " +
				"rms_qkv_bias_rope_gemv 9, " + split + head19},
		{"qwen25_3b", 7, 5, 253, 181,
			"rms_qkv_bias_rope 10, flash_attn 1, o_res_norm 4, gate 1, up 1, swiglu 1, down_add 3, " +
				"rms_qkv_bias_rope_gemv 9, " + split + head19},
		{"qwen3_0_6b", 3, 2, 85, 57, "rms_qkv_qknorm_rope 9, flash_attn 1, o_ffn_qwen 12, rms_qkv_qknorm_rope_gemv " +
			"8, o_gemv_ffn 3, " + head19},
		{"qwen3_1_7b", 3, 2, 85, 57, "rms_qkv_qknorm_rope 11, flash_attn 1, o_ffn_qwen 12, rms_qkv_qknorm_rope_gemv " +
			"8, o_gemv_ffn 3, " + head19},
		{"qwen3_4b", 7, 5, 253, 181,
			"rms_qkv_qknorm_rope 11, flash_attn 1, o_res_norm 4, gate 2, up 2, swiglu 1, down_add 3, " +
				"rms_qkv_qknorm_rope_gemv 8, " + split + head19},
		{"smollm2_135m", 4, 5, 121, 151, "rms_gemms_rope 6, flash_attn 1, o_ffn_head 6, down_add 2, rms_gemv_rope " +
			"6, " + split + "lm_head_gemv 3"},
	} {
		p := npuPlan(t, npuConfigs()[tc.model], nil)
		pre, dec := p.Prefill[0], p.Decode
		if a, b := dispatches(pre.Steps, "layer.3"), dispatches(dec.Steps, "layer.3"); a != tc.prefill ||
			b != tc.decode {
			t.Errorf("%s: %d and %d dispatches per layer, want %d and %d", tc.model, a, b,
				tc.prefill, tc.decode)
		}
		if a, b := dispatches(pre.allSteps(), ""), dispatches(dec.allSteps(), ""); a != tc.prefillRuns ||
			b != tc.tokenRuns {
			t.Errorf("%s: %d and %d dispatches per pass, want %d and %d", tc.model, a, b,
				tc.prefillRuns, tc.tokenRuns)
		}
		var parts []string
		for _, q := range append(onArray(p, pre.Steps), onArray(p, dec.allSteps())...) {
			parts = append(parts, fmt.Sprintf("%s %d", q.Name, physicalLaunches(q)))
		}
		if got := strings.Join(parts, ", "); got != tc.launches {
			t.Errorf("%s: launches\n got %s\nwant %s", tc.model, got, tc.launches)
		}
	}
}

// dispatches counts the steps of a name on the array, or all of them if name is empty.
func dispatches(steps []Step, name string) (n int) {
	for _, s := range steps {
		if s.On == OnDevice && (name == "" || s.Name == name) {
			n++
		}
	}
	return n
}

// physicalLaunches counts the launches of a program, those of a fused kernel as one.
func physicalLaunches(p *npu.Program) (n int) {
	for i, l := range p.Launches {
		if i == 0 || l.Mapping.Fused == "" || p.Launches[i-1].Mapping.Fused != l.Mapping.Fused {
			n++
		}
	}
	return n
}
