package plan

import (
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// NumberFormat returns the name of the number format in which the plan runs on a device, for a
// checkpoint with weights of the given type: "npu", "cpu-bf16" or "cpu-f32".
//
// The CPU formats end in "-expanded" if products round quantized weights to BF16 (see
// [npu.Info.Held] and [npu.Info.Rounded]), and in "-blocks" if they do not and activations are
// BF16, which may then be quantized to integers block by block. Package gate has the noise of each
// format, and thresholds where the suffix makes a difference.
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
