package model

import (
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// NumberFormat names the format of the numbers that a plan runs in on a device, for a checkpoint whose weights are of a type: "npu", "cpu-bf16" or "cpu-f32", the last two with
// "-expanded" where products round quantised weights: the device keeps them as BF16 ([npu.Info.Held]), or activations are BF16, with which it may multiply them as BF16 ([npu.Info.Rounded])
// or bring activations to 16 bits. Package gate has thresholds for each.
func (p *Plan) NumberFormat(info npu.Info, weights dtype.Type) string {
	if info.Array != "" {
		return "npu"
	}
	format := "cpu-bf16"
	if p.Activations == dtype.F32 && p.Cache == dtype.F32 {
		format = "cpu-f32"
	}
	if weights.Quantized() && (p.Activations == dtype.BF16 || info.Held(weights) != weights) {
		format += "-expanded"
	}
	return format
}
