package xrttest

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// xclbin sections that describe a kernel's arguments and their memories (xrt/detail/xclbin.h).
const (
	sectionMetadata          = 2
	sectionConnectivity      = 7
	sectionGroupConnectivity = 27
)

// WideXclbin returns Xclbin with n data buffers, 5 to 32, instead of five.
func WideXclbin(n int) []byte {
	if n < 5 || n > 32 {
		panic("xrttest: WideXclbin: want 5 to 32 buffers")
	}
	le := binary.LittleEndian
	file := Xclbin()
	sections := int(le.Uint32(file[448:]))
	for i := range sections {
		entry := file[456+40*i:][:40]
		kind, offset, size := le.Uint32(entry), le.Uint64(entry[24:]), le.Uint64(entry[32:])
		old := file[offset : offset+size]
		var section []byte
		switch kind {
		case sectionMetadata:
			var args strings.Builder
			for k := 5; k < n; k++ {
				fmt.Fprintf(&args,
					`<arg name="bo%d" addressQualifier="1" id="%d" size="0x8" offset="0x%x" `+
						`hostOffset="0x0" hostSize="0x8" type="void*"/>`,
					k, 3+k, 0x14+8*k)
			}
			section = []byte(strings.Replace(string(old), "<instance ", args.String()+"<instance ", 1))
		// a count, then argument, kernel and memory of each connection
		case sectionConnectivity, sectionGroupConnectivity:
			section = le.AppendUint32(nil, le.Uint32(old)+uint32(n-5))
			section = append(section, old[4:4+12*le.Uint32(old)]...)
			for k := 5; k < n; k++ {
				section = le.AppendUint32(le.AppendUint32(le.AppendUint32(section, uint32(3+k)), 0), 0)
			}
		default:
			continue
		}
		for len(file)%8 != 0 {
			file = append(file, 0)
		}
		entry = file[456+40*i:][:40]
		le.PutUint64(entry[24:], uint64(len(file)))
		le.PutUint64(entry[32:], uint64(len(section)))
		file = append(file, section...)
	}
	le.PutUint64(file[304:], uint64(len(file)))
	return file
}
