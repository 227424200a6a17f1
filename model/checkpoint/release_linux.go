package checkpoint

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Release lets the system take back the memory that holds a mapped tensor's pages; whoever reads Data again gets them from the file. It is for those who have made a copy in
// another form, so that a model does not count twice. Rearranged copies are kept.
func (t Tensor) Release() {
	if !t.Mapped || len(t.Data) == 0 {
		return
	}
	// Whole pages only: the first and the last are a neighbour's too.
	page := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))
	skip := -begin & (page - 1)
	if whole := (uintptr(len(t.Data)) - min(skip, uintptr(len(t.Data)))) &^ (page - 1); whole > 0 {
		_ = unix.Madvise(t.Data[skip:][:whole], unix.MADV_DONTNEED) // advice: without it the memory is given back later
	}
}
