package xdna

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/internal/childproc"
	"github.com/npukit/npukit/npu"
)

// Compiler makes artefacts with a command of the user's.
//
// For each program the command is run once with a folder as its last argument, which holds program.json: the program as plans have it, with
// its arguments, launches and mappings. It leaves the binary there and a manifest.json with an entry of the program's name (see
// [ReadArtefacts]), and may say in it the bytes of every argument ("arguments") and the layout of attention ("layout"), which are then
// checked. What it prints is its progress.
//
// Results are kept in a cache, by program and toolchain.
type Compiler struct {
	Command   []string                   // program and arguments; the folder is appended
	Toolchain string                     // identity of the tools: another one compiles anew; "" for path, size and time of the command's own file
	Cache     string                     // folder; "" for npukit/xdna in the user's cache folder
	Limit     time.Duration              // for one program; 0 for 10 minutes: MLIR-AIR takes 3 to 50 s
	Progress  func(program, line string) // may be nil; called with each line that the command prints
}

const defaultLimit = 10 * time.Minute

// Artefact is the program's artefact, from the cache or compiled now. When ctx ends, or this process does, however it ends,
// the command is killed with all that it has started.
func (c *Compiler) Artefact(ctx context.Context, p *npu.Program) (*Artefact, error) {
	if len(c.Command) == 0 {
		return nil, errors.New("npu/xdna: Compiler.Command is empty: name the command that compiles a program")
	}
	description, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: program %s: %w", p.Name, err)
	}
	cache := c.Cache
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("npu/xdna: no place for compiled programs: %w: name one in Compiler.Cache", err)
		}
		cache = filepath.Join(base, "npukit", "xdna")
	}
	if cache, err = filepath.Abs(cache); err != nil { // the command runs in a folder of its own
		return nil, fmt.Errorf("npu/xdna: %w", err)
	}
	command, toolchain, err := c.identity()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s\n%s", c.Command, toolchain, description))
	dir := filepath.Join(cache, hex.EncodeToString(sum[:16]))
	if a, err := compiled(dir, p); err == nil {
		return a, nil
	}
	if err := atomicfile.MkdirAll(cache, 0o777); err != nil {
		return nil, fmt.Errorf("npu/xdna: %w", err)
	}
	if err := atomicfile.Sweep(cache); err != nil {
		return nil, fmt.Errorf("npu/xdna: the cache of compiled programs: %w", err)
	}
	temp, err := atomicfile.MkdirTemp(cache)
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: %w", err)
	}
	defer temp.Close() // and with it what the rename below did not take
	work := temp.Path
	if err := os.WriteFile(filepath.Join(work, "program.json"), description, 0o666); err != nil {
		return nil, fmt.Errorf("npu/xdna: %w", err)
	}
	if err := c.run(ctx, command, p.Name, work); err != nil {
		return nil, err
	}
	if _, err := compiled(work, p); err != nil {
		return nil, fmt.Errorf("npu/xdna: %s compiled program %s, and what it left cannot be used: %w", c.Command[0], p.Name, err)
	}
	// In the cache there is nothing usable, or what another process has just made of the same: either way it is replaced.
	err = os.RemoveAll(dir)
	if err == nil {
		err = errors.Join(os.Rename(work, dir), atomicfile.SyncDir(cache))
	}
	if a, cached := compiled(dir, p); cached == nil {
		return a, nil
	}
	return nil, fmt.Errorf("npu/xdna: keeping program %s in the cache: %w", p.Name, err)
}

// compiled is the artefact of a program in a folder that a compiler left.
func compiled(dir string, p *npu.Program) (*Artefact, error) {
	s, err := ReadArtefacts(dir)
	if err != nil {
		return nil, err
	}
	return s.Find(p)
}

// identity is the path of the command, and what tells the tools apart.
func (c *Compiler) identity() (command, toolchain string, err error) {
	command, err = exec.LookPath(c.Command[0])
	if err == nil {
		command, err = filepath.Abs(command)
	}
	if err != nil {
		return "", "", fmt.Errorf("npu/xdna: compile command: %w", err)
	}
	if c.Toolchain != "" {
		return command, c.Toolchain, nil
	}
	info, err := os.Stat(command)
	if err != nil {
		return "", "", fmt.Errorf("npu/xdna: compile command: %w", err)
	}
	return command, fmt.Sprintf("%s:%d:%d", command, info.Size(), info.ModTime().UnixNano()), nil
}

// run compiles the program in a folder.
func (c *Compiler) run(ctx context.Context, command, program, dir string) error {
	limit := c.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, command, append(c.Command[1:len(c.Command):len(c.Command)], dir)...)
	cmd.Dir = dir
	cmd.WaitDelay = 50 * time.Millisecond // for pipes that something it started still holds
	out := &lines{emit: func(line string) {
		if c.Progress != nil {
			c.Progress(program, line)
		}
	}}
	cmd.Stdout, cmd.Stderr = out, out
	err := childproc.Run(cmd)
	out.end()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("npu/xdna: compiling program %s: %w", program, ctx.Err())
	case limited.Err() != nil:
		return fmt.Errorf("npu/xdna: compiling program %s: not done after %v (Compiler.Limit); it printed last:%s", program, limit, out.tail())
	}
	return fmt.Errorf("npu/xdna: compiling program %s: %s: %w; it printed last:%s", program, c.Command[0], err, out.tail())
}

// lines cuts what a command prints into lines and keeps the last.
type lines struct {
	emit func(line string)

	mu   sync.Mutex
	rest []byte
	last []string
}

// Limits of what is kept: a compiler that prints without end is not to fill the memory.
const (
	maxLine   = 4096
	lastLines = 10
)

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLine {
			return len(p), nil
		}
		if i < 0 || i > maxLine {
			i = maxLine - 1
		}
		l.line(l.rest[:i+1])
		l.rest = l.rest[i+1:]
	}
}

func (l *lines) line(b []byte) {
	text := strings.TrimRight(string(b), "\r\n")
	l.last = append(l.last, text)
	if len(l.last) > lastLines {
		l.last = l.last[1:]
	}
	l.emit(text)
}

// end gives out a last line without an end.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.line(l.rest)
		l.rest = nil
	}
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return " nothing"
	}
	return "\n  " + strings.Join(l.last, "\n  ")
}
