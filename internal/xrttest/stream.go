package xrttest

import "encoding/binary"

// Stream builds the instructions of a program: descriptors of shim DMAs with their arguments, and a
// wait for the last one. The format is the one that an NPU's controller accepts; the computation is
// a function set with [Emulator.Register].
//
// Format: header and operations of aie-rt's transaction format 0.1; shim registers from AMD's
// AM020.
type Stream struct {
	words []uint32
	ops   uint32
	next  uint32 // number of descriptors so far
}

// Operations and registers.
const (
	opWrite      = 0
	opBlockWrite = 1
	opLoadPDI    = 8
	opWait       = 0x80
	opPatch      = 0x81

	regDescriptors = 0x1d000 // 16 descriptors of 8 words
	regQueue       = 0x1d204 // task queue of the first channel
	columnShift    = 25
	maxDescriptors = 15 // per column; the last one holds the program's number
	maxColumns     = 8
)

// NewStream returns a program for an xclbin kernel. Streams with different numbers are different
// programs, even if their transfers are equal.
func NewStream(number uint32) *Stream {
	s := &Stream{}
	s.op(opWrite, 0, regDescriptors+0x20*maxDescriptors, 0, number, 24)
	return s
}

// NewELFStream returns a program for a full ELF. Its first operation loads the array configuration.
func NewELFStream(number uint32) *Stream {
	s := &Stream{}
	s.op(opLoadPDI|1<<16, 0, 0, 0)
	s.op(opWrite, 0, regDescriptors+0x20*maxDescriptors, 0, number, 24)
	return s
}

func (s *Stream) op(words ...uint32) {
	s.words = append(s.words, words...)
	s.ops++
}

// Transfer adds a transfer of n bytes of an argument, starting at offset. n and offset must be
// multiples of 4, and a stream may have at most 120 transfers; otherwise Transfer panics.
func (s *Stream) Transfer(arg int, offset, n uint32) *Stream {
	return s.transfer(arg, offset, n, 0, 0)
}

// Rows adds a strided transfer: a number of rows of n bytes, whose starts are pitch bytes apart.
// Sizes and offset must be multiples of 4, n below 4096; otherwise Rows panics.
func (s *Stream) Rows(arg int, offset, rows, n, pitch uint32) *Stream {
	if n/4 >= 1<<10 || pitch%4 != 0 || pitch == 0 {
		panic("xrttest: Rows: invalid size or pitch")
	}
	// The inner dimension has the words of a row, one after the other.
	return s.transfer(arg, offset, rows*n, n/4<<20, pitch/4-1)
}

func (s *Stream) transfer(arg int, offset, n, inner, outer uint32) *Stream {
	column, index := s.next/maxDescriptors, s.next%maxDescriptors
	if column >= maxColumns || n%4 != 0 || offset%4 != 0 || n == 0 {
		panic("xrttest: a transfer has an invalid size or offset, or is one too many")
	}
	s.next++
	reg := column<<columnShift | (regDescriptors + 0x20*index)
	// Length in words; base, filled in by the patch; two dimensions; burst of 512 bytes; cacheable; no
	// iteration; valid.
	s.op(opBlockWrite, 0, reg, 48, n/4, offset, 0, inner, 0x80000000|outer, 0x02000000, 0, 0x02000000)
	s.op(opPatch, 48, 0, 0, 0, 0, reg+4, 0, uint32(arg), 0, offset, 0)
	s.op(opWrite, 0, column<<columnShift|regQueue, 0, index, 24)
	return s
}

// Bytes returns the program, ending with a wait for the first column.
func (s *Stream) Bytes() []byte {
	words := append(s.words[:len(s.words):len(s.words)], opWait, 16, 0, 1<<16|1<<8)
	size := uint32(16 + 4*len(words))
	// Version 0.1, generation 4 with 6 rows; 8 columns and one row of memory tiles; operations;
	// bytes.
	header := []uint32{0x06040100, 0x00000108, s.ops + 1, size}
	b := make([]byte, 0, size)
	for _, w := range append(header, words...) {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
