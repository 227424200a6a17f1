// Package elftest writes full ELFs for tests, with the tables that npukit reads: kernels, instances,
// control code and relocations. AMD's assembler writes more, so XRT does not take these files.
package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// Instance is a program of the kernel main.
type Instance struct {
	Name   string
	Stream []byte // a transaction that patches descriptors with arguments
}

// Sections before those of the instances, and their entries.
const (
	shstrtab = 1 + iota
	strtab
	symtab
	dynstr
	dynsym
	firstInstance // control code, relocations and group of each

	perInstance     = 3
	symbolBytes     = 16
	patchDescriptor = 5
	patchOp         = 0x81
	blockWriteOp    = 1
)

type section struct {
	name                      string
	kind, link, info, entsize uint32
	data                      []byte
}

// Write returns a full ELF with the kernel main, which has a number of arguments, and its instances.
func Write(tb testing.TB, arguments int, instances ...Instance) []byte {
	tb.Helper()
	names, dynNames := &strings.Builder{}, &strings.Builder{}
	name := func(b *strings.Builder, s string) uint32 {
		at := b.Len()
		b.WriteString(s + "\x00")
		return uint32(at)
	}
	name(names, "")
	name(dynNames, "")
	symbols := symbol(0, 0, 0)
	symbols = append(symbols, symbol(name(names, "_Z4main"+strings.Repeat("Pc", arguments)), elf.STT_FUNC, 0)...)
	dynamic := symbol(0, 0, 0)
	var own []section
	for i, inst := range instances {
		control := firstInstance + perInstance*i
		symbols = append(symbols, symbol(name(names, inst.Name), elf.STT_OBJECT, 1)...)
		first := uint32(len(dynamic) / symbolBytes)
		for a := range arguments {
			dynamic = append(dynamic, symbol(name(dynNames, fmt.Sprint(a)), elf.STT_OBJECT, control)...)
		}
		group := binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 0}, uint32(control))
		own = append(own,
			section{fmt.Sprintf(".ctrltext.%d", i), uint32(elf.SHT_PROGBITS), 0, 0, 0, inst.Stream},
			section{".rela.dyn", uint32(elf.SHT_RELA), dynsym, 0, 12, relocations(tb, inst.Stream, first)},
			section{fmt.Sprintf(".group.%d", i), uint32(elf.SHT_GROUP), symtab, uint32(2 + i), 4, group})
	}
	return assemble(append([]section{
		{},
		{".shstrtab", uint32(elf.SHT_STRTAB), 0, 0, 0, nil},
		{".strtab", uint32(elf.SHT_STRTAB), 0, 0, 0, []byte(names.String())},
		{".symtab", uint32(elf.SHT_SYMTAB), strtab, 1, symbolBytes, symbols},
		{".dynstr", uint32(elf.SHT_STRTAB), 0, 0, 0, []byte(dynNames.String())},
		{".dynsym", uint32(elf.SHT_DYNSYM), dynstr, 1, symbolBytes, dynamic},
	}, own...))
}

func symbol(name uint32, kind elf.SymType, section int) []byte {
	b := make([]byte, symbolBytes)
	binary.LittleEndian.PutUint32(b, name)
	b[12] = byte(kind)
	binary.LittleEndian.PutUint16(b[14:], uint16(section))
	return b
}

// relocations returns a relocation for each patch of the stream. Symbols are those of the arguments,
// from first.
func relocations(tb testing.TB, stream []byte, first uint32) []byte {
	tb.Helper()
	le := binary.LittleEndian
	at := map[uint32]uint32{} // descriptors: byte in the stream by register
	var out []byte
	for i := 16; i+16 <= len(stream); {
		op, n := stream[i], uint32(0)
		switch op {
		case blockWriteOp:
			n = le.Uint32(stream[i+12:])
			at[le.Uint32(stream[i+8:])] = uint32(i + 16)
		case patchOp:
			n = le.Uint32(stream[i+4:])
			register, arg, plus := le.Uint32(stream[i+24:])-4, le.Uint32(stream[i+32:]), le.Uint32(stream[i+40:])
			for _, w := range []uint32{at[register], (first+arg)<<8 | patchDescriptor, plus} {
				out = le.AppendUint32(out, w)
			}
		case 0:
			n = 24
		case 8, 0x80:
			n = 16
		}
		if n == 0 {
			tb.Fatalf("elftest: operation %#x at byte %d of the stream", op, i)
		}
		i += int(n)
	}
	return out
}

// assemble lays out sections after the header, and their table after them.
func assemble(list []section) []byte {
	var names bytes.Buffer
	offsets := make([]uint32, len(list))
	for i, s := range list {
		offsets[i] = uint32(names.Len())
		names.WriteString(s.name + "\x00")
	}
	list[shstrtab].data = names.Bytes()
	le := binary.LittleEndian
	const headerBytes, sectionBytes = 52, 40
	out := make([]byte, headerBytes)
	var table []byte
	for i, s := range list {
		for len(out)%16 != 0 {
			out = append(out, 0)
		}
		for _, w := range []uint32{offsets[i], s.kind, 0, 0, uint32(len(out)), uint32(len(s.data)), s.link, s.info, 4,
			s.entsize} {
			table = le.AppendUint32(table, w)
		}
		out = append(out, s.data...)
	}
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	copy(out, "\x7fELF\x01\x01\x01\x45\x21")
	le.PutUint16(out[16:], uint16(elf.ET_EXEC))
	le.PutUint16(out[18:], 1)
	le.PutUint32(out[20:], 1)
	le.PutUint32(out[32:], uint32(len(out))) // of the table
	le.PutUint16(out[40:], headerBytes)
	le.PutUint16(out[46:], sectionBytes)
	le.PutUint16(out[48:], uint16(len(list)))
	le.PutUint16(out[50:], shstrtab)
	return append(out, table...)
}
