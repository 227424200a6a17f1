//go:build !unix && !windows

package childproc

import (
	"errors"
	"os"
	"os/exec"
)

// group is a command where there are no groups: it alone can be ended.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) (*group, error) { return &group{cmd}, nil }

func (g *group) start() error { return g.cmd.Start() }

func (g *group) kill() error {
	if err := g.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (g *group) close() error { return nil }
