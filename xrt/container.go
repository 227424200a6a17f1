package xrt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// XRT takes the tables inside a file at their word, and a file that was cut off or is something else altogether ends the process. So the
// containers are checked here first: every section lies inside the file. What is inside the sections is XRT's business.

// Layout of an xclbin (AXLF), after xrt/detail/xclbin.h: the magic, a header whose length field lies at byte 304, the number of
// sections at byte 448, and from byte 456 one entry of 40 bytes per section.
const (
	axlfMagic       = "xclbin2\x00"
	axlfLength      = 304
	axlfNumSections = 448
	axlfSections    = 456
	axlfSectionSize = 40
	axlfMaxSections = 1024 // the kinds of section end below 40
)

func checkXclbin(data []byte) error {
	if !bytes.HasPrefix(data, []byte(axlfMagic)) {
		return errors.New("not an xclbin: the file does not start with \"xclbin2\"")
	}
	size := uint64(len(data))
	if size < axlfSections {
		return fmt.Errorf("cut off: %d bytes, the header alone has %d", size, axlfSections)
	}
	le := binary.LittleEndian
	if length := le.Uint64(data[axlfLength:]); length > size {
		return fmt.Errorf("cut off: the header says %d bytes, the file has %d", length, size)
	}
	n := uint64(le.Uint32(data[axlfNumSections:]))
	if n > axlfMaxSections || axlfSections+n*axlfSectionSize > size {
		return fmt.Errorf("damaged: a table of %d sections does not fit into %d bytes", n, size)
	}
	for i := range n {
		s := data[axlfSections+i*axlfSectionSize:][:axlfSectionSize]
		offset, length := le.Uint64(s[24:]), le.Uint64(s[32:])
		if offset > size || length > size-offset {
			return fmt.Errorf("damaged: section %d (kind %d) has %d bytes from byte %d, the file has %d", i, le.Uint32(s), length, offset, size)
		}
	}
	return nil
}

func checkELF(data []byte) error {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("not a whole ELF file: %w", err)
	}
	size := uint64(len(data))
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL && (s.Offset > size || s.FileSize > size-s.Offset) {
			return fmt.Errorf("damaged: section %q has %d bytes from byte %d, the file has %d", s.Name, s.FileSize, s.Offset, size)
		}
	}
	return nil
}
