// Package testenv finds test data that is not part of the repository.
//
// The project's own data lives in testdata folders. Some tests use more: published tokenizers and
// vectors, real checkpoints. They look for it in the folder that NPUKIT_TESTDATA names, else in
// ../shared/testdata beside the repository, and skip with the reason when it is absent.
package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// started is the working directory in which the process began: in a test the package's own folder.
var started, startedErr = os.Getwd()

// Root returns the repository's root folder: the nearest folder with a go.mod at or above the
// working directory in which the test began. The source path that the compiler records would not do,
// because -trimpath removes it.
func Root() string {
	if startedErr != nil {
		panic("testenv: " + startedErr.Error())
	}
	for dir := started; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("testenv: no go.mod at or above " + started)
		}
	}
}

// Shared returns the path of a file or folder of the shared test data, and skips the test when it
// is absent.
func Shared(tb testing.TB, name string) string {
	tb.Helper()
	dir := os.Getenv("NPUKIT_TESTDATA")
	if dir == "" {
		dir = filepath.Join(filepath.Dir(Root()), "shared", "testdata")
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("needs shared test data: %v (set NPUKIT_TESTDATA to its folder)", err)
	}
	return path
}

// DemoModel returns the path of the model that `make demo` fetches, SmolLM2-135M-Instruct as a Q4_1
// GGUF, and skips the test when it is not in the cache.
func DemoModel(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("NPUKIT_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			tb.Skipf("needs the demo model: %v", err)
		}
		dir = filepath.Join(base, "npukit")
	}
	path := filepath.Join(dir, "models", "SmolLM2-135M-Instruct-Q4_1.gguf")
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("needs the demo model: %v (make demo fetches it)", err)
	}
	return path
}
