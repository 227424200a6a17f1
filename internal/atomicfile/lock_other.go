//go:build !unix || solaris || illumos || aix

package atomicfile

import (
	"io/fs"
	"os"
)

// renamesOpenFiles is false: Windows neither renames nor removes a file that is open.
const renamesOpenFiles = false

// lock does nothing: an open file cannot be removed here.
func lock(*os.File) {}

// locked reports false: removing a file that is open fails.
func locked(string) bool { return false }

// owned reports true: files carry no user id here.
func owned(fs.FileInfo) bool { return true }

// alive reports whether a process with this id exists.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}

// SyncDir does nothing: folders cannot be synced here.
func SyncDir(string) error { return nil }
