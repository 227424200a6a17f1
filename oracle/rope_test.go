package oracle

import (
	"math"
	"testing"

	"github.com/npukit/npukit/model/checkpoint"
)

// llama32 is the RoPE scaling of Llama 3.2.
var llama32 = checkpoint.RoPE{
	Theta: 500000, Scaling: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192,
}

// The frequencies agree with those of package checkpoint, an independent implementation in float64,
// to FP32 precision.
func TestFrequenciesAgreeWithCheckpoint(t *testing.T) {
	factors := make([]float32, 32)
	for i := range factors {
		factors[i] = 1 + float32(i)/3
	}
	for name, r := range map[string]checkpoint.RoPE{
		"unscaled": {Theta: 1e6},
		"linear":   {Theta: 1e4, Scaling: "linear", Factor: 4},
		"llama3":   llama32,
		"factors":  {Theta: 1e4, Scaling: "factors", FreqFactors: factors},
	} {
		want := r.InvFreq(64)
		for i, f := range frequencies(r, 64) {
			if rel := math.Abs(float64(f)/want[i] - 1); !(rel < 2e-6) {
				t.Errorf("%s, frequency %d: %g, checkpoint has %g", name, i, f, want[i])
			}
		}
	}
}

// Llama 3 scaling leaves frequencies with more than HighFreqFactor turns in the original context
// alone and divides those with less than LowFreqFactor. Theta is chosen so that frequency i is
// 2^-i.
func TestLlama3Scaling(t *testing.T) {
	r := checkpoint.RoPE{Theta: 1 << 16, Scaling: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4,
		OriginalContext: 256}
	// In 256 positions frequency 2^-i completes 40.74 / 2^i turns: 1 to 4 for i = 4 (2.546) and i =
	// 5 (1.273).
	for i, f := range frequencies(r, 32) {
		want := math.Pow(2, -float64(i))
		switch {
		case i == 4 || i == 5:
			share := (256/(2*math.Pi)*want - 1) / 3
			want *= (1-share)/8 + share
		case i > 5:
			want /= 8
		}
		if rel := math.Abs(float64(f)/want - 1); !(rel < 1e-6) {
			t.Errorf("frequency %d: %g, want %g", i, f, want)
		}
	}
}

// Table rows are positions, cosines before sines, of FP32 angles.
func TestRopeTable(t *testing.T) {
	freq := []float32{1, 0.1}
	table := make([]float32, 2*4)
	ropeTable(table, freq, 2, 9)
	for r, pos := range []float32{9, 10} {
		for i, f := range freq {
			angle := float64(pos * f)
			if c, s := table[r*4+i], table[r*4+2+i]; c != float32(math.Cos(angle)) || s != float32(math.Sin(angle)) {
				t.Errorf("position %v, frequency %v: (%v, %v)", pos, f, c, s)
			}
		}
	}
	far := make([]float32, 2)
	ropeTable(far, []float32{0.3}, 1, 100003)
	exact, fp32 := math.Cos(float64(float32(0.3))*100003), math.Cos(float64(float32(0.3)*float32(100003)))
	if exact == fp32 || far[0] != float32(fp32) {
		t.Errorf("cosine at position 100,003 is %v, want %v, that of the FP32 angle", far[0], fp32)
	}
}
