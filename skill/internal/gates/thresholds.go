package gates

import (
	"fmt"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// PaperBounds are the paper's three conditions for an output: the largest absolute error, the mean
// relative error, and the correlation. The absolute error is in units of the reference's root mean
// square, so that it holds for outputs of any size.
type PaperBounds struct {
	Atol    float64 `json:"atol"`    // times the root mean square of the reference
	Rtol    float64 `json:"rtol"`    // mean |got-want| over mean |want|
	Pearson float64 `json:"pearson"` // at least
	Note    string  `json:"note"`    // the measurements
}

// ThresholdSet is all bounds of a deployment, by number format. The copy in a workspace is for
// people; the program's own bounds count.
type ThresholdSet struct {
	Formats map[string]FormatBounds `json:"formats"`
	Gain    float64                 `json:"gain"` // a predicted change must be faster by more than this
	Spread  float64                 `json:"spread"`
}

// FormatBounds are the bounds of one number format.
type FormatBounds struct {
	Block  PaperBounds     `json:"block"`
	Far    PaperBounds     `json:"far"` // of a block at the end of 2048 positions
	Logits PaperBounds     `json:"logits"`
	Model  gate.Thresholds `json:"model"`
}

// Thresholds returns the bounds of this program, with their sources.
func Thresholds() ThresholdSet {
	set := ThresholdSet{Formats: map[string]FormatBounds{}, Gain: timing.ClockError, Spread: journal.LeastSpread}
	for name, b := range paperBounds() {
		t, _ := gate.FormatThresholds(name)
		b.Model = t
		set.Formats[name] = b
	}
	return set
}

// errorOf is the distance of a right device from the oracle: its largest absolute error over the
// root mean square of the reference, its mean relative error, and 1 minus its correlation.
type errorOf struct{ abs, rel, distance float64 }

// paperMeasured returns measurements on tiny models of every family, and on a trained model of
// 30 layers, whose residual stream has a few very large values.
//
// Measured by TestPaperBoundsAreMeasured (five tiny models of the repository on npu/cpu; four
// random ones that the array can run, on npu/sim, all knobs tuned) and
// TestPaperBoundsOnATrainedModel (SmolLM2-135M-Instruct in BF16), 40 positions in a pass and 8 in
// steps for a block, 24 and 8 for logits, and the last 16 of 2048 for a block at the end of a
// session. The errors of a block are those of the layer's contribution to the residual stream.
func paperMeasured() map[string]struct {
	tinyBlock, tinyLogits, trainedBlock, trainedLogits, tinyFar,
	trainedFar errorOf
} {
	return map[string]struct{ tinyBlock, tinyLogits, trainedBlock, trainedLogits, tinyFar, trainedFar errorOf }{
		"cpu-f32": {errorOf{3.2e-6, 6.1e-7, 2.0e-13}, errorOf{7.3e-6, 1.3e-6, 8.6e-13},
			errorOf{1.9e-5, 7.0e-7, 3.0e-13}, errorOf{1.8e-5, 2.6e-6, 4.9e-12},
			errorOf{6.6e-6, 1.7e-6, 1.6e-12}, errorOf{9.1e-6, 5.7e-7, 1.6e-13}},
		"cpu-bf16": {errorOf{0.0264, 5.36e-3, 1.47e-5}, errorOf{0.0668, 1.25e-2, 8.4e-5},
			errorOf{0.0458, 2.2e-3, 1.9e-6}, errorOf{0.0774, 5.9e-3, 5.3e-5},
			errorOf{0.0275, 5.2e-3, 1.35e-5}, errorOf{0.0216, 2.1e-3, 1.75e-6}},
		"npu": {errorOf{0.247, 0.0503, 1.25e-3}, errorOf{0.278, 0.0578, 1.75e-3}, errorOf{0.231, 0.0173, 1.2e-4},
			errorOf{1.43, 0.142, 0.0159},
			errorOf{0.234, 0.0535, 1.42e-3}, errorOf{0.183, 0.0121, 6.5e-5}},
	}
}

// FarMeasured is the length of the session at whose end the block was measured. In FP32 the error
// grows in proportion to the positions (relative 7e-7 at 96, 9.5e-7 at 512, 1.7e-6 at 2048); in
// BF16 rounding hides that.
const FarMeasured = 2048

// farAt returns the bounds of a block at the end of a session of n positions. They grow in
// proportion to the measurement at FarMeasured.
func (b FormatBounds) farAt(n int) PaperBounds {
	times := max(1, float64(n)/FarMeasured)
	t := b.Far
	t.Atol, t.Rtol = b.Block.Atol+times*(t.Atol-b.Block.Atol), b.Block.Rtol+times*(t.Rtol-b.Block.Rtol)
	t.Pearson = b.Block.Pearson - times*times*(b.Block.Pearson-t.Pearson)
	return t
}

// paperBounds returns the bounds by number format: twice the larger measurement.
func paperBounds() map[string]FormatBounds {
	oracle := PaperBounds{2e-4, 1e-4, 1 - 1e-7, "FP32 sums in another order; twenty times the mean relative error " +
		"of 5e-6 that the oracle keeps against Hugging Face"}
	set := map[string]FormatBounds{"oracle": {Block: oracle, Far: oracle, Logits: oracle}}
	for format, m := range paperMeasured() {
		twice := func(tiny, trained errorOf) PaperBounds {
			return PaperBounds{2 * max(tiny.abs, trained.abs), 2 * max(tiny.rel, trained.rel),
				1 - 2*max(tiny.distance, trained.distance),
				fmt.Sprintf("against the oracle, tiny models: absolute %.3g rms, relative %.3g, Pearson 1-%.2g; "+
					"SmolLM2-135M: %.3g, %.3g, 1-%.2g; twice the larger",
					tiny.abs, tiny.rel, tiny.distance, trained.abs, trained.rel, trained.distance)}
		}
		larger := func(a, b errorOf) errorOf {
			return errorOf{max(a.abs, b.abs), max(a.rel, b.rel), max(a.distance, b.distance)}
		}
		set[format] = FormatBounds{Block: twice(m.tinyBlock, m.trainedBlock),
			Logits: twice(m.tinyLogits, m.trainedLogits),
			Far:    twice(larger(m.tinyBlock, m.tinyFar), larger(m.trainedBlock, m.trainedFar))}
	}
	return set
}

// tolerance returns the paper's gate for outputs with the root mean square rms.
func (b PaperBounds) tolerance(rms float64) (gate.Tolerance, error) {
	return gate.Paper(b.Atol*rms, b.Rtol, b.Pearson,
		fmt.Sprintf("%s; absolute bound %g times the reference's root mean square of %.3g", b.Note, b.Atol, rms))
}

// bounds returns the bounds for the bench's plan.
func (bench *Bench) bounds() (FormatBounds, error) {
	p, err := bench.Plan()
	if err != nil {
		return FormatBounds{}, err
	}
	format := p.NumberFormat(bench.Models.Info, bench.Models.Config.DType)
	set := Thresholds()
	if b, ok := set.Formats[format]; ok {
		return b, nil
	}
	// Weights or activations are rounded, and a model has no larger error from that than in BF16.
	base := "cpu-bf16"
	b, ok := set.Formats[base]
	if !ok {
		return b, fmt.Errorf("skill: there are no thresholds for the number format %s", format)
	}
	if t, ok := gate.FormatThresholds(format); ok {
		b.Model = t
	}
	return b, nil
}
