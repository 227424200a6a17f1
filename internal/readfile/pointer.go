package readfile

import (
	"bytes"
	"errors"
)

// ErrPointer is the error of [CheckPointer].
var ErrPointer = errors.New("a Git LFS pointer, not the file itself: fetch it with `git lfs pull`, or " +
	"download it again")

// CheckPointer returns ErrPointer if content is a Git LFS pointer: the placeholder of a file that
// was not downloaded.
func CheckPointer(content []byte) error {
	if bytes.HasPrefix(content, []byte("version https://git-lfs")) {
		return ErrPointer
	}
	return nil
}
