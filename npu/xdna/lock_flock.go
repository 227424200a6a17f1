//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package xdna

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// fileLock keeps other processes off the NPU while programs run: contexts of several would share its time, and what is measured would mean
// nothing. MLIR-AIR's programs take the same file. Used by the holder of the device's turn.
type fileLock struct {
	file *os.File
	late chan struct{} // of an attempt that a cancelled Submit left behind; closed when it is over
}

func newFileLock(path string) (*fileLock, error) {
	if path == "" {
		path = filepath.Join(os.TempDir(), "npu.lock")
	}
	// Everybody must be able to lock it. A file of another user in a folder such as /tmp cannot be opened for writing, and may not even be
	// opened with O_CREATE (fs.protected_regular); to lock it, reading is enough.
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o666)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: lock between processes: %w: name another file in Options.Lock", err)
	}
	return &fileLock{file: f}, nil
}

// lock waits until no other process has the lock, or ctx ends.
func (l *fileLock) lock(ctx context.Context) error {
	ended := func() error {
		return fmt.Errorf("npu/xdna: another process has the NPU (lock %s): %w", l.file.Name(), ctx.Err())
	}
	if l.late != nil {
		select {
		case <-l.late:
			l.late = nil
		case <-ctx.Done():
			return ended()
		}
	}
	err := flock(l.file, syscall.LOCK_EX|syscall.LOCK_NB)
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return lockError(l.file, err)
	}
	got, late := make(chan error, 1), make(chan struct{})
	go func() { got <- flock(l.file, syscall.LOCK_EX) }()
	select {
	case err := <-got:
		return lockError(l.file, err)
	case <-ctx.Done():
		l.late = late
		go func() { // nothing ends a flock that waits: when it succeeds nobody wants it
			defer close(late)
			if <-got == nil {
				_ = flock(l.file, syscall.LOCK_UN)
			}
		}()
		return ended()
	}
}

func (l *fileLock) unlock() error { return lockError(l.file, flock(l.file, syscall.LOCK_UN)) }

func (l *fileLock) close() error {
	if l.late == nil {
		return l.file.Close()
	}
	go func() {
		<-l.late
		_ = l.file.Close() // it was only locked
	}()
	return nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func lockError(f *os.File, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("npu/xdna: lock %s: %w", f.Name(), err)
}
