package skill

import (
	"fmt"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// PaperBounds are the paper's three conditions for an output: the largest absolute error in units of the reference's root mean square, so that it holds for outputs of any
// size; the mean relative error; and the correlation.
type PaperBounds struct {
	Atol    float64 `json:"atol"`    // times the root mean square of the reference
	Rtol    float64 `json:"rtol"`    // mean |got-want| over mean |want|
	Pearson float64 `json:"pearson"` // at least
	Note    string  `json:"note"`    // what was measured, and where
}

// ThresholdSet is all that a deployment is judged by, by number format. The copy in a workspace is for reading: what counts is in the program.
type ThresholdSet struct {
	Formats map[string]FormatBounds `json:"formats"`
	Gain    float64                 `json:"gain"` // the least by which a change must be faster to be kept, beyond noise
	Spread  float64                 `json:"spread"`
}

// FormatBounds are the bounds of one number format.
type FormatBounds struct {
	Block  PaperBounds     `json:"block"`
	Logits PaperBounds     `json:"logits"`
	Model  gate.Thresholds `json:"model"`
}

// Thresholds are the bounds of this program, with where they came from.
func Thresholds() ThresholdSet {
	set := ThresholdSet{Formats: map[string]FormatBounds{}, Gain: leastGain, Spread: leastSpread}
	for name, b := range paperBounds() {
		t, _ := gate.FormatThresholds(name)
		b.Model = t
		set.Formats[name] = b
	}
	return set
}

// paperBounds by number format.
func paperBounds() map[string]FormatBounds {
	const how = "largest over five tiny models against the oracle, 48 positions for a block and 96 for logits; twice that, for Pearson twice the distance from 1"
	oracle := PaperBounds{2e-4, 1e-4, 1 - 1e-7, "FP32 sums in another order; twenty times the mean relative error of 5e-6 that the oracle keeps against Hugging Face"}
	return map[string]FormatBounds{
		"oracle":   {Block: oracle, Logits: oracle},
		"cpu-f32":  {Block: PaperBounds{2e-4, 1e-5, 1 - 1e-8, how}, Logits: PaperBounds{2e-4, 2e-5, 1 - 1e-8, how}},
		"cpu-bf16": {Block: PaperBounds{0.06, 8e-3, 1 - 5e-5, how}, Logits: PaperBounds{0.3, 4e-2, 0.9985, how}},
		"npu":      {Block: PaperBounds{0.5, 6e-2, 0.995, how}, Logits: PaperBounds{2, 0.25, 0.95, how}},
	}
}

// tolerance is the paper's gate for outputs of the root mean square that a reference has.
func (b PaperBounds) tolerance(rms float64) (gate.Tolerance, error) {
	return gate.Paper(b.Atol*rms, b.Rtol, b.Pearson, fmt.Sprintf("%s; absolute bound %g times the reference's root mean square of %.3g", b.Note, b.Atol, rms))
}

// formatOf names the number format that a plan runs in on a device, as package gate does.
func formatOf(p *model.Plan, info npu.Info, weights dtype.Type) string {
	if info.Array != "" {
		return "npu"
	}
	format := "cpu-bf16"
	if p.Activations == dtype.F32 && p.Cache == dtype.F32 {
		format = "cpu-f32"
	}
	if weights.Quantized() {
		format += "-expanded" // the device expands quantised weights to BF16
	}
	return format
}

// bounds are those of the environment's plan.
func (e *Env) bounds() (FormatBounds, error) {
	p, err := e.Plan()
	if err != nil {
		return FormatBounds{}, err
	}
	format := formatOf(p, e.d.info, e.Config().DType)
	set := Thresholds()
	if b, ok := set.Formats[format]; ok {
		return b, nil
	}
	base := "cpu-bf16" // expanded weights are rounded to BF16, whatever the activations are
	b, ok := set.Formats[base]
	if !ok {
		return b, fmt.Errorf("skill: there are no thresholds for the number format %s", format)
	}
	if t, ok := gate.FormatThresholds(format); ok {
		b.Model = t
	}
	return b, nil
}
