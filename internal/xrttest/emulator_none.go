//go:build !(xrt && linux && cgo)

package xrttest

import "testing"

// Emulator is the emulated NPU of this process. Without XRT there is none, and [Open] skips the
// test.
type Emulator struct{}

// Open skips the test, because the program was built without the tag xrt.
func Open(tb testing.TB) *Emulator {
	tb.Helper()
	tb.Skip("needs the emulated NPU and the build tag xrt: run by make test-xrt")
	return nil
}

// Main runs a package's tests. Call it from TestMain.
func Main(m *testing.M) int { return m.Run() }

// Register does nothing.
func (e *Emulator) Register([]byte, Kernel) {}

// Script does nothing.
func (e *Emulator) Script(string) error { return nil }

// Stats returns the zero value.
func (e *Emulator) Stats() Stats { return Stats{} }

// Violations returns nil.
func (e *Emulator) Violations() []string { return nil }

// QoS returns the zero value.
func (e *Emulator) QoS() [6]uint32 { return [6]uint32{} }
