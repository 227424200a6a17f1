package xrttest

import (
	"encoding/binary"
	"testing"
)

// The header of a stream has its number of operations and bytes.
func TestStreamHeader(t *testing.T) {
	for name, s := range map[string]*Stream{
		"empty":       NewStream(1),
		"one":         NewStream(1).Transfer(0, 0, 4),
		"two columns": many(20),
		"all":         many(maxColumns * maxDescriptors),
		"ELF":         NewELFStream(7).Transfer(3, 4096, 8192),
	} {
		b := s.Bytes()
		le := binary.LittleEndian
		if got := le.Uint32(b[12:]); int(got) != len(b) {
			t.Errorf("%s: the header has %d bytes, want %d", name, got, len(b))
		}
		ops := 0
		for at := 16; at < len(b); ops++ {
			size := map[byte]int{opWrite: 20, opBlockWrite: 12, opWait: 4, opPatch: 4}[b[at]]
			n := 16 // load PDI
			if size > 0 {
				n = int(le.Uint32(b[at+size:]))
			}
			if n <= 0 || at+n > len(b) {
				t.Fatalf("%s: operation %#x at byte %d has %d bytes", name, b[at], at, n)
			}
			at += n
		}
		if int(le.Uint32(b[8:])) != ops {
			t.Errorf("%s: the header has %d operations, want %d", name, le.Uint32(b[8:]), ops)
		}
	}
}

func many(n int) *Stream {
	s := NewStream(1)
	for i := range n {
		s.Transfer(i%5, 0, 64)
	}
	return s
}

func TestInvalidTransfers(t *testing.T) {
	for name, f := range map[string]func(){
		"too many transfers": func() { many(maxColumns*maxDescriptors + 1) },
		"no bytes":           func() { NewStream(1).Transfer(0, 0, 0) },
		"half a word":        func() { NewStream(1).Transfer(0, 0, 6) },
		"odd offset":         func() { NewStream(1).Transfer(0, 2, 4) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			f()
		}()
	}
}
