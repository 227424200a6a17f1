//go:build !(xrt && linux && cgo)

package xrt

import (
	"errors"
	"testing"
)

// Without XRT every function that opens something returns ErrUnavailable.
func TestUnavailable(t *testing.T) {
	for name, call := range map[string]func() error{
		"LibraryVersion": func() error { _, err := LibraryVersion(); return err },
		"Count":          func() error { _, err := Count(); return err },
		"Open":           func() error { _, err := Open(0); return err },
		"OpenBDF":        func() error { _, err := OpenBDF("0000:c5:00.1"); return err },
		"LoadXclbin":     func() error { _, err := LoadXclbin("no such file"); return err },
		"ParseXclbin":    func() error { _, err := ParseXclbin(nil); return err },
		"LoadELF":        func() error { _, err := LoadELF("no such file"); return err },
		"ParseELF":       func() error { _, err := ParseELF(nil); return err },
	} {
		if err := call(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
}
