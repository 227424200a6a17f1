package cpu

import (
	"bytes"
	"runtime"
	"testing"
)

// Pieces are zeroed and do not share cache lines with their neighbors. A piece larger than a block
// gets its own block and does not close the open one.
func TestWeightStorePieces(t *testing.T) {
	var s weightStore
	var pieces []memory
	for i, size := range []int{1, 64, 65, 1 << 20, 0, weightBlockBytes + 1, 100} {
		m, err := s.alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		if uintptr(m.ptr())%alignment != 0 || len(m.m) != size ||
			cap(m.m) > (size+alignment-1)/alignment*alignment+alignment {
			t.Errorf("a piece of %d bytes lies at %p and has %d, up to %d", size, m.ptr(), len(m.m), cap(m.m))
		}
		if size < weightBlockBytes {
			if bytes.Count(m.m, []byte{0}) != size {
				t.Errorf("a piece of %d bytes is not zeros", size)
			}
			for j := range m.m {
				m.m[j] = byte(i + 1)
			}
		}
		pieces = append(pieces, m)
	}
	for i, m := range pieces {
		if len(m.m) < weightBlockBytes && bytes.Count(m.m, []byte{byte(i + 1)}) != len(m.m) {
			t.Errorf("piece %d overlaps another", i)
		}
	}
	if first, last := pieces[0].of, pieces[len(pieces)-1].of; first != last || pieces[5].of == first {
		t.Error("a large piece ends the block of the small ones, or lies in it")
	}
}

// A piece that is given back is lost to its owner alone, and its pages go to the system at once;
// the block goes with the last.
func TestWeightStoreRelease(t *testing.T) {
	var s weightStore
	const size = 1 << 20
	var pieces [3]memory
	for i := range pieces {
		m, err := s.alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		for j := range m.m {
			m.m[j] = byte(i + 1)
		}
		pieces[i] = m
	}
	pieces[1].free()
	// but for the pages that it has in part
	if runtime.GOOS == "linux" && bytes.Count(pieces[1].m, []byte{2}) > 2*4096 {
		t.Error("the pages of a piece that was given back are still there")
	}
	for _, i := range []int{0, 2} {
		if bytes.Count(pieces[i].m, []byte{byte(i + 1)}) != size {
			t.Errorf("piece %d has changed when its neighbour was given back", i)
		}
	}
	b := s.open
	pieces[0].free()
	if s.open != b || b.mem.m == nil {
		t.Error("the block has gone before its last piece")
	}
	pieces[2].free()
	if s.open != nil {
		t.Error("a block of which nothing is in use stays open")
	}
	m, err := s.alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.free()
	if m.of == b {
		t.Error("a piece of a block that has gone")
	}
}
