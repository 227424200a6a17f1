//go:build unix

package skill

import (
	"errors"
	"os/exec"
	"syscall"
)

// inOwnGroup starts a command in a process group of its own, so that what it starts ends with it.
func inOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends a command with all that it has started, as far as that has not left its group.
func killGroup(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
