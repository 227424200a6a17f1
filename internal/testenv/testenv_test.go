package testenv

import (
	"path/filepath"
	"testing"
)

// The root is that of the package's folder, also after the test has gone to another.
func TestRoot(t *testing.T) {
	want, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if got := Root(); got != want {
		t.Errorf("the root is %s, want %s", got, want)
	}
}
