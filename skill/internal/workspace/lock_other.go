//go:build !unix

package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// lockFile takes a lock by creating a file. A process that is killed does not remove it; the error
// says how to.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if errors.Is(err, os.ErrExist) {
		pid, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%w: process %s; wait for it, use another folder, or delete %s when that "+
			"process is gone", ErrLocked, pid, path)
	}
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return madeLock{f, path}, nil
}

type madeLock struct {
	f    *os.File
	path string
}

func (l madeLock) Close() error { return errors.Join(l.f.Close(), os.Remove(l.path)) }
