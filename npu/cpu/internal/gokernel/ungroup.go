package gokernel

import (
	"encoding/binary"
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"

	"github.com/npukit/npukit/npu/dtype"
)

// groupView is one group of a weight.
type groupView struct {
	*kernel.Form
	scales []byte
	quants []uint32
}

// viewGroup returns group g of the weight at p, whose rows have k elements.
func viewGroup(p unsafe.Pointer, code int32, k, g int64) groupView {
	f := kernel.FormOf(code)
	each, scales := f.GroupBytes(k), f.ScaleBytes(k)
	b := unsafe.Slice((*byte)(unsafe.Add(p, g*each)), each)
	return groupView{f, b[:scales], kernel.Words(b[scales:])}
}

func halfAt(b []byte) float32 { return dtype.Float16(binary.LittleEndian.Uint16(b)).Float32() }

// factors returns the scale and the minimum of part (of 16 elements) of a lane: a value is
// scale*(q-bias) - min.
func (g *groupView) factors(part, lane int) (scale, minimum float32) {
	s := g.scales
	switch g.Form.Scales {
	case kernel.PlainScales:
		return halfAt(s[part/2*32+2*lane:]), 0
	case kernel.AffineScales:
		s = s[part/2*64+2*lane:]
		return halfAt(s), -halfAt(s[32:])
	case kernel.NestedScales:
		s = s[part/16*320:]
		small := s[64+part/2%8*32+lane:]
		return halfAt(s[2*lane:]) * float32(small[0]), halfAt(s[32+2*lane:]) * float32(small[16])
	default:
		s = s[part/16*288:]
		return halfAt(s[2*lane:]) * float32(int8(s[32+part%16*16+lane])), 0
	}
}

// quantsOf fills dst with the 32 quants of block b of a lane.
func (g *groupView) quantsOf(dst *[32]uint8, b, lane int) {
	q := g.quants[b*g.Words*kernel.GroupRows+lane:]
	if g.High < 0 {
		for j := range 8 {
			binary.LittleEndian.PutUint32(dst[4*j:], q[j*kernel.GroupRows])
		}
		return
	}
	for j := range 4 {
		v := q[j*kernel.GroupRows]
		binary.LittleEndian.PutUint32(dst[4*j:], v&0x0f0f0f0f)
		binary.LittleEndian.PutUint32(dst[16+4*j:], v>>4&0x0f0f0f0f)
	}
	switch g.High {
	case 1:
		for e, at := range highBit {
			dst[e] |= uint8(q[4*kernel.GroupRows]>>at&1) << 4
		}
	case 2:
		for e, at := range highBit {
			dst[e] |= uint8(q[(4+int(at%16/8))*kernel.GroupRows]>>(at/16*16+at%8*2)&3) << 4
		}
	}
}

// UngroupRow dequantizes row r of the weight at p into dst. The result is exact: it equals the
// dequantized blocks of the checkpoint bit for bit.
func UngroupRow(dst []float32, p unsafe.Pointer, code int32, r int64) {
	g := viewGroup(p, code, int64(len(dst)), r/kernel.GroupRows)
	lane := int(r % kernel.GroupRows)
	var q [32]uint8
	for b := range len(dst) / 32 {
		g.quantsOf(&q, b, lane)
		for half := range 2 {
			scale, minimum := g.factors(2*b+half, lane)
			to := dst[32*b+16*half:][:16]
			for i := range to {
				to[i] = float32(scale*float32(int32(q[16*half+i])-g.Bias)) - minimum
			}
		}
	}
}
