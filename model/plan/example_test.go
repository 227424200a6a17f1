package plan_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

// llama1B is the configuration of Llama-3.2-1B. With a checkpoint, checkpoint.Open(path, nil).Config()
// reads it.
func llama1B() *checkpoint.Config {
	return &checkpoint.Config{
		Family: "llama", Name: "Llama-3.2-1B", Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, FFN: 8192,
		Vocab:   128256,
		Context: 131072, NormEps: 1e-5, TieEmbeddings: true, RoPE: checkpoint.RoPE{Theta: 500000},
	}
}

// A plan names the programs that a layer dispatches. On the NPU each is an artifact.
func ExampleNewNPU() {
	p, err := plan.NewNPU(llama1B(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, pass := range []plan.Pass{p.Prefill[0], p.Decode} {
		fmt.Println(pass.Rows, "rows:")
		for _, s := range pass.Steps {
			if s.Name == "layer.0" {
				fmt.Printf("  %s on the %s\n", s.Program, s.On)
			}
		}
	}
	// Output:
	// 2048 rows:
	//   rms_gemms_rope on the npu
	//   flash_attn on the npu
	//   o_ffn on the npu
	//   kv_write on the host
	// 1 rows:
	//   rms_gemv_rope on the npu
	//   decode_attention on the host
	//   o_gemv_ffn on the npu
}

// A model that the array cannot run is refused with the rule that it violates.
func ExampleNewNPU_refused() {
	c := llama1B()
	c.HeadDim = 16
	_, err := plan.NewNPU(c, nil)
	var refused *xdna2.ResourceError
	if errors.As(err, &refused) {
		fmt.Println(refused.Rule, refused.What)
	}
	// Output:
	// R-DIV-9 head_dim is 16, the kernels support 64, 128, 256 and 512
}

// Diff shows the effect of a knob.
func ExampleDiff() {
	knobs := plan.TunedKnobs()
	tuned, err := plan.NewNPU(llama1B(), &plan.NPUOptions{Knobs: &knobs})
	if err != nil {
		fmt.Println(err)
		return
	}
	knobs.FinalNorm = plan.OnDevice
	moved, err := plan.NewNPU(llama1B(), &plan.NPUOptions{Knobs: &knobs})
	if err != nil {
		fmt.Println(err)
		return
	}
	lines := plan.Diff(tuned, moved)
	for _, side := range strings.Split(lines[len(lines)-1], " -> ") {
		fmt.Println(side)
	}
	// Output:
	// decode, head: final_norm (host), lm_head_gemv, logits (host)
	// pick (host), final_rms, lm_head_gemv, logits (host)
}
