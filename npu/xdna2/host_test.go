package xdna2

import (
	"math"
	"testing"
	"time"
)

// The profile reproduces the published micro-figures that it is built from.
func TestHostMatchesPublishedFigures(t *testing.T) {
	h := hostAPriori()
	for _, tc := range []struct {
		name      string
		got, want float64 // us
		within    float64
	}{
		{"8 MB written for rms_gemms_rope", h.Write(8 << 20), 500, 0.1},
		{"20 MB written for flash_attn", h.Write(20 << 20), 1300, 0.1},
		{"16 MB written for o_ffn", h.Write(16 << 20), 1000, 0.1},
		{"attention of a layer of Llama-3.2-1B", h.Attention(32, 8, 64, 2048), 290, 0.05},
		{"K and V of a layer of Llama-3.2-1B extracted", h.Permute(2 * 2048 * 512 * 2), 1100, 0.1},
		{"LM head of Llama-3.2-1B on the host", h.Compute(2*2048*128256, 4*2048*128256), 258e3, 0.05},
		{"8 MB read after o_ffn", HostNpukit().Read(8 << 20), 100, 0.05},
		{"the reference's reads are in other costs", h.Read(8 << 20), 0, 0},
		{"no wake-up after five seconds", h.WakeUp(5 * time.Second), 0, 0},
		{"wake-up after ten", h.WakeUp(10 * time.Second), 150e3, 0},
	} {
		if math.Abs(tc.got-tc.want) > tc.within*tc.want {
			t.Errorf("%s: %.0f us, published %.0f", tc.name, tc.got, tc.want)
		}
	}
}

// Rates that are not set cost nothing and never an infinite time.
func TestHostWithoutRates(t *testing.T) {
	var h Host
	for _, got := range []float64{
		h.Write(1), h.Read(1), h.Permute(1), h.Allocate(1), h.Compute(1, 1), h.Attention(1, 1, 64, 1),
		h.WakeUp(time.Hour),
	} {
		if got != 0 {
			t.Errorf("an empty profile costs %g us", got)
		}
	}
}

func TestHostProfileByName(t *testing.T) {
	for _, name := range []string{"npukit", "reference"} {
		if h, err := HostProfile(name); err != nil || h.Name != name || h.Note == "" {
			t.Errorf("%s: got %q (%v)", name, h.Name, err)
		}
	}
	if _, err := HostProfile("python"); err == nil {
		t.Error("HostProfile(\"python\"): no error")
	}
}
