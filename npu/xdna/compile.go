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

// Compiler builds artefacts with a user-supplied command.
//
// The command is run once per program, with a folder as its last argument. The folder contains
// program.json: the program with its arguments, launches and mappings. The command must write the
// binary there and a manifest.json with an entry for the program (see [ReadArtefacts]). The entry
// should state the size of every argument ("arguments"), the attention layout ("layout") and the
// mapping of every launch ("mapping"); see [Device.Load] for those that are not stated. Output of the
// command is reported as progress.
//
// Results are cached by program and toolchain.
type Compiler struct {
	Command []string // program and arguments; the folder is appended
	// identity of the tools for the cache key; "" for path, size and time of the command
	Toolchain string
	Cache     string                     // folder; "" for npukit/xdna in the user's cache folder
	Limit     time.Duration              // per program; 0 for 10 minutes: MLIR-AIR takes 3 to 50 s
	Progress  func(program, line string) // called with each line of output; may be nil
}

const defaultLimit = 10 * time.Minute

// artefact returns the artefact of p from the cache, compiling it if necessary. The command and all
// processes that it started are killed if ctx is done or this process ends.
func (c *Compiler) artefact(ctx context.Context, p *npu.Program) (*Artefact, error) {
	if len(c.Command) == 0 {
		return nil, errors.New("npu/xdna: Compiler.Command is empty: set it to the command that " +
			"compiles a program")
	}
	description, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: program %s: %w", p.Name, err)
	}
	cache := c.Cache
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("npu/xdna: no cache folder for compiled programs: %w: set "+
				"Compiler.Cache", err)
		}
		cache = filepath.Join(base, "npukit", "xdna")
	}
	if cache, err = filepath.Abs(cache); err != nil { // the command runs in another folder
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
	defer temp.Close() // removes files that the rename below did not move
	work := temp.Path
	if err := os.WriteFile(filepath.Join(work, "program.json"), description, 0o666); err != nil {
		return nil, fmt.Errorf("npu/xdna: %w", err)
	}
	if err := c.run(ctx, command, p.Name, work); err != nil {
		return nil, err
	}
	if _, err := compiled(work, p); err != nil {
		return nil, fmt.Errorf("npu/xdna: %s compiled program %s, but its output is unusable: %w",
			c.Command[0], p.Name, err)
	}
	if err := atomicfile.SyncTree(work); err != nil {
		return nil, fmt.Errorf("npu/xdna: syncing program %s: %w", p.Name, err)
	}
	// The cache has no usable entry, or another process just wrote the same one. Replace it in both
	// cases.
	err = os.RemoveAll(dir)
	if err == nil {
		err = errors.Join(os.Rename(work, dir), atomicfile.SyncDir(cache))
	}
	if a, cached := compiled(dir, p); cached == nil {
		return a, nil
	}
	return nil, fmt.Errorf("npu/xdna: caching program %s: %w", p.Name, err)
}

// compiled returns the artefact of p in a folder that a compiler wrote.
func compiled(dir string, p *npu.Program) (*Artefact, error) {
	s, err := ReadArtefacts(dir)
	if err != nil {
		return nil, err
	}
	return s.find(p)
}

// identity returns the path of the command and the identity of the tools.
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
	cmd.WaitDelay = 50 * time.Millisecond // if a child still holds the pipes
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
		return fmt.Errorf("npu/xdna: compiling program %s: not done after %v (Compiler.Limit); "+
			"last output:%s", program, limit, out.tail())
	}
	return fmt.Errorf("npu/xdna: compiling program %s: %s: %w; last output:%s", program,
		c.Command[0], err, out.tail())
}

// lines splits output into lines and stores the last ones.
type lines struct {
	emit func(line string)

	mu   sync.Mutex
	rest []byte
	last []string
}

// Limits of the stored output, so that a compiler that prints forever cannot exhaust memory.
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

// end emits a last line that has no newline.
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
		return " none"
	}
	return "\n  " + strings.Join(l.last, "\n  ")
}
