package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/npukit/npukit/internal/childproc"
	"github.com/npukit/npukit/skill/internal/journal"
)

const (
	maxReply  = 1 << 20 // bytes of stdout
	maxStderr = 2 << 10 // bytes of stderr that an error quotes

	// waitDelay is how long children of the command may keep its pipes open after it has ended.
	waitDelay = time.Second
)

// run runs the command once. It returns within the timeout, even if the command hangs.
func (a *Agent) run(ctx context.Context, t task) (reply, error) {
	if len(a.Command) == 0 {
		return reply{}, errors.New("Agent.Command is empty")
	}
	workspace, err := a.workspace()
	if err != nil {
		return reply{}, err
	}
	program := a.Command[0]
	if filepath.Base(program) != program { // a path, which must not be relative to the command's own folder
		if program, err = filepath.Abs(program); err != nil {
			return reply{}, err
		}
	}
	t.Workspace = workspace
	in, err := json.Marshal(t)
	if err != nil {
		return reply{}, err
	}
	timeout := a.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	run, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(run, program, a.Command[1:]...)
	if cmd.Dir = a.Dir; cmd.Dir == "" {
		cmd.Dir = workspace
	}
	out, stderr := &boundedOutput{max: maxReply, full: cancel}, &tailOutput{max: maxStderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, stderr
	cmd.WaitDelay = waitDelay
	err = childproc.Run(cmd)
	switch {
	case ctx.Err() != nil:
		return reply{}, ctx.Err()
	case out.overflowed:
		return reply{}, fmt.Errorf("its reply has more than %d bytes", maxReply)
	case run.Err() != nil:
		return reply{}, fmt.Errorf("it did not reply within %v and was killed", timeout)
	}
	if err != nil {
		return reply{}, fmt.Errorf("%w%s", err, stderr.quoted())
	}
	return parseReply(out.data.Bytes())
}

// parseReply parses one object and nothing after it.
func parseReply(data []byte) (reply, error) {
	var r reply
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return reply{}, fmt.Errorf("invalid reply: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return reply{}, errors.New("invalid reply: trailing data after the JSON object")
	}
	return r, nil
}

// boundedOutput keeps the output of a process, and calls full if that is more than max bytes.
type boundedOutput struct {
	data       bytes.Buffer
	max        int
	full       func()
	overflowed bool
}

func (b *boundedOutput) Write(p []byte) (int, error) {
	if b.data.Len()+len(p) > b.max {
		b.overflowed = true
		b.full()
		return 0, errors.New("too much output")
	}
	return b.data.Write(p)
}

// tailOutput keeps the last max bytes of the output of a process.
type tailOutput struct {
	data []byte
	max  int
}

func (t *tailOutput) Write(p []byte) (int, error) {
	t.data = append(t.data, p[max(0, len(p)-t.max):]...)
	t.data = t.data[max(0, len(t.data)-t.max):]
	return len(p), nil
}

// quoted returns the output for an error, or "" if there is none.
func (t *tailOutput) quoted() string {
	text := strings.TrimSpace(string(t.data))
	if text == "" {
		return ""
	}
	return "; its stderr ends with: " + journal.Clip(text, t.max)
}
