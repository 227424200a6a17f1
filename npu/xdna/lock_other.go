//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package xdna

import "context"

// fileLock does nothing on this platform: XRT supports NPUs on Linux only.
type fileLock struct{}

func newFileLock(string) (*fileLock, error)  { return &fileLock{}, nil }
func (*fileLock) lock(context.Context) error { return nil }
func (*fileLock) unlock() error              { return nil }
func (*fileLock) close() error               { return nil }
