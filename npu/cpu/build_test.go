package cpu

import (
	"go/build"
	"strings"
	"testing"
)

// The C kernels need POSIX threads, signals and aligned memory, which mingw's C library lacks: Windows
// builds the Go kernels alone, with cgo or without.
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
		for _, path := range p.Imports {
			if strings.HasSuffix(path, "/ckernel") {
				t.Errorf("cgo %v: Windows would build %s", cgo, path)
			}
		}
	}
}
