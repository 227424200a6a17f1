package xrt

import (
	"encoding/binary"
	"os"
	"testing"
)

// XRT reads outside of the file, or ends the process, with most of these.
func TestDamagedXclbinsAreRefused(t *testing.T) {
	whole, err := os.ReadFile("xrttest/testdata/mlir_aie.xclbin")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkXclbin(whole); err != nil {
		t.Fatalf("the whole file: %v", err)
	}
	for _, n := range []int{0, 1, 8, 303, 455, 456, 500, len(whole) - 1} {
		if checkXclbin(whole[:n]) == nil {
			t.Errorf("cut off after %d of %d bytes: taken", n, len(whole))
		}
	}
	for name, damage := range map[string]func(b []byte){
		"magic":                       func(b []byte) { b[6] = '1' },
		"length beyond the file":      func(b []byte) { binary.LittleEndian.PutUint64(b[axlfLength:], 1<<63) },
		"sections beyond the file":    func(b []byte) { binary.LittleEndian.PutUint32(b[axlfNumSections:], 1<<10) },
		"very many sections":          func(b []byte) { binary.LittleEndian.PutUint32(b[axlfNumSections:], 1<<32-1) },
		"section offset beyond it":    func(b []byte) { binary.LittleEndian.PutUint64(b[axlfSections+24:], uint64(len(b)+1)) },
		"offset and length overflow":  func(b []byte) { binary.LittleEndian.PutUint64(b[axlfSections+32:], 1<<64-1) },
		"section one byte too long":   func(b []byte) { binary.LittleEndian.PutUint64(b[axlfSections+32:], uint64(len(b))) },
		"last section's end past end": func(b []byte) { binary.LittleEndian.PutUint64(b[axlfSections+6*axlfSectionSize+32:], uint64(len(b))) },
	} {
		b := append([]byte(nil), whole...)
		damage(b)
		if checkXclbin(b) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestDamagedELFsAreRefused(t *testing.T) {
	whole, err := os.ReadFile("xrttest/testdata/vadd.elf")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkELF(whole); err != nil {
		t.Fatalf("the whole file: %v", err)
	}
	for _, n := range []int{0, 3, 16, 51, len(whole) / 2} {
		if checkELF(whole[:n]) == nil {
			t.Errorf("cut off after %d of %d bytes: taken", n, len(whole))
		}
	}
	b := append([]byte(nil), whole...)
	shoff := binary.LittleEndian.Uint32(b[32:]) // e_shoff; section 1, field sh_size of a 32-bit ELF
	binary.LittleEndian.PutUint32(b[shoff+40+20:], 1<<31)
	if checkELF(b) == nil {
		t.Error("a section larger than the file: taken")
	}
}
