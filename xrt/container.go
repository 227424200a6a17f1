package xrt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// XRT does not check the tables inside a file, and a truncated or damaged file crashes the process.
// Files are therefore checked before XRT reads them: sections must be inside the file, tables
// inside their sections, and offsets must be in range.

// Layout of an xclbin (AXLF), from xrt/detail/xclbin.h: the magic; a header with the length at byte
// 304 and the number of sections at byte 448; from byte 456 one entry of 40 bytes per section.
const (
	axlfMagic       = "xclbin2\x00"
	axlfLength      = 304
	axlfNumSections = 448
	axlfSections    = 456
	axlfSectionSize = 40
	axlfMaxSections = 1024 // section kinds are below 40
)

func checkXclbin(data []byte) error {
	if !bytes.HasPrefix(data, []byte(axlfMagic)) {
		return errors.New("not an xclbin: the file does not start with \"xclbin2\"")
	}
	size := uint64(len(data))
	if size < axlfSections {
		return fmt.Errorf("truncated: %d bytes, the header has %d", size, axlfSections)
	}
	le := binary.LittleEndian
	if length := le.Uint64(data[axlfLength:]); length > size {
		return fmt.Errorf("truncated: %d bytes according to the header, the file has %d", length, size)
	}
	n := uint64(le.Uint32(data[axlfNumSections:]))
	if n > axlfMaxSections || axlfSections+n*axlfSectionSize > size {
		return fmt.Errorf("damaged: a table of %d sections does not fit into %d bytes", n, size)
	}
	room := size // sections do not overlap, so the work below is bounded by the file size
	for i := range n {
		s := data[axlfSections+i*axlfSectionSize:][:axlfSectionSize]
		offset, length := le.Uint64(s[24:]), le.Uint64(s[32:])
		if offset > size || length > size-offset {
			return fmt.Errorf("damaged: section %d (kind %d) has %d bytes from byte %d, the file "+
				"has %d", i, le.Uint32(s), length, offset, size)
		}
		if length > room {
			return fmt.Errorf("damaged: sections overlap at section %d (kind %d)", i, le.Uint32(s))
		}
		room -= length
		if err := checkSection(le.Uint32(s), data[offset:offset+length]); err != nil {
			return fmt.Errorf("damaged: section %d (kind %d): %w", i, le.Uint32(s), err)
		}
	}
	return nil
}

// Tables of an xclbin that start with a 32-bit count: offset of the first entry, size of an entry,
// and offset and size of a NUL-terminated string in it.
var axlfTables = map[uint32]struct{ first, entry, text, textSize uint64 }{
	6:  {8, 40, 24, 16}, // MEM_TOPOLOGY
	26: {8, 40, 24, 16}, // GROUP_TOPOLOGY
	7:  {4, 12, 0, 0},   // CONNECTIVITY
	27: {4, 12, 0, 0},   // GROUP_CONNECTIVITY
	8:  {8, 80, 16, 64}, // IP_LAYOUT
}

const axlfPartition = 32 // AIE_PARTITION

func checkSection(kind uint32, s []byte) error {
	if kind == axlfPartition {
		return checkPartition(s)
	}
	table, ok := axlfTables[kind]
	if !ok {
		return nil
	}
	size := uint64(len(s))
	if size < table.first {
		return fmt.Errorf("a table of %d bytes", size)
	}
	n := uint64(binary.LittleEndian.Uint32(s))
	if n > (size-table.first)/table.entry {
		return fmt.Errorf("%d entries do not fit into %d bytes", n, size)
	}
	for i := range n {
		text := s[table.first+i*table.entry+table.text:][:table.textSize]
		if table.textSize > 0 && !bytes.Contains(text, []byte{0}) {
			return fmt.Errorf("the name of entry %d is not terminated", i)
		}
	}
	return nil
}

// checkPartition checks the arrays of a partition: PDIs of 96 bytes, their images, and their groups
// of 96 bytes with kernel numbers. An array is a count and an offset from the start of the section.
func checkPartition(s []byte) error {
	const partition, pdi, group = 184, 96, 96
	if len(s) < partition {
		return fmt.Errorf("a partition of %d bytes", len(s))
	}
	le := binary.LittleEndian
	array := func(at []byte, entry uint64) (entries []byte, err error) {
		n, offset := uint64(le.Uint32(at)), uint64(le.Uint32(at[4:]))
		if offset > uint64(len(s)) || n > (uint64(len(s))-offset)/entry {
			return nil, fmt.Errorf("an array of %d entries of %d bytes from byte %d does not fit "+
				"into %d bytes", n, entry, offset, len(s))
		}
		return s[offset:][:n*entry], nil
	}
	lastZero := bytes.LastIndexByte(s, 0)
	text := func(offset uint32) error {
		if int64(offset) > int64(lastZero) {
			return fmt.Errorf("string at byte %d of %d is not terminated", offset, len(s))
		}
		return nil
	}
	_, columns := array(s[40:], 2)
	pdis, err := array(s[120:], pdi)
	if err := errors.Join(err, columns, text(le.Uint32(s[4:])), text(le.Uint32(s[128:]))); err != nil {
		return err
	}
	room := len(s) // for groups, which do not overlap
	for ; len(pdis) > 0; pdis = pdis[pdi:] {
		_, image := array(pdis[16:], 1)
		groups, err := array(pdis[24:], group)
		if err := errors.Join(err, image); err != nil {
			return err
		}
		if room -= len(groups); room < 0 {
			return errors.New("groups overlap")
		}
		for ; len(groups) > 0; groups = groups[group:] {
			_, kernels := array(groups[16:], 8)
			_, before := array(groups[24:], 4)
			if err := errors.Join(kernels, before, text(le.Uint32(groups))); err != nil {
				return err
			}
		}
	}
	return nil
}
