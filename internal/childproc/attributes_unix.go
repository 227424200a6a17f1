//go:build unix && !linux

package childproc

import "syscall"

// attributes are empty: only Linux has parent-death signals.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
