package plot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/gate"
)

// check returns a report over a ramp with some noise.
func check(t *testing.T, n int) gate.Report {
	t.Helper()
	got, want := make([]float32, n), make([]float32, n)
	for i := range want {
		want[i] = float32(i) + 1
		got[i] = want[i] * (1 + 0.01*float32(i%5))
	}
	r, err := gate.Check(got, want, len(want), gate.Tolerance{MaxRel: 0.1, Rtol: 0.1, Note: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r.Name = "ramp"
	return r
}

func traceOf(t *testing.T, names ...string) *gate.Trace {
	t.Helper()
	var rec gate.Recording
	for i, name := range names {
		if err := rec.Tap(name, []int{2, 2}, []float32{1, 2, 3, 4 + float32(i)/10}); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := rec.Trace(func(tap gate.TapFunc) error {
		for _, name := range names {
			if err := tap(name, []int{2, 2}, []float32{1, 2, 3, 4}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tr.Name = "trace"
	return &tr
}

// Every report with numbers is drawn, and drawing changes with the data.
func TestWritePNG(t *testing.T) {
	seen := map[string]string{}
	for name, report := range map[string]any{
		"check":     check(t, 500),
		"one value": check(t, 1),
		"trace":     *traceOf(t, "embed.embed", "layer.0.attn.q", "layer.1.attn.q"),
		"pointer":   traceOf(t, "embed.embed", "layer.0.attn.q"),
		"logits":    gate.LogitsReport{Verdict: gate.Verdict{Name: "l"}, KL: []float64{1e-3, math.NaN(), 0, 2}},
		"zeros":     gate.LogitsReport{Verdict: gate.Verdict{Name: "l"}, KL: []float64{0, 0}},
	} {
		var b bytes.Buffer
		if err := writePNG(&b, report); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if other, same := seen[b.String()]; same {
			t.Errorf("%s and %s are the same picture", name, other)
		}
		seen[b.String()] = name
		if img, err := png.Decode(&b); err != nil || img.Bounds().Dx() < 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A report without a finite number is ErrEmpty, and anything else that cannot be drawn an
// InputError.
func TestNothingToDraw(t *testing.T) {
	var b bytes.Buffer
	for _, report := range []any{
		gate.Report{}, gate.Trace{}, gate.LogitsReport{}, gate.LogitsReport{KL: []float64{math.NaN(),
			math.Inf(1)}},
	} {
		if err := writePNG(&b, report); !errors.Is(err, ErrEmpty) {
			t.Errorf("%T: error %v, want ErrEmpty", report, err)
		}
	}
	var input *gate.InputError
	for _, report := range []any{nil, gate.GreedyReport{}, (*gate.Trace)(nil)} {
		if err := writePNG(&b, report); !errors.As(err, &input) {
			t.Errorf("%T: error %v, want an InputError", report, err)
		}
	}
	if err := writePNG(nil, gate.Report{}); !errors.As(err, &input) {
		t.Errorf("a nil writer: %v", err)
	}
	if b.Len() != 0 {
		t.Errorf("%d bytes were written", b.Len())
	}
}

// A saved report has a picture if it can be drawn; its text and JSON stay the same.
func TestWith(t *testing.T) {
	dir := t.TempDir()
	for name, report := range map[string]fmt.Stringer{
		"check": check(t, 500), "trace": traceOf(t, "embed.embed"),
		"greedy": gate.GreedyReport{Verdict: gate.Verdict{Judged: 3}},
	} {
		if err := gate.Save(dir, name, With(report)); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(dir, name+".png"))
		if drawn := err == nil; drawn != (name != "greedy") {
			t.Errorf("%s.png: %v", name, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, name+".txt"))
		if err != nil || string(text) != report.String() {
			t.Errorf("%s.txt: %v", name, err)
		}
		want, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name+".json")); err != nil ||
			string(got) != string(want)+"\n" {
			t.Errorf("%s.json: %v", name, err)
		}
	}
}
