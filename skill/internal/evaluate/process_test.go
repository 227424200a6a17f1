package evaluate

import (
	"slices"
	"testing"

	"github.com/npukit/npukit/skill/internal/gates"
)

// Only variables that name files are kept.
func TestKeptEnvironment(t *testing.T) {
	got := keptEnvironment([]string{"HOME=/h", "LD_PRELOAD=evil.so", "LD_LIBRARY_PATH=/evil", "GODEBUG=x",
		"NPUKIT_ANY=1", "Path=/bin", "OPENBLAS_NUM_THREADS=1", "TMPDIR=/t"})
	if want := []string{"HOME=/h", "Path=/bin", "TMPDIR=/t"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// JSON is parsed to its end.
func TestStrict(t *testing.T) {
	var s gates.ThresholdSet
	for _, text := range []string{"{}\n} more", "{} {}", "{}]", `{"other": 1}`} {
		if strict([]byte(text), &s) == nil {
			t.Errorf("%q is read", text)
		}
	}
	if err := strict([]byte("{}\n"), &s); err != nil {
		t.Error(err)
	}
}
