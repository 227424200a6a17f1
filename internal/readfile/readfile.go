// Package readfile reads files from untrusted paths. A named pipe, a device or an endless file
// neither blocks the program nor fills its memory.
package readfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Errors to test for with [errors.Is].
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("file too large")
)

// Regular reads a regular file of at most limit bytes. It never blocks on another kind of file. Its
// error names the path and the kind.
func Regular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = check(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The file may have been replaced since.
	if info, err = f.Stat(); err == nil {
		err = check(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(data.Len()) > limit { // it grew meanwhile
		return nil, tooLarge(path, limit)
	}
	return data.Bytes(), nil
}

func check(path string, info fs.FileInfo, limit int64) error {
	if mode := info.Mode(); !mode.IsRegular() {
		return fmt.Errorf("%s is %s, %w: give the path of a file", path, kind(mode), ErrNotRegular)
	}
	if info.Size() > limit {
		return tooLarge(path, limit)
	}
	return nil
}

func tooLarge(path string, limit int64) error {
	return fmt.Errorf("%s: %w: the limit is %d bytes", path, ErrTooLarge, limit)
}

// kind describes a file that is not regular.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "special"
}
