//go:build unix

package doctor

import (
	"io/fs"
	"syscall"
)

// owner returns the owner and group of a file.
func owner(info fs.FileInfo) (uid, gid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(s.Uid), int(s.Gid), true
}
