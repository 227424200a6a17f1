package xrt

import (
	"encoding/binary"
	"os"
	"testing"
	"time"
)

// XRT reads outside the file or crashes with most of these files.
func TestDamagedXclbin(t *testing.T) {
	whole, err := os.ReadFile("../internal/xrttest/testdata/mlir_aie.xclbin")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkXclbin(whole); err != nil {
		t.Fatalf("complete file: %v", err)
	}
	for _, n := range []int{0, 1, 8, 303, 455, 456, 500, len(whole) - 1} {
		if checkXclbin(whole[:n]) == nil {
			t.Errorf("truncated to %d of %d bytes: accepted", n, len(whole))
		}
	}
	for name, damage := range map[string]func(b []byte){
		"magic": func(b []byte) { b[6] = '1' },
		"length beyond the file": func(b []byte) {
			binary.LittleEndian.PutUint64(b[axlfLength:], 1<<63)
		},
		"sections beyond the file": func(b []byte) {
			binary.LittleEndian.PutUint32(b[axlfNumSections:], 1<<10)
		},
		"very many sections": func(b []byte) {
			binary.LittleEndian.PutUint32(b[axlfNumSections:], 1<<32-1)
		},
		"section offset beyond it": func(b []byte) {
			binary.LittleEndian.PutUint64(b[axlfSections+24:], uint64(len(b)+1))
		},
		"offset and length overflow": func(b []byte) {
			binary.LittleEndian.PutUint64(b[axlfSections+32:], 1<<64-1)
		},
		"section one byte too long": func(b []byte) {
			binary.LittleEndian.PutUint64(b[axlfSections+32:], uint64(len(b)))
		},
		"last section's end past end": func(b []byte) {
			binary.LittleEndian.PutUint64(b[axlfSections+6*axlfSectionSize+32:], uint64(len(b)))
		},
	} {
		b := append([]byte(nil), whole...)
		damage(b)
		if checkXclbin(b) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDamagedELF(t *testing.T) {
	whole, err := os.ReadFile("../internal/xrttest/testdata/vadd.elf")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkELF(whole); err != nil {
		t.Fatalf("complete file: %v", err)
	}
	for _, n := range []int{0, 3, 16, 51, len(whole) / 2} {
		if checkELF(whole[:n]) == nil {
			t.Errorf("truncated to %d of %d bytes: accepted", n, len(whole))
		}
	}
	b := append([]byte(nil), whole...)
	shoff := binary.LittleEndian.Uint32(b[32:]) // e_shoff; field sh_size of section 1 in a 32-bit ELF
	binary.LittleEndian.PutUint32(b[shoff+40+20:], 1<<31)
	if checkELF(b) == nil {
		t.Error("a section larger than the file: accepted")
	}
}

// Tables that overlap would make the checks take hours.
func TestOverlappingTables(t *testing.T) {
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
	le.PutUint32(partition[120:], mb/96-10) // as many PDIs as fit, all zero: each has no groups
	le.PutUint32(partition[124:], 184)
	for at := 184; at+96 <= mb; at += 96 {
		le.PutUint32(partition[at+24:], mb/96-10) // as many groups as fit
		le.PutUint32(partition[at+28:], 184)
	}
	began := time.Now()
	if err := checkXclbin(sections); err == nil {
		t.Error("overlapping sections: accepted")
	}
	if err := checkPartition(partition); err == nil {
		t.Error("overlapping groups: accepted")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// The checks terminate for any input.
func FuzzCheckXclbin(f *testing.F) {
	whole, err := os.ReadFile("../internal/xrttest/testdata/mlir_aie.xclbin")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(axlfMagic))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = checkXclbin(data) })
}

func FuzzCheckELF(f *testing.F) {
	whole, err := os.ReadFile("../internal/xrttest/testdata/vadd.elf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(_ *testing.T, data []byte) { _ = checkELF(data) })
}
