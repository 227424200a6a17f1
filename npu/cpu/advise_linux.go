package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for large pages where the system gives them to those who ask.
func adviseHuge(b []byte) {
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: kernels without it have small pages
}

// discard gives the pages wholly in b back to the system, and leaves the addresses.
func discard(b []byte) {
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, end := (at+page-1)&^(page-1), (at+uintptr(len(b)))&^(page-1)
	if first < end {
		_ = unix.Madvise(b[first-at:end-at], unix.MADV_DONTNEED) // what is not given back now is with the mapping
	}
}
