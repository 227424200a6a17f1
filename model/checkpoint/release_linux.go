package checkpoint

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// release frees whole pages of a mapping. Pages of a file are read again at the next access; others
// become zero.
func release(data []byte) {
	if len(data) == 0 {
		return
	}
	// Other tensors may share the first and the last page.
	page := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	skip := -begin & (page - 1)
	if whole := (uintptr(len(data)) - min(skip, uintptr(len(data)))) &^ (page - 1); whole > 0 {
		_ = unix.Madvise(data[skip:][:whole], unix.MADV_DONTNEED) // only advice
	}
}
