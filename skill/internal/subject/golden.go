package subject

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/skill/internal/journal"
)

// goldenOf returns the path of the reference outputs for a checkpoint: the one asked for, or
// golden.safetensors in the model's folder, or those that package golden has for these weights, or
// "".
func goldenOf(path, asked, weights string) (string, error) {
	known := golden.BuiltIn(weights)
	if golden.IsBuiltIn(asked) && asked != known {
		return "", fmt.Errorf("skill: the reference outputs %s are of another model", asked)
	}
	if asked != "" {
		return asked, nil
	}
	beside, err := goldenBeside(path)
	if beside != "" || err != nil {
		return beside, err
	}
	return known, nil
}

// goldenBeside returns the path of the golden file in a model's folder, or "" if there is none.
func goldenBeside(path string) (string, error) {
	dir := path
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		dir = filepath.Dir(path)
	}
	file := filepath.Join(dir, "golden.safetensors")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("skill: %w", err)
	}
	return file, nil
}

// addGolden reads the subject's golden file, if there is one. It returns an error if the gates
// cannot use it.
func addGolden(s *journal.Subject, c *checkpoint.Config, file string) (*golden.File, error) {
	if file == "" {
		return nil, nil
	}
	g, err := golden.Read(file)
	if err == nil {
		err = g.Check(golden.Model{Vocab: c.Vocab, Hidden: c.Hidden, Layers: c.Layers, SeqLen: s.SeqLen})
	}
	if err == nil && !golden.IsBuiltIn(file) {
		file, err = filepath.Abs(file) // an evaluator may run in another folder
	}
	if err != nil {
		return nil, fmt.Errorf("skill: %w", err)
	}
	s.Golden, s.GoldenSum, s.GoldenSource = file, g.Sum, g.Source
	return g, nil
}

// Paths returns the paths of the model and its golden file for an evaluator: those it was given, or
// those in the journal. If the golden file has moved, Paths looks in the model's folder.
func Paths(s journal.Subject, model, asked string) (string, string) {
	if model == "" {
		model = s.Model
	}
	if asked != "" || s.Golden == "" || golden.IsBuiltIn(s.Golden) {
		if asked == "" {
			asked = s.Golden
		}
		return model, asked
	}
	if _, err := os.Stat(s.Golden); err != nil {
		if beside, err := goldenBeside(model); err == nil && beside != "" {
			return model, beside
		}
	}
	return model, s.Golden
}
