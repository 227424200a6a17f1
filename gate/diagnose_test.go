package gate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
)

// chain is a make-believe model whose ops are x -> 1.1 x + noise-free mixing of neighbours: enough
// for errors to propagate.
type chain struct {
	layers, rows, width int
	wrong               func(name string, values []float32) // spoils an op's output; nil is right
	hidden              string                              // kind of op that is not shown
}

var chainOps = []string{"attn.norm", "attn.q", "attn.q_rope", "attn.core", "ffn.act",
	"ffn.residual"}

// forward runs it; a tap that overwrites values leads it.
func (c chain) forward(tap gate.TapFunc) error {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, c.rows*c.width)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	show := func(name string, values []float32) error {
		if c.wrong != nil {
			c.wrong(name, values)
		}
		if c.hidden != "" && strings.HasSuffix(name, c.hidden) {
			return nil
		}
		return tap(name, []int{c.rows, c.width}, values)
	}
	if err := show("embed.embed", x); err != nil {
		return err
	}
	for l := range c.layers {
		for _, o := range chainOps {
			y := make([]float32, len(x))
			for r := range c.rows {
				for j := range c.width {
					y[r*c.width+j] = 0.8*x[r*c.width+j] + 0.6*x[r*c.width+(j+1)%c.width]
				}
			}
			if err := show(fmt.Sprintf("layer.%d.%s", l, o), y); err != nil {
				return err
			}
			x = y
		}
	}
	return nil
}

// decoded is how many of the last rows are recorded one by one.
const decoded = 4

func diagnose(t *testing.T, device chain) gate.Diagnosis {
	t.Helper()
	rec, ok := gate.NewRecording("cpu-f32")
	if !ok {
		t.Fatal("no noise of cpu-f32")
	}
	err := device.forward(func(name string, shape []int, values []float32) error {
		from := 0 // as a session does it: most rows in a pass, the last ones one by one
		for _, rows := range append([]int{device.rows - decoded}, slices.Repeat([]int{1}, decoded)...) {
			to := from + rows*device.width
			if err := rec.Tap(name, []int{rows, device.width}, values[from:to]); err != nil {
				return err
			}
			from = to
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	right := device
	right.wrong, right.hidden = nil, ""
	trace, err := rec.Trace(right.forward)
	if err != nil {
		t.Fatal(err)
	}
	return gate.Diagnose(trace)
}

// Each pattern locates its fault only, however far the error has spread.
func TestDiagnosePatterns(t *testing.T) {
	const rows, width = 24, 64
	at := func(spoil func(r, c int, v float32) float32) func([]float32) {
		return func(values []float32) {
			for i, v := range values {
				values[i] = spoil(i/width, i%width, v)
			}
		}
	}
	cases := []struct {
		name  string
		hit   string // launches that are spoiled: their names end so
		spoil func([]float32)
		first string
		where []string
		cause string
	}{
		{"all layers", "attn.norm", at(func(_, _ int, v float32) float32 { return 1.01 * v }),
			"layer.0.attn.norm", []string{"layers: all 4", "positions: all", "scale: "},
			"eps"},
		{"one layer", "layer.2.ffn.act", at(func(_, c int, v float32) float32 { return -v }),
			"layer.2.ffn.act", []string{"layers: 2 alone of 4"}, "weights or buffers"},
		{"the first position is right", "attn.q_rope", at(func(r, _ int, v float32) float32 {
			if r == 0 {
				return v
			}
			return -v
		}), "layer.0.attn.q_rope", []string{"positions: all but the first"}, "RoPE"},
		{"from a position on", "attn.core", at(func(r, _ int, v float32) float32 {
			if r < 16 {
				return v
			}
			return v + 1
		}), "layer.0.attn.core", []string{"positions: from 16 on"}, "KV cache"},
		{"growing", "attn.core", at(func(r, _ int, v float32) float32 { return v + 0.02*float32(r+4) }),
			"layer.0.attn.core",
			[]string{"positions: all, growing"}, "KV cache"},
		{"the tail of the columns", "attn.q", at(func(_, c int, v float32) float32 {
			if c < 61 {
				return v
			}
			return 0
		}), "layer.0.attn.q", []string{"columns: the tail, from 61 of 64 on"}, "tile"},
		{"every other head", "attn.core", at(func(_, c int, v float32) float32 {
			if c/16%2 == 0 {
				return v
			}
			return -v
		}), "layer.0.attn.core", []string{"columns: blocks of 16", "1, 3 of 4"}, "heads"},
		{"one position", "embed.embed", at(func(r, _ int, v float32) float32 {
			if r != 5 {
				return v
			}
			return v + 1
		}), "embed.embed", []string{"positions: 5 alone of 24"}, "table"},
		{"one column", "attn.q", at(func(_, c int, v float32) float32 {
			if c != 7 {
				return v
			}
			return v + 1
		}), "layer.0.attn.q", []string{"columns: 7 alone of 64"}, "product"},
		{"the last column of every tile", "attn.q", at(func(_, c int, v float32) float32 {
			if c%16 != 15 {
				return v
			}
			return v + 1
		}), "layer.0.attn.q", []string{"columns: one in 16, from 15 on"}, "edge of every tile"},
		{"a tile of rows", "attn.q", at(func(r, _ int, v float32) float32 {
			if r/8 != 1 {
				return v
			}
			return v + 1
		}), "layer.0.attn.q", []string{"positions: rows 8 to 15 of 24"}, "tile of rows"},
		{"decoding", "ffn.act", at(func(r, _ int, v float32) float32 {
			if r < rows-decoded {
				return v
			}
			return v + 1
		}), "layer.0.ffn.act", []string{"positions: those from 20 on, which were decoded one by " +
			"one"}, "kernels of single rows"},
		{"the prompt", "ffn.act", at(func(r, _ int, v float32) float32 {
			if r >= rows-decoded {
				return v
			}
			return v + 1
		}), "layer.0.ffn.act", []string{"positions: the first 20"}, "kernels of many rows"},
		{"NaN", "layer.1.ffn.residual", func(v []float32) { v[3] = float32(math.NaN()) },
			"layer.1.ffn.residual", []string{"values: 1 are NaN"}, "uninitialized memory"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			d := diagnose(t, chain{layers: 4, rows: rows, width: width,
				wrong: func(name string, values []float32) {
					if strings.HasSuffix(name, tc.hit) {
						tc.spoil(values)
					}
				}})
			if len(d.Findings) != 1 || d.Clean || !d.Checked {
				t.Fatalf("%d findings, want one:\n%v", len(d.Findings), d)
			}
			f := d.Findings[0]
			if f.Tap != tc.first {
				t.Errorf("blames %s, want %s", f.Tap, tc.first)
			}
			where := strings.Join(f.Where, "\n")
			for _, w := range tc.where {
				if !strings.Contains(where, w) {
					t.Errorf("the pattern is\n%s\nwant %q in it", where, w)
				}
			}
			if !strings.Contains(f.Cause, tc.cause) {
				t.Errorf("the cause is %q, want %q in it", f.Cause, tc.cause)
			}
			if text := d.String(); !strings.Contains(text, "first op that goes wrong is "+tc.first) ||
				!strings.Contains(text, f.Cause) {
				t.Errorf("the text is\n%s", text)
			}
		})
	}
}

// Several bugs are several findings, in order of execution.
func TestDiagnoseTellsBugsApart(t *testing.T) {
	d := diagnose(t, chain{layers: 3, rows: 8, width: 32, wrong: func(name string, values []float32) {
		switch name {
		case "layer.1.attn.q":
			values[0]++
		case "layer.0.ffn.act", "layer.2.ffn.act":
			values[9] *= 3
		}
	}})
	var got []string
	for _, f := range d.Findings {
		got = append(got, f.Tap)
	}
	if !slices.Equal(got, []string{"layer.0.ffn.act", "layer.1.attn.q"}) {
		t.Errorf("findings %q", got)
	}
	if f := d.Findings[0]; !slices.Equal(f.Layers, []int{0, 2}) || f.Of != 3 {
		t.Errorf("%+v", f)
	}
}

// An op without a tap is listed with the op that shows its error.
func TestDiagnoseNamesWhatIsNotShown(t *testing.T) {
	d := diagnose(t, chain{layers: 2, rows: 8, width: 32, hidden: "attn.q",
		wrong: func(name string, values []float32) {
			if strings.HasSuffix(name, "attn.q") {
				values[3] += 2
			}
		}})
	if len(d.Findings) != 1 || d.Findings[0].Tap != "layer.0.attn.q_rope" ||
		!slices.Equal(d.Findings[0].With, []string{"layer.0.attn.q"}) {
		t.Fatalf("%v", d)
	}
	if !strings.Contains(d.String(), "no tap: layer.0.attn.q") {
		t.Error(d)
	}
}

// A correct device has no findings. An empty trace is not OK.
func TestDiagnoseOfARightDevice(t *testing.T) {
	d := diagnose(t, chain{layers: 2, rows: 8, width: 32})
	if !d.Clean || d.Taps != 13 || !strings.Contains(d.String(), "no op is wrong") {
		t.Errorf("%v", d)
	}
	if empty := gate.Diagnose(gate.Trace{}); empty.Clean ||
		!strings.Contains(empty.String(), "nothing was compared") {
		t.Errorf("an empty trace: %v", empty)
	}
}

// With drift only, the finding is the jump.
func TestDiagnoseByDrift(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var trace gate.Trace
	for l := range 3 {
		for _, o := range chainOps {
			want, got := make([]float32, 8*32), make([]float32, 8*32)
			for i := range want {
				want[i] = float32(rng.NormFloat64())
				got[i] = want[i] * (1 + 0.004*float32(len(trace.Taps))*float32(rng.NormFloat64())/10)
				if len(trace.Taps) >= 10 { // layer.1.ffn.act
					got[i] += float32(rng.NormFloat64())
				}
			}
			if err := gate.Observe(&trace, fmt.Sprintf("layer.%d.%s", l, o), got, want, 32); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := gate.Diagnose(trace)
	if len(d.Findings) != 1 || d.Findings[0].Tap != "layer.1.ffn.act" || d.Checked {
		t.Errorf("%v", d)
	}
	trace.Taps = trace.Taps[:10]
	if d := gate.Diagnose(trace); !d.Clean {
		t.Errorf("drift alone is blamed: %v", d)
	}
}

// Padding after a row is ignored, and outputs with another layout are skipped and listed.
func TestRecordingOfPaddedAndPermutedOutputs(t *testing.T) {
	right := chain{layers: 1, rows: 4, width: 8}
	rec, _ := gate.NewRecording("cpu-f32")
	err := right.forward(func(name string, shape []int, values []float32) error {
		switch name {
		case "layer.0.attn.q":
			var padded []float32
			for row := range slices.Chunk(values, right.width) {
				padded = append(append(padded, row...), 7, 7)
			}
			return rec.Tap(name, []int{4, 10}, padded)
		case "layer.0.attn.core":
			return rec.Tap(name, []int{2, 4, 4}, values)
		}
		return rec.Tap(name, shape, values)
	})
	if err != nil {
		t.Fatal(err)
	}
	trace, err := rec.Trace(right.forward)
	if err != nil {
		t.Fatal(err)
	}
	d := gate.Diagnose(trace)
	if !d.Clean || d.Taps != 6 || !slices.Equal(d.Skipped, []string{"layer.0.attn.core"}) ||
		!strings.Contains(d.String(), "not compared") {
		t.Errorf("%v", d)
	}
}

// A recording that cannot be compared is an error.
func TestRecordingRefuses(t *testing.T) {
	right := chain{layers: 1, rows: 4, width: 8}
	empty, _ := gate.NewRecording("cpu-f32")
	if _, err := empty.Trace(right.forward); err == nil ||
		!strings.Contains(err.Error(), "no output") {
		t.Errorf("nothing recorded: %v", err)
	}
	short, _ := gate.NewRecording("cpu-f32")
	if err := (chain{layers: 1, rows: 3, width: 8}).forward(short.Tap); err != nil {
		t.Fatal(err)
	}
	if _, err := short.Trace(right.forward); err == nil ||
		!strings.Contains(err.Error(), "none of the device's 7 outputs") {
		t.Errorf("fewer rows: %v", err)
	}
	whole, _ := gate.NewRecording("cpu-f32")
	if err := right.forward(whole.Tap); err != nil {
		t.Fatal(err)
	}
	calls, broken := 0, errors.New("broken")
	_, err := whole.Trace(func(tap gate.TapFunc) error {
		if calls++; calls > 1 {
			return broken
		}
		return right.forward(tap)
	})
	if !errors.Is(err, broken) {
		t.Errorf("an error of the reference: %v", err)
	}
}

// Formats with thresholds have noise too, and others have neither.
func TestNewRecording(t *testing.T) {
	for format, want := range map[string]bool{"cpu-bf16": true, "cpu-f32": true,
		"cpu-f32-expanded": true, "cpu-bf16-expanded": true, "cpu-bf16-blocks": true, "npu": true,
		"npu-expanded": false, "npu-blocks": false, "cpu-bf16-blocks-expanded": false, "": false, "f16": false} {
		if rec, ok := gate.NewRecording(format); ok != want || ok && rec.Noise() <= 0 {
			t.Errorf("%q: %v, %v", format, ok, rec.Noise())
		}
	}
}

// The JSON of a diagnosis has stable names.
func TestDiagnosisJSON(t *testing.T) {
	d := diagnose(t, chain{layers: 2, rows: 8, width: 32, wrong: func(name string, values []float32) {
		if strings.HasSuffix(name, "attn.core") {
			values[3] += 2
		}
	}})
	data, err := json.Marshal(d)
	var got struct {
		OK       bool
		First    string
		Findings []struct {
			Tap    string
			Layers []int
			With   []string
			Cause  string
		}
	}
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || got.OK || got.First != "layer.0.attn.core" || len(got.Findings) != 1 ||
		len(got.Findings[0].Layers) != 2 || got.Findings[0].With == nil {
		t.Errorf("%v: %s", err, data)
	}
}
