// Package skilltest has helpers for tests of deployments: small models and devices.
package skilltest

import (
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
)

// Tiny returns the path of one of the repository's random models.
func Tiny(name string) string { return filepath.Join(testenv.Root(), "testdata", "tiny-models", name) }

// OpenCPU opens the CPU device with two threads, for the duration of the test.
func OpenCPU(t testing.TB) npu.Device {
	t.Helper()
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// OpenSim opens the virtual array for the duration of the test.
func OpenSim(t testing.TB, opts sim.Options) npu.Device {
	t.Helper()
	dev, err := sim.Open(&opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// ArrayModel writes a random model that the array can run, and returns its path.
func ArrayModel(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512,
		Vocab:   512,
		Context: 512, Tie: true}
	if testing.Short() {
		spec.Hidden, spec.Heads, spec.KVHeads, spec.FFN, spec.Vocab = 128, 2, 1, 256, 256
	}
	if err := ckptgen.Write(dir, spec, 7); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Must returns v, or panics if err is not nil.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
