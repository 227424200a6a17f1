//go:build unix

package childproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// group is a command's process group with its watcher.
type group struct {
	cmd     *exec.Cmd
	watcher *exec.Cmd // nil where there is no shell
	pipe    io.WriteCloser
	ended   chan struct{} // closed when the command has been waited for
}

// shell runs the watcher.
const shell = "/bin/sh"

// watch waits for the end of the pipe, which comes when the parent is gone, and kills its own process
// group. The command is in that group.
const watch = `trap '' HUP INT TERM QUIT
read -r line
kill -KILL 0`

// newGroup starts the watcher in a new process group, which the command joins as it starts. So there is
// no moment at which the command runs and nobody would end its children.
func newGroup(cmd *exec.Cmd) (*group, error) {
	cmd.SysProcAttr = attributes()
	cmd.SysProcAttr.Setpgid = true
	g := &group{cmd: cmd, ended: make(chan struct{})}
	if _, err := os.Stat(shell); err != nil {
		return g, nil
	}
	w := exec.Command(shell, "-c", watch)
	w.Dir, w.Env = "/", []string{}
	w.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := w.StdinPipe()
	if err == nil {
		err = w.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the watcher of %s: %w", cmd.Path, err)
	}
	g.watcher, g.pipe = w, pipe
	cmd.SysProcAttr.Pgid = w.Process.Pid
	return g, nil
}

// start starts the command. The parent-death signal comes when the thread that started the command
// ends, so that the thread is kept until the command has ended.
func (g *group) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := g.cmd.Start()
		started <- err
		if err == nil {
			<-g.ended
		}
	}()
	return <-started
}

// kill ends everything in the group, the watcher included.
func (g *group) kill() error {
	id := 0
	switch {
	case g.watcher != nil:
		id = g.watcher.Process.Pid
	case g.cmd.Process != nil:
		id = g.cmd.Process.Pid
	default:
		return nil // the command has not started
	}
	err := syscall.Kill(-id, syscall.SIGKILL)
	// Darwin says EPERM of a group in which nothing but zombies is left.
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}

// close ends the group and waits for its watcher. Until then the watcher's process id, which names
// the group, is not used again.
func (g *group) close() error {
	close(g.ended)
	err := g.kill()
	if g.watcher != nil {
		_ = g.pipe.Close()   // nothing is written to it
		_ = g.watcher.Wait() // killed
	}
	return err
}
