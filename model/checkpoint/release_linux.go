package checkpoint

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// release gives back the memory of whole pages of a mapping: those of a file are read again when
// they are touched, others become zeros.
func release(data []byte) {
	if len(data) == 0 {
		return
	}
	// The first page and the last are a neighbour's too.
	page := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	skip := -begin & (page - 1)
	if whole := (uintptr(len(data)) - min(skip, uintptr(len(data)))) &^ (page - 1); whole > 0 {
		_ = unix.Madvise(data[skip:][:whole], unix.MADV_DONTNEED) // advice: without it the memory is given back later
	}
}
