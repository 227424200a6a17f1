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

// fileLock gives this process exclusive use of the NPU while programs run, so that timings are not
// disturbed. MLIR-AIR's programs lock the same file. Guarded by Device.sem.
type fileLock struct {
	file *os.File
	late chan struct{} // closed when an abandoned attempt to lock has ended
}

func newFileLock(path string) (*fileLock, error) {
	if path == "" {
		path = filepath.Join(os.TempDir(), "npu.lock")
	}
	// Every user must be able to lock the file. A file of another user in a folder such as /tmp may
	// not be writable, and may not even be opened with O_CREATE (fs.protected_regular). Read access
	// is enough to lock it.
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o666)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: lock between processes: %w: set another file in "+
			"Options.Lock", err)
	}
	return &fileLock{file: f}, nil
}

// lock waits until no other process holds the lock. It returns an error if ctx is done first.
func (l *fileLock) lock(ctx context.Context) error {
	ended := func() error {
		return fmt.Errorf("npu/xdna: another process is using the NPU (lock %s): %w",
			l.file.Name(), ctx.Err())
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
		go func() { // a blocked flock cannot be interrupted: release the lock when it succeeds
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
		_ = l.file.Close() // used only for locking
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
