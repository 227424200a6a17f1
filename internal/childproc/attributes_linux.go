package childproc

import "syscall"

// attributes kill a command with its parent even if the watcher is killed at the same time.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
