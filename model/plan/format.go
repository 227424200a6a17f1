package plan

import (
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// NumberFormat names the format of the numbers that a plan runs in on a device, for a checkpoint whose weights are of a type: "npu", "cpu-bf16" or "cpu-f32". The last two have
// "-expanded" behind them where products round quantised weights to BF16 ([npu.Info.Held], [npu.Info.Rounded]), and "-blocks" where they do not and activations are BF16: those may be
// brought to whole numbers then, a block at a time. Package gate knows the noise of each, and thresholds where the suffix makes a difference to a model.
func (p *Plan) NumberFormat(info npu.Info, weights dtype.Type) string {
	if info.Array != "" {
		return "npu"
	}
	format := "cpu-bf16"
	if p.Activations == dtype.F32 && p.Cache == dtype.F32 {
		format = "cpu-f32"
	}
	bf16 := p.Activations == dtype.BF16
	switch {
	case !weights.Quantized():
	case info.Held(weights) != weights || bf16 && slices.Contains(info.Rounded, weights):
		format += "-expanded"
	case bf16:
		format += "-blocks"
	}
	return format
}
