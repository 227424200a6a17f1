package controlcode

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Operations of a transaction. Those from opCustom on have their own length.
const (
	opWrite             = 0
	opBlockWrite        = 1
	opBlockSet          = 2
	opMaskWrite         = 3
	opMaskPoll          = 4
	opNoop              = 5
	opPreempt           = 6
	opMaskPollBusy      = 7
	opLoadPDI           = 8
	opLoadPM            = 9
	opCreateScratchpad  = 10
	opUpdateState       = 11
	opUpdateReg         = 12
	opCustom            = 0x80
	opPatch             = 0x81
	headerBytes         = 16
	descriptorWords     = 8
	blockWriteHeader    = 4 // words before the data
	shimDescriptors     = 0x1d000
	shimDescriptorsEnd  = 0x1d200
	shimDescriptorBytes = 0x20
)

// operation is one operation of a transaction, from byte at of the stream.
type operation struct {
	code  byte
	at    int
	words []uint32
}

// eachOperation calls f for each operation of a transaction, in order, until f returns an error.
func eachOperation(stream []byte, f func(operation) error) error {
	if len(stream) < headerBytes || len(stream)%4 != 0 {
		return fmt.Errorf("%d bytes are not a transaction", len(stream))
	}
	words := make([]uint32, len(stream)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(stream[4*i:])
	}
	if version := words[0] & 0xffff; version != 0x0100 {
		return fmt.Errorf("transaction format %d.%d, want 0.1", version&0xff, version>>8)
	}
	count, bytes := words[2], words[3]
	if bytes < headerBytes || bytes%4 != 0 || int64(bytes) > int64(len(stream)) {
		return fmt.Errorf("truncated: the header has %d bytes, the stream %d", bytes, len(stream))
	}
	words = words[:bytes/4]
	for at := headerBytes / 4; count > 0; count-- {
		if at >= len(words) {
			return fmt.Errorf("truncated: %d operations are missing", count)
		}
		n := operationWords(words[at:])
		if n == 0 || n > len(words)-at {
			return fmt.Errorf("operation %#x at byte %d has no valid length", words[at]&0xff, 4*at)
		}
		if err := f(operation{byte(words[at]), 4 * at, words[at : at+n]}); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// operationWords returns the length of the operation at the start of w, or 0 if it is not known.
func operationWords(w []uint32) int {
	stated := func(i int) uint32 {
		if i < len(w) {
			return w[i]
		}
		return 0
	}
	var bytes uint32
	switch code := w[0] & 0xff; code {
	case opWrite:
		bytes = stated(5)
	case opBlockWrite, opBlockSet:
		bytes = stated(3)
	case opMaskWrite, opMaskPoll, opMaskPollBusy:
		bytes = stated(6)
	case opNoop, opPreempt:
		bytes = 4
	case opLoadPDI, opLoadPM, opCreateScratchpad:
		bytes = 16
	case opUpdateState:
		bytes = 8
	case opUpdateReg:
		bytes = 12
	default:
		if code >= opCustom {
			bytes = stated(1)
		}
	}
	if bytes%4 != 0 {
		return 0
	}
	return int(bytes / 4)
}

// descriptor is a DMA descriptor of a shim tile.
type descriptor struct {
	register uint32
	extent   int64   // bytes from its base
	pitches  []int64 // bytes
}

// descriptors returns the descriptors that an operation writes: shim tiles are in row 0.
func (o operation) descriptors() (list []descriptor) {
	if o.code != opBlockWrite || len(o.words) < blockWriteHeader+descriptorWords {
		return nil
	}
	register, data := o.words[2], o.words[blockWriteHeader:]
	for ; len(data) >= descriptorWords; data = data[descriptorWords:] {
		in := register & 0xfffff
		if register>>20&0x1f != 0 || in < shimDescriptors || in >= shimDescriptorsEnd || in%shimDescriptorBytes != 0 {
			return list
		}
		list = append(list, descriptorOf(register, data[:descriptorWords]))
		register += shimDescriptorBytes
	}
	return list
}

// descriptorOf decodes a descriptor. Steps are stored minus one and count words. The two inner
// dimensions have sizes, the third covers the rest of the length; a dimension of size 0 covers all
// that is left. The iteration advances the base with every repetition.
func descriptorOf(register uint32, bd []uint32) descriptor {
	size := func(w uint32) int64 { return int64(w >> 20 & 0x3ff) }
	step := func(w uint32) int64 { return int64(w&0xfffff) + 1 }
	length := int64(bd[0])
	size0, size1, size2 := size(bd[3]), size(bd[4]), int64(1)
	switch {
	case size0 == 0:
		size0, size1 = length, 1
	case size1 == 0:
		size1 = (length + size0 - 1) / size0
	default:
		size2 = (length + size0*size1 - 1) / (size0 * size1)
	}
	d := descriptor{register: register}
	if length > 0 {
		d.extent = (size0-1)*step(bd[3]) + (size1-1)*step(bd[4]) + (size2-1)*step(bd[5]) + 1
	}
	repeats := int64(bd[6] >> 20 & 0x3f)
	d.extent = 4 * (d.extent + repeats*step(bd[6]))
	for _, dim := range []struct {
		size int64
		word uint32
	}{{size0, bd[3]}, {size1, bd[4]}, {size2, bd[5]}, {repeats + 1, bd[6]}} {
		if s := step(dim.word); dim.size > 1 && s > 1 {
			d.pitches = append(d.pitches, 4*s)
		}
	}
	return d
}

// Instructions reads the instruction stream of an xclbin's kernel, which patches its descriptors
// with the addresses of arguments.
func Instructions(stream []byte) (*Program, error) {
	p := &Program{}
	at := map[uint32]descriptor{}
	err := eachOperation(stream, func(o operation) error {
		for _, d := range o.descriptors() {
			at[d.register] = d
		}
		if o.code != opPatch {
			return nil
		}
		if len(o.words) < 11 {
			return fmt.Errorf("the patch at byte %d has %d words, want 11 or more", o.at, len(o.words))
		}
		register, arg, plus := o.words[6]-4, o.words[8], o.words[10]
		d, ok := at[register]
		if !ok {
			return fmt.Errorf("byte %d patches register %#x, which has no descriptor", o.at, register)
		}
		if err := p.add(int64(arg), int64(plus), d); err != nil {
			return fmt.Errorf("byte %d: %w", o.at, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("instructions: %w", err)
	}
	return p.finish(), nil
}

// maxArguments bounds argument numbers, far above the number that a kernel can have.
const maxArguments = 256

func (p *Program) add(arg, offset int64, d descriptor) error {
	if arg < 0 || arg >= maxArguments {
		return errors.New("the argument's number is not valid")
	}
	for int64(len(p.Arguments)) <= arg {
		p.Arguments = append(p.Arguments, Usage{})
	}
	u := &p.Arguments[arg]
	u.Reach = max(u.Reach, offset+d.extent)
	u.Pitches = append(u.Pitches, d.pitches...)
	p.Transfers++
	return nil
}
