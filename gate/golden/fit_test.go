package golden_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/testenv"
)

// A file of another model is refused by the field that shows it, and one of which nothing fits by
// its length.
func TestCheck(t *testing.T) {
	tinyModel := golden.Model{Vocab: 512, Hidden: 64, Layers: 3, SeqLen: 96}
	smolModel := golden.Model{Vocab: 49152, Hidden: 576, Layers: 30, SeqLen: 256}
	safe, err := golden.Read(filepath.Join(testenv.Root(), "testdata", "tiny-models", "smollm-mha",
		"golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	s := safe.Sequences[0]
	tinyModel.Vocab, tinyModel.Hidden = s.Vocab(), len(s.Hidden["embed.embed"])/len(s.IDs)
	for name, tc := range map[string]struct {
		file   *golden.File
		model  golden.Model
		change func(m *golden.Model)
		says   string // "" if the file fits
	}{
		"safetensors":          {safe, tinyModel, nil, ""},
		"exactly as long":      {safe, tinyModel, func(m *golden.Model) { m.SeqLen = len(s.IDs) }, ""},
		"one position shorter": {safe, tinyModel, func(m *golden.Model) { m.SeqLen = len(s.IDs) - 1 }, "input_ids has"},
		"another vocabulary":   {safe, tinyModel, func(m *golden.Model) { m.Vocab++ }, "logits: rows of"},
		"another hidden size":  {safe, tinyModel, func(m *golden.Model) { m.Hidden++ }, "hidden."},
		"fewer layers": {safe, tinyModel, func(m *golden.Model) { m.Layers = 0 },
			"hidden.0: the model has 0 layers"},
		"JSON":               {smol(t), smolModel, nil, ""},
		"JSON, only prompts": {smol(t), smolModel, func(m *golden.Model) { m.SeqLen = 40 }, ""},
		"JSON, nothing fits": {smol(t), smolModel, func(m *golden.Model) { m.SeqLen = 20 },
			"a session has 20 positions"},
		"JSON, smaller vocab": {smol(t), smolModel, func(m *golden.Model) { m.Vocab = 40000 }, "]: id "},
	} {
		if tc.change != nil {
			tc.change(&tc.model)
		}
		err := tc.file.Check(tc.model)
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) ||
			!strings.Contains(err.Error(), tc.file.Path)) {
			t.Errorf("%s: %v, want an error that names the file and says %q", name, err, tc.says)
		}
	}
	if err := smol(t).Check(golden.Model{Vocab: 40000}); err == nil || !strings.Contains(err.Error(), "prompts[") {
		t.Errorf("%v, want the prompt named", err)
	}
}

// The golden file that the package carries is that of the test data, byte for byte, and is found by
// the weights that it is for.
func TestBuiltIn(t *testing.T) {
	const weights = "1e5b27e00eb7f6771a9e047d695f88174567a5840648a826eda0423e914e4ff6"
	path := golden.BuiltIn(weights)
	if !golden.IsBuiltIn(path) || golden.BuiltIn("") != "" {
		t.Fatalf("%q, %q", path, golden.BuiltIn(""))
	}
	g, err := golden.Read(path)
	if err != nil || g.Path != path || len(g.Sequences) != 5 {
		t.Fatalf("%+v, %v", g, err)
	}
	original := filepath.Join(testenv.Root(), "testdata", "smollm2-135m", "golden.json")
	want, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("reference", "smollm2-135m-instruct-q4_1.json"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy is not %s: %v", original, err)
	}
	if on, err := golden.Read(original); err != nil || on.Sum != g.Sum || len(g.Sum) != 64 {
		t.Errorf("sums %q and %q, %v", on.Sum, g.Sum, err)
	}
	if _, err := golden.Read("builtin:none"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want an error that names what there is", err)
	}
}
