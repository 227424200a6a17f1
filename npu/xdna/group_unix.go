//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package xdna

import (
	"os/exec"
	"syscall"
)

// ownGroup has the command end with all that it started: compilers are scripts over programs.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
