package skill

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
)

// Bounds of an agent's process.
const (
	maxReply = 1 << 20 // bytes of stdout
	keptTail = 2 << 10 // of stderr, for the error
	// agentGrace is how long the pipes of a process that has ended may stay open, by children that it has left behind.
	agentGrace = time.Second
)

// run executes the command once. It returns within the time limit, whatever the command does.
func (a *Agent) run(ctx context.Context, t AgentTask) (AgentReply, error) {
	if len(a.Command) == 0 {
		return AgentReply{}, errors.New("Agent.Command is empty")
	}
	workspace, err := a.workspace()
	if err != nil {
		return AgentReply{}, err
	}
	program := a.Command[0]
	if filepath.Base(program) != program { // a path, which must not be looked for in the folder that the command runs in
		if program, err = filepath.Abs(program); err != nil {
			return AgentReply{}, err
		}
	}
	t.Workspace = workspace
	in, err := json.Marshal(t)
	if err != nil {
		return AgentReply{}, err
	}
	limit := a.Timeout
	if limit <= 0 {
		limit = agentTimeout
	}
	run, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(run, program, a.Command[1:]...)
	if cmd.Dir = a.Dir; cmd.Dir == "" {
		cmd.Dir = workspace
	}
	out, stderr := &boundedOutput{most: maxReply, full: cancel}, &tailOutput{most: keptTail}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, stderr
	cmd.WaitDelay = agentGrace
	err = childproc.Run(cmd)
	switch {
	case ctx.Err() != nil:
		return AgentReply{}, ctx.Err()
	case out.overflowed:
		return AgentReply{}, fmt.Errorf("its answer has more than %d bytes", maxReply)
	case run.Err() != nil:
		return AgentReply{}, fmt.Errorf("it had not answered after %v, and was killed", limit)
	}
	if err != nil {
		return AgentReply{}, fmt.Errorf("%w%s", err, stderr.said())
	}
	return parseReply(out.data.Bytes())
}

// parseReply reads one object and nothing else.
func parseReply(data []byte) (AgentReply, error) {
	var r AgentReply
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return AgentReply{}, fmt.Errorf("its answer is no reply: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return AgentReply{}, errors.New("its answer has something behind the object")
	}
	return r, nil
}

// boundedOutput keeps what a process writes, and has it ended when that is too much.
type boundedOutput struct {
	data       bytes.Buffer
	most       int
	full       func()
	overflowed bool
}

func (b *boundedOutput) Write(p []byte) (int, error) {
	if b.data.Len()+len(p) > b.most {
		b.overflowed = true
		b.full()
		return 0, errors.New("too much output")
	}
	return b.data.Write(p)
}

// tailOutput keeps the end of what a process writes.
type tailOutput struct {
	data []byte
	most int
}

func (t *tailOutput) Write(p []byte) (int, error) {
	t.data = append(t.data, p[max(0, len(p)-t.most):]...)
	t.data = t.data[max(0, len(t.data)-t.most):]
	return len(p), nil
}

func (t *tailOutput) said() string {
	text := strings.TrimSpace(string(t.data))
	if text == "" {
		return ""
	}
	return "; it said: " + clip(text, t.most)
}
