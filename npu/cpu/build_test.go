package cpu

import (
	"go/build"
	"testing"
)

// The C engine needs POSIX threads, signals and aligned memory, which mingw's C library lacks: with cgo or without, Windows builds the Go engine alone.
func TestWindowsBuildsNoC(t *testing.T) {
	for _, cgo := range []bool{false, true} {
		ctx := build.Default
		ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled = "windows", "amd64", cgo
		p, err := ctx.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.CgoFiles)+len(p.CFiles) > 0 {
			t.Errorf("cgo %v: Windows would build %v and %v", cgo, p.CgoFiles, p.CFiles)
		}
	}
}
