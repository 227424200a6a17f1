package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks for large pages where the system gives them to those who ask.
func adviseHuge(b []byte) {
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: kernels without it have small pages
}
