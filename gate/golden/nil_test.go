package golden_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
)

// Bad arguments and bad files are typed errors; a missing file is not a bad one.
func TestTypedErrors(t *testing.T) {
	th, ok := gate.FormatThresholds("cpu-bf16")
	if !ok {
		t.Fatal("no thresholds")
	}
	var input *gate.InputError
	s := golden.Sequence{Name: "s", IDs: []int32{1, 2}, NLL: []float64{1}}
	if _, err := golden.Judge(context.Background(), nil, s, th); !errors.As(err, &input) {
		t.Errorf("a nil device: %v", err)
	}
	if _, err := golden.Judge(context.Background(), gate.Recorded{}, golden.Sequence{},
		th); !errors.As(err, &input) {
		t.Errorf("an empty sequence: %v", err)
	}
	path := filepath.Join(t.TempDir(), "golden.json")
	if _, err := golden.Read(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"prompts":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := golden.Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file without sequences: %v", err)
	}
}
