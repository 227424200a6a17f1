package xdna

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/xrt"
)

// fake implements driver in Go. Programs are computed by npu/cpu on a separate device copy of every
// buffer, so that a missing sync produces wrong results.
type fake struct {
	array *array

	noWrap   bool // process memory cannot be mapped
	contexts int  // limit of the driver; 0 for none

	mu       sync.Mutex
	alive    int // open contexts
	most     int // maximum of alive
	opened   int // contexts opened so far
	runs     int // runs created
	lists    int // lists executed
	adds     int // runs added to lists
	started  []string
	syncs    int
	synced   int                   // bytes
	memories int                   // not yet closed
	fail     map[int]error         // errors by command number, from 0
	delay    map[int]time.Duration // durations by command number
	noRun    string                // artefact for which run fails
	busy     bool                  // a command is running
}

// array computes programs in place of the hardware.
type array struct {
	dev *cpu.Device

	mu       sync.Mutex
	programs map[string]npu.Executable // by artefact name
	// for arguments, shared by all programs, because new buffers would be zeroed for every run
	buffers map[bufferKey]npu.Buffer
}

// bufferKey is a size and the ordinal of an argument among those of that size.
type bufferKey struct{ bytes, ordinal int }

func newArray(t *testing.T) *array {
	t.Helper()
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &array{dev: dev, programs: map[string]npu.Executable{}, buffers: map[bufferKey]npu.Buffer{}}
	t.Cleanup(func() {
		for _, b := range a.buffers {
			b.Close()
		}
		dev.Close()
	})
	return a
}

func (a *array) learn(t *testing.T, p *npu.Program) {
	t.Helper()
	e, err := a.dev.Load(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	a.programs[p.Name] = e
}

// compute runs a program on the device memory of its arguments.
func (a *array) compute(name string, args [][]byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.programs[name]
	p := e.Program()
	r := npu.Run{Name: name, Exec: e}
	seen := map[int]int{}
	for i, arg := range p.Args {
		n := argBytes(arg)
		if len(args[i]) < n {
			return fmt.Errorf("argument %d has %d bytes, want %d", i, len(args[i]), n)
		}
		key := bufferKey{n, seen[n]}
		seen[n]++
		b := a.buffers[key]
		if b == nil {
			var err error
			if b, err = a.dev.Alloc(context.Background(), n); err != nil {
				return err
			}
			a.buffers[key] = b
		}
		copy(b.Bytes(), args[i])
		r.Args = append(r.Args, b)
	}
	if err := a.dev.Submit(context.Background(), []npu.Run{r}); err != nil {
		return err
	}
	for i, arg := range p.Args {
		if arg.Kind == npu.Out || arg.Kind == npu.Scratch {
			copy(args[i], r.Args[i].Bytes()[:argBytes(arg)])
		}
	}
	return nil
}

func (f *fake) name() string { return "fake NPU" }
func (f *fake) close() error { return nil }

type fakeMemory struct {
	f         *fake
	host, dev []byte
	closed    bool
	part      bool
}

func (f *fake) memory(host []byte) *fakeMemory {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memories++
	// the device side has undefined contents
	return &fakeMemory{f: f, host: host, dev: bytes.Repeat([]byte{0xa5}, len(host))}
}

func (f *fake) alloc(n int) (memory, error) { return f.memory(make([]byte, n)), nil }

func (f *fake) wrap(mem []byte) (memory, error) {
	if f.noWrap {
		return nil, errors.New("fake: cannot map memory of the process")
	}
	return f.memory(mem), nil
}

func (m *fakeMemory) bytes() []byte { return m.host }

func (m *fakeMemory) sync(dir npu.Direction, offset, n int) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.f.busy {
		panic("fake: sync while a command is running")
	}
	m.f.syncs++
	m.f.synced += n
	if dir == npu.ToDevice {
		copy(m.dev[offset:offset+n], m.host[offset:])
	} else {
		copy(m.host[offset:offset+n], m.dev[offset:])
	}
	return nil
}

func (m *fakeMemory) sub(offset, n int) (memory, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.memories++
	return &fakeMemory{f: m.f, host: m.host[offset : offset+n], dev: m.dev[offset : offset+n],
		part: true}, nil
}

func (m *fakeMemory) close() error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.closed {
		return errors.New("fake: memory closed twice")
	}
	m.closed = true
	m.f.memories--
	return nil
}

type fakeConfig struct {
	f    *fake
	path string
}

func (f *fake) load(path string, _ bool) (config, error) {
	_, err := os.Stat(path)
	return &fakeConfig{f, path}, err
}

func (c *fakeConfig) check(a *Artefact, args int) error {
	e := c.f.array.programs[a.Name]
	if e == nil {
		return xrt.ErrNoKernel
	}
	if n := len(e.Program().Args); n != args {
		return fmt.Errorf("fake: %d arguments, want %d", n, args)
	}
	return nil
}

func (c *fakeConfig) close() error { return nil }

func (c *fakeConfig) open() (hwContext, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.f.contexts > 0 && c.f.alive >= c.f.contexts {
		return nil, xrt.ErrNoContext
	}
	c.f.alive++
	c.f.opened++
	c.f.most = max(c.f.most, c.f.alive)
	return &fakeContext{f: c.f}, nil
}

type fakeContext struct {
	f      *fake
	closed bool
	broken bool
	inside int // open kernels, runs and lists
}

func (c *fakeContext) close() error {
	if c.closed || c.inside != 0 {
		return fmt.Errorf("fake: context closed with %d open objects", c.inside)
	}
	c.closed = true
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.alive--
	return nil
}

func (c *fakeContext) kernel(a *Artefact) (kernel, error) {
	c.inside++
	return &fakeKernel{c, a.Name}, nil
}

func (c *fakeContext) list() (runlist, error) {
	c.inside++
	return &fakeList{c: c}, nil
}

type fakeKernel struct {
	c    *fakeContext
	name string
}

func (k *fakeKernel) close() error { k.c.inside--; return nil }
func (k *fakeKernel) chain() int   { return fakeChain }

// fakeChain is the chain length of the fake device, the same as XRT's.
const fakeChain = 24

func (k *fakeKernel) run() (run, error) {
	k.c.f.mu.Lock()
	defer k.c.f.mu.Unlock()
	if k.c.f.noRun == k.name {
		return nil, errors.New("fake: no memory for a run of " + k.name)
	}
	k.c.inside++
	k.c.f.runs++
	return &fakeRun{k: k, args: make([]*fakeMemory, len(k.c.f.array.programs[k.name].Program().Args))}, nil
}

type fakeRun struct {
	k    *fakeKernel
	args []*fakeMemory
	list *fakeList
	job  *job
}

func (r *fakeRun) set(i int, m memory) error { r.args[i] = m.(*fakeMemory); return nil }
func (r *fakeRun) close() error              { r.k.c.inside--; return nil }

// job is a submission in progress.
type job struct {
	done chan struct{}
	err  error
}

func (j *job) wait(ctx context.Context) error {
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return fmt.Errorf("fake: wait: %w", ctx.Err())
	}
}

// execute executes runs in the background, chain by chain, and continues with the next chain after
// a failure, like the device.
func (c *fakeContext) execute(runs []*fakeRun) *job {
	j := &job{done: make(chan struct{})}
	c.f.mu.Lock()
	if c.f.busy {
		panic("fake: two submissions at once")
	}
	c.f.busy = true
	c.f.mu.Unlock()
	go func() {
		defer close(j.done)
		for i := 0; i < len(runs); i++ {
			err := runs[i].execute()
			if err == nil {
				continue
			}
			var e *xrt.Error
			if errors.As(err, &e) {
				e.Run = i
			}
			if j.err == nil {
				j.err = err
			}
			i += fakeChain - 1 - i%fakeChain
		}
		c.broken = c.broken || j.err != nil
		c.f.mu.Lock()
		c.f.busy = false
		c.f.mu.Unlock()
	}()
	return j
}

// working reports whether a command is running.
func (f *fake) working() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.busy
}

// untilWorking returns a context that is canceled when a command starts running.
func (f *fake) untilWorking(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil && !f.working() {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return ctx
}

func (r *fakeRun) execute() error {
	f := r.k.c.f
	f.mu.Lock()
	n := len(f.started)
	f.started = append(f.started, r.k.name)
	err, delay := f.fail[n], f.delay[n]
	f.mu.Unlock()
	time.Sleep(delay)
	if r.k.c.broken {
		err = xrt.ErrAborted
	}
	if err != nil {
		return &xrt.Error{Op: "run", Text: "injected fault", Cause: err}
	}
	args := make([][]byte, len(r.args))
	for i, m := range r.args {
		if m == nil || m.closed {
			return fmt.Errorf("fake: argument %d of %s is missing or closed", i, r.k.name)
		}
		args[i] = m.dev
	}
	return f.array.compute(r.k.name, args)
}

func (r *fakeRun) start() error {
	if r.list != nil {
		return errors.New("fake: run object belongs to a runlist and cannot be explicitly started")
	}
	r.job = r.k.c.execute([]*fakeRun{r})
	return nil
}

func (r *fakeRun) wait(ctx context.Context) error { return r.job.wait(ctx) }

type fakeList struct {
	c    *fakeContext
	runs []*fakeRun
	job  *job
}

func (l *fakeList) add(r run) error {
	x := r.(*fakeRun)
	if x.list != nil || x.k.c != l.c {
		return errors.New("fake: the run is in a list or belongs to another context")
	}
	x.list = l
	l.c.f.adds++
	l.runs = append(l.runs, x)
	return nil
}

func (l *fakeList) execute() error {
	l.c.f.lists++
	l.job = l.c.execute(l.runs)
	return nil
}

func (l *fakeList) wait(ctx context.Context) error { return l.job.wait(ctx) }
func (l *fakeList) close() error                   { l.c.inside--; return nil }

func (l *fakeList) reset() error {
	for _, r := range l.runs {
		r.list = nil
	}
	l.runs = nil
	return nil
}

// writeArtefacts writes a folder with a binary for each group of programs and a manifest. The fake
// uses only the file name.
func writeArtefacts(t *testing.T, dir string, groups map[string][]*npu.Program,
	binary func(file string, programs []*npu.Program) []byte) {
	t.Helper()
	var entries []string
	for file, programs := range groups {
		if err := os.WriteFile(filepath.Join(dir, file), binary(file, programs), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			sizes := []string{}
			for _, a := range p.Args {
				sizes = append(sizes, fmt.Sprint(argBytes(a)))
			}
			layout := ""
			if l := headLayout(p); l != "" {
				layout = fmt.Sprintf(`, "layout": %q`, l)
			}
			entries = append(entries,
				fmt.Sprintf(`%q: {"output_binary": "elsewhere/%s", "kernel": "main:%s", "insts": null, `+
					`"arguments": [%s]%s}`, p.Name, file, instanceOf(p), strings.Join(sizes, ", "), layout))
		}
	}
	text := fmt.Sprintf("{\"_toolchain\": {\"mlir_aie\": \"test\"}, \"entries\": {\n%s}}\n",
		strings.Join(entries, ",\n"))
	if err := os.WriteFile(filepath.Join(dir, manifestName), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func instanceOf(p *npu.Program) string {
	if p.Instance != "" {
		return p.Instance
	}
	return p.Name
}

// open returns a device over the fake with one binary per group of programs.
func (f *fake) open(t *testing.T, groups map[string][]*npu.Program, o Options) *Device {
	t.Helper()
	f.array = newArray(t)
	dir := t.TempDir()
	for _, programs := range groups {
		for _, p := range programs {
			f.array.learn(t, p)
		}
	}
	writeArtefacts(t, dir, groups, func(string, []*npu.Program) []byte { return []byte("fake") })
	o.Artefacts = dir
	if o.Lock == "" {
		o.Lock = filepath.Join(dir, "npu.lock")
	}
	d, err := newDevice(f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if f.memories != 0 || f.alive != 0 {
			t.Errorf("left open: %d buffers, %d contexts", f.memories, f.alive)
		}
	})
	return d
}
