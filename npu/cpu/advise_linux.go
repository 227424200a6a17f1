package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge requests huge pages for b, where the system gives them on request.
func adviseHuge(b []byte) {
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: without it pages are small
}

// discard returns the pages wholly in b to the system and keeps the addresses.
func discard(b []byte) {
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	first, end := (at+page-1)&^(page-1), (at+uintptr(len(b)))&^(page-1)
	if first < end {
		// the rest is returned with the mapping
		_ = unix.Madvise(b[first-at:end-at], unix.MADV_DONTNEED)
	}
}
