package childproc

import "syscall"

// attributes put a command into a group of its own. It is killed with its parent even if the
// watcher is killed at the same time.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
