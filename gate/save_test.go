package gate_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
)

// trace is of six layers, the fourth of which is wrong at its last position.
func trace(t *testing.T) *gate.Trace {
	tr := &gate.Trace{Name: "a trace"}
	for l, name := range []string{"embed", "layer.0", "layer.0.attn.q", "layer.1.ffn", "layer.10.ffn",
		"layers.1", "layer.x"} {
		want := random(uint64(l), 5*64)
		got := perturb(want, 9, 1e-3*float64(l))
		if l == 4 {
			for i := 4 * 64; i < 5*64; i++ {
				got[i] = -got[i]
			}
		}
		if err := gate.Observe(tr, name, got, want, 64); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func TestTraceLocalises(t *testing.T) {
	tr := trace(t)
	for i, layer := range []int{-1, 0, 0, 1, 10, -1, -1} {
		if tap := tr.Taps[i]; tap.Layer != layer || len(tap.Cosine) != 5 || len(tap.RowL1) != 5 {
			t.Errorf("%s: layer %d, want %d; %d cosines", tap.Name, tap.Layer, layer, len(tap.Cosine))
		}
	}
	if bad := tr.Taps[4]; bad.Cosine[4] > -0.99 || bad.Cosine[3] < 0.99 || bad.RowL1[4] < 1.9 {
		t.Errorf("cosines %v, errors %v", bad.Cosine, bad.RowL1)
	}
	if text := tr.String(); !strings.Contains(text, "4 (-0.9999") {
		t.Errorf("the worst position is not in\n%s", text)
	}
	if err := gate.Observe(tr, "layer.9", []float32{1}, []float32{1, 2}, 1); err == nil ||
		!strings.Contains(err.Error(), "tap layer.9") {
		t.Errorf("error %v does not name the tap", err)
	}
}

func TestReportsAreSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	want := random(1, 6000)
	bad := perturb(want, 2, 0.1)
	bad[17] = float32(math.Inf(1))
	check, err := gate.Check(bad, want, 60, loose)
	if err != nil {
		t.Fatal(err)
	}
	check.Name = "layer.3.attn.q_rope"
	exact, err := gate.Check(want[:1], want[:1], 1, loose)
	if err != nil {
		t.Fatal(err)
	}
	teacher, err := gate.Teacher(ctx, newToy("a NaN"), newToy(""), toyIDs(1, 30), format(t, "npu"))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]interface {
		String() string
	}{"check": check, "exact": exact, "trace": trace(t), "logits": teacher} {
		for range 2 { // the second replaces the first
			if err := gate.Save(dir, name, r); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, name+".txt"))
		if err != nil || string(text) != r.String() {
			t.Errorf("%s.txt: %v", name, err)
		}
		data, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil || !json.Valid(data) {
			t.Errorf("%s.json: %v\n%s", name, err, data)
		}
	}
	if err := gate.Save(dir, "determinism", gate.DeterminismReport{}); err != nil {
		t.Error(err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 4*2+2 {
		t.Errorf("%d files: %v", len(files), files)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, name := range []string{"", "a/b", `a\b`, "..", ".hidden", "c:d"} {
		if err := gate.Save(dir, name, check); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// unwritable is a report whose picture cannot be drawn.
type unwritable struct{}

func (unwritable) String() string { return "text" }
func (unwritable) WritePNG(w io.Writer) error {
	_, err := w.Write([]byte("half"))
	return errors.Join(err, errBroken)
}

var errBroken = errors.New("broken")

// A picture that fails halfway does not replace the old file.
func TestHalfAPictureIsNone(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "r.png")
	if err := os.WriteFile(old, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := gate.Save(dir, "r", unwritable{}); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
	data, err := os.ReadFile(old)
	if err != nil || string(data) != "before" {
		t.Errorf("%q, %v", data, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
}
