package gates

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// inBF16 writes the demonstration model with its weights in BF16, as the array reads them.
func inBF16(t *testing.T) string {
	t.Helper()
	ck, err := checkpoint.Open(testenv.DemoModel(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	c := ck.Config()
	config := map[string]any{
		"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "num_hidden_layers": c.Layers,
		"hidden_size": c.Hidden, "num_attention_heads": c.Heads,
		"num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim, "intermediate_size": c.FFN, "vocab_size": c.Vocab,
		"max_position_embeddings": c.Context,
		"rms_norm_eps":            c.NormEps, "rope_theta": c.RoPE.Theta, "tie_word_embeddings": c.TieEmbeddings,
		"torch_dtype": "bfloat16", "hidden_act": "silu",
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	var list []ckptgen.Tensor
	for _, listed := range ck.Tensors() {
		x, err := ck.Tensor(listed.Name)
		if err != nil {
			t.Fatal(err)
		}
		wide := make([]float32, x.Elements())
		if err := dtype.Dequantize(wide, x.Type, x.Data); err != nil {
			t.Fatal(err)
		}
		narrow := make([]dtype.BFloat16, len(wide))
		dtype.F32ToBF16(narrow, wide)
		list = append(list, ckptgen.Tensor{Name: x.Name, Type: dtype.BF16, Shape: x.Shape, Data: dtype.AsBytes(narrow)})
	}
	if err := ckptgen.WriteSafetensors(filepath.Join(dir, "model.safetensors"), list); err != nil {
		t.Fatal(err)
	}
	return dir
}

// demoText returns the gates' text through the demonstration model's tokenizer.
func demoText(t *testing.T, n int) *Text {
	t.Helper()
	ck, err := checkpoint.Open(testenv.DemoModel(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	tok, err := model.OpenTokenizer(ck)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(materialText, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Text{ids[:n], "text"}
}

// The ops of a model with quantised weights are right in every kernel variant that this machine can
// run: variants round these weights, or activations, or neither.
func TestOpsOfAQuantisedModel(t *testing.T) {
	path := testenv.DemoModel(t)
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	text := demoText(t, 64)
	for _, kernels := range cpu.KernelNames() {
		t.Run(kernels, func(t *testing.T) {
			dev, err := cpu.Open(&cpu.Options{Threads: 2, Kernels: kernels})
			if err != nil {
				t.Skipf("not on this machine: %v", err)
			}
			defer dev.Close()
			e := newBench(t, path, dev, 128, 256)
			e.text = text
			v, err := checkBlockOps(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if !v.OK() {
				t.Errorf("%v", v)
			}
		})
	}
}

// The bounds hold for a trained model of 30 layers too, on the CPU device and on the virtual array,
// and their table agrees.
func TestPaperBoundsOnATrainedModel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	// As many ids as the thresholds of the model gates were measured on: the first positions are the
	// worst.
	const ids, seqLen = 256, 320
	text, bf16 := demoText(t, ids), inBF16(t)
	for _, tc := range []struct {
		format string
		dev    npu.Device
		recipe func(r *journal.Recipe)
	}{
		{"cpu-bf16", skilltest.OpenCPU(t), func(*journal.Recipe) {}},
		{"cpu-f32", skilltest.OpenCPU(t), func(r *journal.Recipe) { r.Activations, r.Cache = dtype.F32, dtype.F32 }},
		{"npu", skilltest.OpenSim(t, sim.Options{}), func(r *journal.Recipe) {
			tuned := plan.TunedKnobs()
			r.Prefill, r.Decode = &tuned, &tuned
		}},
	} {
		t.Run(tc.format, func(t *testing.T) {
			e := newBench(t, bf16, tc.dev, seqLen, 256)
			e.Recipe = e.Recipe.Clone()
			tc.recipe(&e.Recipe)
			e.text = text
			var block, far, logits measuredPaper
			for _, g := range []Gate{{Name: journal.GateBlock, Run: checkBlock}, {Name: journal.GateBlockOps,
				Run: checkBlockOps}, {Name: journal.GatePaper, Run: checkPaper},
				{Name: journal.GateLogits, Run: checkLogits}, {Name: journal.GateBlockFar, Run: checkBlockFar}} {
				if g.Name == journal.GateBlockFar {
					e.Recipe.SeqLen = FarMeasured
				}
				v, err := g.Check(context.Background(), e)
				if err != nil {
					t.Fatal(err)
				}
				if !v.OK() {
					t.Errorf("%v", v)
				}
				line, _, _ := Describe(v)
				t.Logf("%s: %s", g.Name, line)
				switch g.Name {
				case journal.GateBlock:
					block.add(v)
				case journal.GateBlockFar:
					far.add(v)
				case journal.GatePaper:
					logits.add(v)
				}
			}
			m := paperMeasured()[tc.format]
			block.matches(t, "block", m.trainedBlock)
			far.matches(t, "far", m.trainedFar)
			logits.matches(t, "logits", m.trainedLogits)
		})
	}
}
