package xrt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// checkELF checks everything that XRT reads from an ELF: sections, symbols and their names, groups,
// notes and relocations. NPU ELFs are 32-bit and little-endian.
func checkELF(data []byte) error {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("not a complete ELF file: %w", err)
	}
	if f.Class != elf.ELFCLASS32 || f.Data != elf.ELFDATA2LSB {
		return fmt.Errorf("%v, %v: NPU programs are 32-bit and little-endian", f.Class, f.Data)
	}
	size := uint64(len(data))
	for _, p := range f.Progs {
		if p.Off > size || p.Filesz > size-p.Off {
			return fmt.Errorf("damaged: a segment has %d bytes from byte %d, the file has %d",
				p.Filesz, p.Off, size)
		}
	}
	room := size // sections do not overlap, so the work below is bounded by the file size
	for _, s := range f.Sections {
		if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL {
			continue
		}
		if s.Offset > size || s.FileSize > size-s.Offset {
			return fmt.Errorf("damaged: section %q has %d bytes from byte %d, the file has %d",
				s.Name, s.FileSize, s.Offset, size)
		}
		if s.FileSize > room {
			return fmt.Errorf("damaged: sections overlap at %q", s.Name)
		}
		room -= s.FileSize
	}
	symbols := -1
	for _, s := range f.Sections {
		var err error
		switch s.Type {
		case elf.SHT_SYMTAB, elf.SHT_DYNSYM:
			var n int
			n, err = checkSymbols(f, data, s)
			if s.Type == elf.SHT_DYNSYM {
				symbols = n
			}
		case elf.SHT_GROUP:
			err = checkGroup(f, content(data, s))
		case elf.SHT_NOTE:
			err = checkNotes(content(data, s))
		}
		if err != nil {
			return fmt.Errorf("damaged: section %q: %w", s.Name, err)
		}
	}
	for _, s := range f.Sections {
		if s.Type == elf.SHT_RELA {
			if err := checkRelocations(content(data, s), symbols); err != nil {
				return fmt.Errorf("damaged: section %q: %w", s.Name, err)
			}
		}
	}
	return nil
}

func content(data []byte, s *elf.Section) []byte { return data[s.Offset:][:s.FileSize] }

// checkSymbols checks symbols, entries of 16 bytes with a name at byte 0 and a section at byte 14.
// Values and sizes are specific to aiebu. It returns the number of symbols.
func checkSymbols(f *elf.File, data []byte, s *elf.Section) (n int, err error) {
	const entry = 16
	if s.Entsize != entry || s.FileSize%entry != 0 || int(s.Link) >= len(f.Sections) ||
		f.Sections[s.Link].Type != elf.SHT_STRTAB {
		return 0, errors.New("not a symbol table")
	}
	names := content(data, f.Sections[s.Link])
	if len(names) == 0 || names[len(names)-1] != 0 {
		return 0, errors.New("the last name is not terminated")
	}
	for table := content(data, s); len(table) > 0; table = table[entry:] {
		name, index := binary.LittleEndian.Uint32(table), binary.LittleEndian.Uint16(table[14:])
		if uint64(name) >= uint64(len(names)) {
			return 0, fmt.Errorf("symbol %d has its name at byte %d of %d", n, name, len(names))
		}
		if index < uint16(elf.SHN_LORESERVE) && int(index) >= len(f.Sections) {
			return 0, fmt.Errorf("symbol %d is in section %d of %d", n, index, len(f.Sections))
		}
		n++
	}
	return n, nil
}

// checkGroup checks a section group: a flag and section numbers.
func checkGroup(f *elf.File, group []byte) error {
	if len(group) < 4 || len(group)%4 != 0 {
		return fmt.Errorf("a group of %d bytes", len(group))
	}
	for list := group[4:]; len(list) > 0; list = list[4:] {
		if n := binary.LittleEndian.Uint32(list); uint64(n) >= uint64(len(f.Sections)) {
			return fmt.Errorf("the group has section %d of %d", n, len(f.Sections))
		}
	}
	return nil
}

// checkNotes checks the lengths of names and contents, which are padded to words.
func checkNotes(notes []byte) error {
	for len(notes) > 0 {
		if len(notes) < 12 {
			return errors.New("truncated note")
		}
		name, desc := uint64(binary.LittleEndian.Uint32(notes)),
			uint64(binary.LittleEndian.Uint32(notes[4:]))
		need := 12 + (name+3)&^3 + desc
		if need > uint64(len(notes)) {
			return fmt.Errorf("a note of %d bytes in %d", need, len(notes))
		}
		notes = notes[min(12+(name+3)&^3+(desc+3)&^3, uint64(len(notes))):]
	}
	return nil
}

// checkRelocations checks relocations, entries of 12 bytes: offset, symbol and kind, addend.
func checkRelocations(list []byte, symbols int) error {
	const entry = 12
	if len(list)%entry != 0 {
		return fmt.Errorf("a table of %d bytes", len(list))
	}
	for ; len(list) > 0; list = list[entry:] {
		if symbol := binary.LittleEndian.Uint32(list[4:]) >> 8; int64(symbol) >= int64(symbols) {
			return fmt.Errorf("a relocation of symbol %d of %d", symbol, symbols)
		}
	}
	return nil
}
