//go:build !(xrt && linux && cgo)

package xrttest

import "testing"

// Emulator is the NPU of this process. In a program without XRT there is none, and [Open] skips the test.
type Emulator struct{}

// Open skips the test: this program was built without the tag xrt.
func Open(tb testing.TB) *Emulator {
	tb.Helper()
	tb.Skip("needs the emulated NPU and the build tag xrt: run by make test-xrt")
	return nil
}

// Main runs a package's tests: for TestMain.
func Main(m *testing.M) int { return m.Run() }

// Register says what a program computes.
func (e *Emulator) Register([]byte, Kernel) {}

// Script sets faults and limits.
func (e *Emulator) Script(string) error { return nil }

// Stats counts what the device holds.
func (e *Emulator) Stats() Stats { return Stats{} }

// Violations takes what the device objected to.
func (e *Emulator) Violations() []string { return nil }

// QoS is what the last hardware context asked for.
func (e *Emulator) QoS() [6]uint32 { return [6]uint32{} }
