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

// watch reads the group's id, and then waits: a second line means that all is well, and the end of
// the pipe that the parent is gone.
const watch = `trap '' HUP INT TERM QUIT
read -r group || exit 0
read -r well && exit 0
kill -KILL "-$group"`

// newGroup starts the watcher before the command, so that the command is never without one.
func newGroup(cmd *exec.Cmd) (*group, error) {
	cmd.SysProcAttr = attributes()
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
	if err := <-started; err != nil {
		return err
	}
	if g.watcher == nil {
		return nil
	}
	if _, err := fmt.Fprintf(g.pipe, "%d\n", g.cmd.Process.Pid); err != nil {
		return errors.Join(fmt.Errorf("the watcher of %s: %w", g.cmd.Path, err), g.kill(), g.cmd.Wait())
	}
	return nil
}

// kill ends everything in the group.
func (g *group) kill() error {
	err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	// Darwin says EPERM of a group in which nothing but zombies is left.
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}

// close tells the watcher that all is well, and waits for it.
func (g *group) close() error {
	close(g.ended)
	if g.watcher == nil {
		return nil
	}
	_, err := io.WriteString(g.pipe, "\n\n") // the second one where no group was named
	if errors.Is(err, syscall.EPIPE) {
		err = nil // it has ended, which only somebody else's kill can do
	}
	_ = g.watcher.Wait() // nothing follows from how it ended
	return err
}
