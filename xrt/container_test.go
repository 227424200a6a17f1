package xrt

import (
	"encoding/binary"
	"os"
	"testing"
	"time"
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

// Tables that point at the same bytes again and again would make the checks take hours.
func TestOverlappingTablesAreRefusedAtOnce(t *testing.T) {
	le := binary.LittleEndian
	const mb = 1 << 20
	sections := make([]byte, 4*mb)
	copy(sections, axlfMagic)
	le.PutUint64(sections[axlfLength:], uint64(len(sections)))
	le.PutUint32(sections[axlfNumSections:], axlfMaxSections)
	for i := range axlfMaxSections {
		s := sections[axlfSections+i*axlfSectionSize:]
		le.PutUint32(s, 7)
		le.PutUint64(s[24:], mb)
		le.PutUint64(s[32:], 3*mb)
	}
	partition := make([]byte, mb)
	le.PutUint32(partition[120:], mb/96-10) // as many PDIs as fit, and all zero: each of them has no groups
	le.PutUint32(partition[124:], 184)
	for at := 184; at+96 <= mb; at += 96 {
		le.PutUint32(partition[at+24:], mb/96-10) // and now all groups that fit
		le.PutUint32(partition[at+28:], 184)
	}
	began := time.Now()
	if err := checkXclbin(sections); err == nil {
		t.Error("overlapping sections: taken")
	}
	if err := checkPartition(partition); err == nil {
		t.Error("overlapping groups: taken")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Whatever the bytes are, the checks end with an answer.
func FuzzCheckXclbin(f *testing.F) {
	whole, err := os.ReadFile("xrttest/testdata/mlir_aie.xclbin")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(axlfMagic))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = checkXclbin(data) })
}

func FuzzCheckELF(f *testing.F) {
	whole, err := os.ReadFile("xrttest/testdata/vadd.elf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(_ *testing.T, data []byte) { _ = checkELF(data) })
}
