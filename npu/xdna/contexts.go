package xdna

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/npukit/npukit/xrt"
)

// contexts is the set of open hardware contexts. If the limit is reached, the least recently used
// one is closed, with its kernels and runs. Buffers are not tied to a context. Guarded by
// Device.sem.
type contexts struct {
	limit int
	log   *slog.Logger
	alive []*live // least recently used first
	heap  int     // bytes of the device heap in use by runs
	clock uint64

	opened, made, rebound int // counters for tests
}

// live is an open context.
type live struct {
	config  *loaded
	hw      hwContext
	kernels map[*executable]kernel
	runs    map[string]*bound // by executable and arguments
	list    runlist           // nil until first used
	listed  []*bound          // runs in list
}

// bound is a run with its arguments set.
type bound struct {
	run    run
	exec   *executable
	key    string
	args   []uint64 // object IDs of the arguments
	cost   int      // bytes of the device heap
	used   uint64
	listed bool // in the context's list
}

// Each run of an ELF has a copy of its instructions and array configuration in the 64 MB device
// heap, in units of 32 KiB. Runs may use three quarters of the heap; then the least recently used
// ones are bound to other arguments.
const (
	heapBudget = 48 << 20
	heapUnit   = 32 << 10
)

// get returns the context of an executable, opening it if necessary.
func (c *contexts) get(e *executable) (*live, error) {
	if i := slices.IndexFunc(c.alive, func(l *live) bool { return l.config == e.config }); i >= 0 {
		l := c.alive[i]
		c.alive = append(slices.Delete(c.alive, i, i+1), l)
		return l, nil
	}
	for len(c.alive) >= c.limit {
		if err := c.drop(c.alive[0]); err != nil {
			return nil, err
		}
	}
	for {
		hw, err := e.config.config.open()
		if err == nil {
			l := &live{config: e.config, hw: hw, kernels: map[*executable]kernel{},
				runs: map[string]*bound{}}
			c.alive = append(c.alive, l)
			c.opened++
			return l, nil
		}
		// Other processes use contexts too: continue with fewer.
		if !errors.Is(err, xrt.ErrNoContext) || len(c.alive) == 0 {
			return nil, err
		}
		c.log.Info("the driver is out of contexts: closing one", "alive", len(c.alive))
		if e := c.drop(c.alive[0]); e != nil {
			return nil, errors.Join(err, e)
		}
	}
}

// drop closes a context and everything in it.
func (c *contexts) drop(l *live) error {
	var errs []error
	errs = append(errs, l.resetList())
	for _, b := range l.runs {
		errs = append(errs, c.closeRun(l, b))
	}
	if l.list != nil {
		errs = append(errs, l.list.close())
	}
	for _, k := range l.kernels {
		errs = append(errs, k.close())
	}
	errs = append(errs, l.hw.close())
	c.alive = slices.DeleteFunc(c.alive, func(x *live) bool { return x == l })
	return errors.Join(errs...)
}

// discard drops a context that failed. Errors are only logged.
func (c *contexts) discard(l *live) {
	if err := c.drop(l); err != nil {
		c.log.Warn("closing a lost context", "program", l.config.path, "error", err)
	}
}

func (c *contexts) dropAll() error {
	var errs []error
	for len(c.alive) > 0 {
		errs = append(errs, c.drop(c.alive[0]))
	}
	return errors.Join(errs...)
}

// dropConfig closes the context of a binary if it is open.
func (c *contexts) dropConfig(config *loaded) error {
	for _, l := range c.alive {
		if l.config == config {
			return c.drop(l)
		}
	}
	return nil
}

// closeRunsOf closes the runs that have the object as an argument, because it is about to be freed.
func (c *contexts) closeRunsOf(id uint64) {
	for _, l := range c.alive {
		for _, b := range l.runs {
			if slices.Contains(b.args, id) {
				if err := errors.Join(l.release(b), c.closeRun(l, b)); err != nil {
					c.log.Warn("closing a run", "program", b.exec.p.Name, "error", err)
				}
			}
		}
	}
}

// closeProgram closes the kernel and runs of an executable in contexts that other programs still
// use.
func (c *contexts) closeProgram(e *executable) error {
	var errs []error
	for _, l := range c.alive {
		for _, b := range l.runs {
			if b.exec == e {
				errs = append(errs, l.release(b), c.closeRun(l, b))
			}
		}
		if k := l.kernels[e]; k != nil {
			delete(l.kernels, e)
			errs = append(errs, k.close())
		}
	}
	return errors.Join(errs...)
}

func (c *contexts) closeRun(l *live, b *bound) error {
	delete(l.runs, b.key)
	c.heap -= b.cost
	return b.run.close()
}

// resetList empties the context's list.
func (l *live) resetList() error {
	if len(l.listed) == 0 {
		return nil
	}
	for _, b := range l.listed {
		b.listed = false
	}
	l.listed = l.listed[:0]
	return l.list.reset()
}

// release takes a run out of the list by emptying the list.
func (l *live) release(b *bound) error {
	if !b.listed {
		return nil
	}
	return l.resetList()
}

// kernelOf returns the executable's kernel in the context.
func (l *live) kernelOf(e *executable) (kernel, error) {
	if k := l.kernels[e]; k != nil {
		return k, nil
	}
	k, err := l.hw.kernel(e.artefact)
	if err != nil {
		return nil, err
	}
	l.kernels[e] = k
	return k, nil
}

// appendKey appends the key of a run: its executable and the IDs of its arguments.
func appendKey(dst []byte, e *executable, args []object) []byte {
	dst = strconv.AppendUint(dst, e.id, 36)
	for _, a := range args {
		dst = append(dst, ' ')
		dst = strconv.AppendUint(dst, a.id, 36)
	}
	return dst
}

// bind returns a run of the executable with the given arguments: an existing one, a new one, or, if
// the heap is full, the least recently used one with new arguments. Runs in pinned, the list being
// built, are not touched.
func (c *contexts) bind(l *live, e *executable, args []object, key []byte,
	pinned []*bound) (*bound, error) {
	c.clock++
	if b := l.runs[string(key)]; b != nil {
		b.used = c.clock
		return b, nil
	}
	b, err := c.makeRoom(l, e, pinned)
	if err != nil {
		return nil, err
	}
	if b == nil {
		k, err := l.kernelOf(e)
		if err != nil {
			return nil, err
		}
		r, err := k.run()
		if err != nil {
			return nil, err
		}
		b = &bound{run: r, exec: e, args: make([]uint64, len(args)), cost: e.config.cost}
		c.heap += b.cost
		c.made++
	}
	b.key, b.used = string(key), c.clock
	l.runs[b.key] = b
	for i, a := range args {
		if b.args[i] == a.id {
			continue
		}
		if err := b.run.set(i, a.memory); err != nil {
			return nil, errors.Join(fmt.Errorf("argument %q: %w", e.p.Args[i].Name, err),
				l.release(b), c.closeRun(l, b))
		}
		b.args[i] = a.id
	}
	return b, nil
}

// makeRoom makes room in the heap for one more run. It returns a run to rebind if it found one
// instead.
func (c *contexts) makeRoom(l *live, e *executable, pinned []*bound) (*bound, error) {
	for c.heap+e.config.cost > heapBudget {
		var of *live
		var oldest *bound
		for _, x := range c.alive {
			for _, b := range x.runs {
				// A run of the same program only needs new arguments, so it is preferred to runs of
				// any age.
				same, was := b.exec == e, oldest != nil && oldest.exec == e
				if slices.Contains(pinned, b) || was && !same {
					continue
				}
				if oldest == nil || same && !was || b.used < oldest.used {
					of, oldest = x, b
				}
			}
		}
		if oldest == nil {
			return nil, nil // one run exceeds the budget: let the driver decide
		}
		if err := of.release(oldest); err != nil {
			return nil, err
		}
		if oldest.exec == e && of == l {
			delete(l.runs, oldest.key)
			c.rebound++
			return oldest, nil
		}
		if err := c.closeRun(of, oldest); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
