// Package childproc runs commands that must not outlive this process, even if it ends by kill -9
// included, ends them too, with everything that they have started.
//
// Commands of others get a process group of their own and, on Unix, a watcher in it: a shell that reads
// from a pipe whose other end only this process holds, and kills the group when the pipe breaks. On
// Linux the command itself also gets a parent-death signal, and on Windows a job object takes the
// place of all of these. A program that starts itself again needs no watcher: see [ExitWithParent].
package childproc

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// Run runs a command made by [exec.CommandContext] and waits for it, as [exec.Cmd.Run] does. When
// the context ends it kills the command with everything that it has started, as far as that has not
// left the process group. Processes that a command leaves behind are killed when it has ended, so
// that one that holds its output open is no error. Run sets SysProcAttr and Cancel.
func Run(cmd *exec.Cmd) error {
	g, err := newGroup(cmd)
	if err != nil {
		return err
	}
	cmd.Cancel = g.kill
	if err := g.start(); err != nil {
		return errors.Join(err, g.close())
	}
	err = cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the processes that held the output open are killed now
	}
	return errors.Join(err, g.close())
}

// ExitWithParent ends this process when in, which the parent keeps open for as long as it lives,
// comes to its end: it calls stop, and exits if the process has not ended by itself after grace.
// The data is discarded.
func ExitWithParent(in io.Reader, stop func(), grace time.Duration) {
	go func() {
		_, _ = io.Copy(io.Discard, in) // a broken pipe is an end too
		stop()
		time.Sleep(grace)
		os.Exit(exitOrphaned)
	}()
}

// exitOrphaned is the exit code of a process that ended because its parent did. Nobody is left to
// see it but a supervisor's log.
const exitOrphaned = 3
