package controlcode

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Kinds of relocations of aiebu.
const (
	patchDescriptor = 5 // base address of a shim tile's descriptor
	patchAddress    = 8 // 64-bit address of a section, such as an array configuration
)

// Sizes of the tables, and bounds far above those of real files.
const (
	symbolBytes     = 16
	relocationBytes = 12
	maxName         = 4 << 10
	maxContents     = 128 << 20 // of all sections that are read, decompressed
)

// ELF reads a program of a full ELF: the one with the kernel and the instance of the name, such as
// "main:o_ffn". Sections may be compressed.
func ELF(data []byte, kernel string) (*Program, error) {
	f, err := open(data)
	if err != nil {
		return nil, err
	}
	p, err := f.program(kernel)
	if err != nil {
		return nil, fmt.Errorf("ELF: %w", err)
	}
	return p, nil
}

// Kernels returns the names of all programs of a full ELF, such as "main:o_ffn".
func Kernels(data []byte) ([]string, error) {
	f, err := open(data)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, i := range f.instances {
		list = append(list, i.kernel+":"+i.name)
	}
	return list, nil
}

// file is a full ELF. A kernel's symbol has the mangled name of a C++ function, whose parameters are
// the arguments. The symbols of its instances follow it, each with a group of sections.
type file struct {
	*elf.File
	data      []byte
	contents  map[int][]byte   // of the sections read so far
	tables    map[int][]symbol // likewise, of symbol tables
	left      uint64           // of maxContents
	instances []instance
}

type instance struct {
	kernel, name string
	arguments    int
	control      int // section of the control code
}

func open(data []byte) (*file, error) {
	ef, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("ELF: %w", err)
	}
	if ef.Class != elf.ELFCLASS32 || ef.Data != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("ELF: %v, %v: NPU programs are 32-bit and little-endian", ef.Class, ef.Data)
	}
	f := &file{File: ef, data: data, contents: map[int][]byte{}, tables: map[int][]symbol{}, left: maxContents}
	if err := f.readInstances(); err != nil {
		return nil, fmt.Errorf("ELF: %w", err)
	}
	return f, nil
}

// content returns a section's data, decompressed.
func (f *file) content(i int) ([]byte, error) {
	if i < 0 || i >= len(f.Sections) {
		return nil, fmt.Errorf("section %d of %d", i, len(f.Sections))
	}
	if data, ok := f.contents[i]; ok {
		return data, nil
	}
	s := f.Sections[i]
	if size := uint64(len(f.data)); s.Offset > size || s.FileSize > size-s.Offset {
		return nil, fmt.Errorf("section %q has %d bytes from byte %d, the file has %d", s.Name, s.FileSize,
			s.Offset, size)
	}
	data := f.data[s.Offset:][:s.FileSize]
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		if s.Size > f.left {
			return nil, fmt.Errorf("section %q: more than %d bytes in all sections", s.Name, maxContents)
		}
		f.left -= s.Size
		var err error
		if data, err = inflate(data, s.Size); err != nil {
			return nil, fmt.Errorf("section %q: %w", s.Name, err)
		}
	}
	f.contents[i] = data
	return data, nil
}

// inflate decompresses a section. Unlike debug/elf it takes sections that are loaded, as those of an
// NPU program are.
func inflate(data []byte, size uint64) ([]byte, error) {
	const (
		header = 12   // kind, size, alignment
		ratio  = 1032 // largest of zlib
	)
	if len(data) < header || size > ratio*uint64(len(data)) {
		return nil, fmt.Errorf("%d bytes cannot be compressed to %d", size, len(data))
	}
	if kind := elf.CompressionType(binary.LittleEndian.Uint32(data)); kind != elf.COMPRESS_ZLIB {
		return nil, fmt.Errorf("%v: want %v", kind, elf.COMPRESS_ZLIB)
	}
	r, err := zlib.NewReader(bytes.NewReader(data[header:]))
	if err != nil {
		return nil, err
	}
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, err
	}
	return out, r.Close()
}

// symbol is an entry of a symbol table. debug/elf does not read tables with the values of aiebu.
type symbol struct {
	name    string
	value   uint32
	kind    elf.SymType
	section int
}

func (f *file) symbols(section int) ([]symbol, error) {
	if list, ok := f.tables[section]; ok {
		return list, nil
	}
	table, err := f.content(section)
	if err != nil {
		return nil, err
	}
	s := f.Sections[section]
	names, err := f.content(int(s.Link))
	if err != nil {
		return nil, err
	}
	if len(table)%symbolBytes != 0 {
		return nil, fmt.Errorf("section %q: %d bytes are not a symbol table", s.Name, len(table))
	}
	var list []symbol
	for ; len(table) > 0; table = table[symbolBytes:] {
		at := binary.LittleEndian.Uint32(table)
		if int64(at) > int64(len(names)) {
			return nil, fmt.Errorf("section %q: symbol %d has no name", s.Name, len(list))
		}
		name, _, ended := bytes.Cut(names[at:min(len(names), int(at)+maxName)], []byte{0})
		if !ended && len(name) == maxName {
			return nil, fmt.Errorf("section %q: the name of symbol %d has more than %d bytes", s.Name, len(list),
				maxName)
		}
		list = append(list, symbol{string(name), binary.LittleEndian.Uint32(table[4:]), elf.SymType(table[12] & 0xf),
			int(binary.LittleEndian.Uint16(table[14:]))})
	}
	f.tables[section] = list
	return list, nil
}

// readInstances reads the kernels, their instances, and each instance's control code.
func (f *file) readInstances() error {
	i := slices.IndexFunc(f.Sections, func(s *elf.Section) bool { return s.Type == elf.SHT_SYMTAB })
	if i < 0 {
		return errors.New("no symbol table: not a full ELF")
	}
	list, err := f.symbols(i)
	if err != nil {
		return err
	}
	groups := map[int]int{} // section of the control code by the symbol that names the group
	for n, s := range f.Sections {
		if s.Type != elf.SHT_GROUP || int(s.Link) != i {
			continue
		}
		members, err := f.content(n)
		if err != nil {
			return err
		}
		for at := 4; at+4 <= len(members); at += 4 {
			m := int(binary.LittleEndian.Uint32(members[at:]))
			if m < len(f.Sections) && strings.HasPrefix(f.Sections[m].Name, ".ctrltext") {
				if _, twice := groups[int(s.Info)]; twice {
					return fmt.Errorf("section %q has control code in two sections", s.Name)
				}
				groups[int(s.Info)] = m
			}
		}
	}
	for n, s := range list {
		if s.kind != elf.STT_OBJECT {
			continue
		}
		control, ok := groups[n]
		if !ok || s.section >= len(list) || list[s.section].kind != elf.STT_FUNC {
			continue
		}
		kernel, arguments, err := demangle(list[s.section].name)
		if err != nil {
			return err
		}
		f.instances = append(f.instances, instance{kernel, s.name, arguments, control})
	}
	if len(f.instances) == 0 {
		return errors.New("no kernel with control code: not a full ELF")
	}
	return nil
}

// demangle returns the name and the number of parameters of a function of pointers to char, such as
// _Z4mainPcPc.
func demangle(s string) (name string, arguments int, err error) {
	rest, ok := strings.CutPrefix(s, "_Z")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	n, errNumber := strconv.Atoi(rest[:digits])
	if !ok || errNumber != nil || n > len(rest)-digits {
		return "", 0, fmt.Errorf("kernel symbol %q is not a mangled function", s)
	}
	name, parameters := rest[digits:][:n], rest[digits+n:]
	if strings.Trim(parameters, "Pcv") != "" || len(parameters)/2 > maxArguments {
		return "", 0, fmt.Errorf("kernel symbol %q: parameters are not pointers", s)
	}
	return name, strings.Count(parameters, "Pc"), nil
}

// program reads the relocations of an instance. Each patches a descriptor in the control code with
// the address of an argument, whose number is the symbol's name.
func (f *file) program(kernel string) (*Program, error) {
	i := slices.IndexFunc(f.instances, func(i instance) bool { return i.kernel+":"+i.name == kernel })
	if i < 0 {
		return nil, fmt.Errorf("no kernel %q, it has %s", kernel, f.names())
	}
	inst := f.instances[i]
	code, err := f.content(inst.control)
	if err != nil {
		return nil, err
	}
	descriptors := map[uint32]descriptor{} // by the byte of the control code at which they start
	err = eachOperation(code, func(o operation) error {
		for k, d := range o.descriptors() {
			descriptors[uint32(o.at+4*(blockWriteHeader+descriptorWords*k))] = d
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("section %q: %w", f.Sections[inst.control].Name, err)
	}
	p := &Program{Arguments: make([]Usage, inst.arguments)}
	for n, s := range f.Sections {
		if s.Type != elf.SHT_RELA || int(s.Link) >= len(f.Sections) {
			continue
		}
		table, err := f.content(n)
		if err != nil {
			return nil, err
		}
		symbols, err := f.symbols(int(s.Link))
		if err != nil {
			return nil, err
		}
		if err := p.relocate(table, symbols, inst, descriptors); err != nil {
			return nil, fmt.Errorf("section %q: %w", s.Name, err)
		}
	}
	return p.finish(), nil
}

func (f *file) names() string {
	var list []string
	for _, i := range f.instances {
		list = append(list, i.kernel+":"+i.name)
	}
	return strings.Join(list, ", ")
}

func (p *Program) relocate(table []byte, symbols []symbol, inst instance, descriptors map[uint32]descriptor) error {
	if len(table)%relocationBytes != 0 {
		return fmt.Errorf("%d bytes are not relocations", len(table))
	}
	le := binary.LittleEndian
	for ; len(table) > 0; table = table[relocationBytes:] {
		offset, info, addend := le.Uint32(table), le.Uint32(table[4:]), int64(le.Uint32(table[8:]))
		if int64(info>>8) >= int64(len(symbols)) {
			return fmt.Errorf("a relocation of symbol %d of %d", info>>8, len(symbols))
		}
		s := symbols[info>>8]
		if s.section != inst.control || info&0xff == patchAddress {
			continue
		}
		arg, err := strconv.ParseUint(s.name, 10, 16)
		if err != nil || info&0xff != patchDescriptor {
			return fmt.Errorf("relocation kind %d of symbol %q at byte %d is not known", info&0xff, s.name, offset)
		}
		d, ok := descriptors[offset]
		if !ok {
			return fmt.Errorf("byte %d of the control code is patched, but is no descriptor", offset)
		}
		if int(arg) >= inst.arguments {
			return fmt.Errorf("argument %d of %d is used", arg, inst.arguments)
		}
		if err := p.add(int64(arg), addend, d); err != nil {
			return err
		}
	}
	return nil
}

// finish sorts the pitches.
func (p *Program) finish() *Program {
	for i := range p.Arguments {
		u := &p.Arguments[i]
		slices.Sort(u.Pitches)
		u.Pitches = slices.Compact(u.Pitches)
	}
	return p
}
