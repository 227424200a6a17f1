//go:build cgo && !windows && (amd64 || arm64)

package ckernel

import "testing"

// Go writes commands and C reads them: both must mean the same bytes.
func TestCommandLayout(t *testing.T) {
	for _, f := range layout() {
		if f.inGo != f.inC {
			t.Errorf("%s: %d in Go, %d in C", f.name, f.inGo, f.inC)
		}
	}
}
