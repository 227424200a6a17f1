package dtype

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Element is a Go type with the same representation in checkpoints and buffers as in the memory of
// a little-endian machine.
type Element interface {
	float32 | float64 | BFloat16 | Float16 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// View reinterprets b, little-endian bytes, as a slice of elements that shares b's memory. It
// returns nil and false if b is not aligned for T, if its length is not a multiple of T's size, or
// if the host is big-endian.
func View[T Element](b []byte) (v []T, ok bool) {
	size := int(unsafe.Sizeof(*new(T)))
	if len(b)%size != 0 || (size > 1 && !littleEndian) {
		return nil, false
	}
	if len(b) == 0 {
		return []T{}, true
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), len(b)/size), true
}

// AsBytes returns the memory of v as bytes in host order. On a little-endian host it is the inverse
// of [View].
func AsBytes[T Element](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

// littleEndian reports whether the host is little-endian.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Float32s returns b as FP32 values, sharing memory if [View] succeeds and copying otherwise.
// Trailing bytes of an incomplete element are dropped. Write to the result only if b is known to be
// aligned.
func Float32s(b []byte) []float32 {
	return viewOrCopy(b, func(e []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(e)) })
}

// BFloat16s returns b as BF16 values, like [Float32s].
func BFloat16s(b []byte) []BFloat16 {
	return viewOrCopy(b, func(e []byte) BFloat16 { return BFloat16(binary.LittleEndian.Uint16(e)) })
}

// Float16s returns b as IEEE half-precision values, like [Float32s].
func Float16s(b []byte) []Float16 {
	return viewOrCopy(b, func(e []byte) Float16 { return Float16(binary.LittleEndian.Uint16(e)) })
}

// Int32s returns b as 32-bit integers, like [Float32s].
func Int32s(b []byte) []int32 {
	return viewOrCopy(b, func(e []byte) int32 { return int32(binary.LittleEndian.Uint32(e)) })
}

// Int64s returns b as 64-bit integers, like [Float32s].
func Int64s(b []byte) []int64 {
	return viewOrCopy(b, func(e []byte) int64 { return int64(binary.LittleEndian.Uint64(e)) })
}

func viewOrCopy[T Element](b []byte, read func(element []byte) T) []T {
	size := int(unsafe.Sizeof(*new(T)))
	b = b[:len(b)/size*size]
	if v, ok := View[T](b); ok {
		return v
	}
	v := make([]T, len(b)/size)
	for i := range v {
		v[i] = read(b[i*size:])
	}
	return v
}
