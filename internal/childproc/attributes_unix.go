//go:build unix && !linux

package childproc

import "syscall"

// attributes put a command into a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
