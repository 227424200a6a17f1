package xrttest

import "encoding/binary"

// Stream builds the instructions of a program: descriptors of shim DMAs with the arguments that they reach, and a wait for the last one. It
// is what an NPU's controller would accept, as far as format goes; the array behind it is a function given to [Emulator.Register].
//
// Format: the header and operations of aie-rt's transaction format 0.1; the shim's registers as in AMD's AM020.
type Stream struct {
	words []uint32
	ops   uint32
	next  uint32 // descriptors so far
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
	maxDescriptors = 15 // per column; the last one carries the program's number
	maxColumns     = 8
)

// NewStream starts a program for a kernel of an xclbin. Streams with different numbers are different programs, even with the same transfers.
func NewStream(number uint32) *Stream {
	s := &Stream{}
	s.op(opWrite, 0, regDescriptors+0x20*maxDescriptors, 0, number, 24)
	return s
}

// NewELFStream starts a program for a full ELF: its first operation loads the array's configuration.
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

// Transfer moves n bytes of an argument, from byte offset on. n and offset are multiples of 4, and a stream has at most 120 transfers.
func (s *Stream) Transfer(arg int, offset, n uint32) *Stream {
	column, index := s.next/maxDescriptors, s.next%maxDescriptors
	if column >= maxColumns || n%4 != 0 || offset%4 != 0 || n == 0 {
		panic("xrttest: a transfer that no stream can have")
	}
	s.next++
	reg := column<<columnShift | (regDescriptors + 0x20*index)
	// Length in words; base, which the patch fills in; no steps; a burst of 512 bytes; cacheable; no iteration; valid.
	s.op(opBlockWrite, 0, reg, 48, n/4, offset, 0, 0, 0x80000000, 0x02000000, 0, 0x02000000)
	s.op(opPatch, 48, 0, 0, 0, 0, reg+4, 0, uint32(arg), 0, offset, 0)
	s.op(opWrite, 0, column<<columnShift|regQueue, 0, index, 24)
	return s
}

// Bytes is the finished program, ending with a wait for the first column.
func (s *Stream) Bytes() []byte {
	words := append(s.words[:len(s.words):len(s.words)], opWait, 16, 0, 1<<16|1<<8)
	size := uint32(16 + 4*len(words))
	// Version 0.1, generation 4 with 6 rows; 8 columns and one row of memory tiles; operations; bytes.
	header := []uint32{0x06040100, 0x00000108, s.ops + 1, size}
	b := make([]byte, 0, size)
	for _, w := range append(header, words...) {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
