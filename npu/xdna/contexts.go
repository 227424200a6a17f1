package xdna

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/npukit/npukit/xrt"
)

// contexts keeps the hardware contexts that are alive, a few at most: programs of a phase stay, and those of the phase before go when room
// is needed, the least recently used first. With a context go its kernels and runs; buffers outlive it. Used by the holder of the device's
// turn.
type contexts struct {
	limit int
	log   *slog.Logger
	alive []*live // by last use, the latest at the end
	heap  int     // bytes that runs have in the device's heap
	clock uint64

	opened, made, rebound int // since the start, for tests
}

// live is a context.
type live struct {
	config  *loaded
	hw      hwContext
	kernels map[*executable]kernel
	runs    map[string]*bound // by executable and arguments
	list    runlist           // nil until there was something to put into it
	listed  []*bound          // what it holds
}

// bound is a run with its arguments set.
type bound struct {
	run  run
	exec *executable
	key  string
	args []uint64 // numbers of its arguments
	cost int      // of the device's heap
	used uint64
	in   bool // in the context's list
}

// Every run of an ELF has a copy of the instructions and of the array's configuration in the device's heap of 64 MB, in units of 32 KiB.
// Ours may have three quarters of it together; then the least recently used ones are bound to other arguments.
const (
	heapBudget = 48 << 20
	heapUnit   = 32 << 10
)

// get is the context of an executable, opened if it is not there.
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
			l := &live{config: e.config, hw: hw, kernels: map[*executable]kernel{}, runs: map[string]*bound{}}
			c.alive = append(c.alive, l)
			c.opened++
			return l, nil
		}
		// Other processes have contexts too: make do with fewer.
		if !errors.Is(err, xrt.ErrNoContext) || len(c.alive) == 0 {
			return nil, err
		}
		c.log.Info("the driver has no context left: closing one", "alive", len(c.alive))
		if e := c.drop(c.alive[0]); e != nil {
			return nil, errors.Join(err, e)
		}
	}
}

// drop closes a context with all that is in it.
func (c *contexts) drop(l *live) error {
	var errs []error
	errs = append(errs, l.unlist())
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

// abandon drops a context that failed. What closing it has to say is no news.
func (c *contexts) abandon(l *live) {
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

// dropConfig closes the context of a binary, if it is alive.
func (c *contexts) dropConfig(config *loaded) error {
	for _, l := range c.alive {
		if l.config == config {
			return c.drop(l)
		}
	}
	return nil
}

// forget closes the runs that have an object as an argument: the object goes.
func (c *contexts) forget(id uint64) {
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

// forgetProgram closes the kernel and the runs of an executable in a context that other programs use.
func (c *contexts) forgetProgram(e *executable) error {
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

// unlist empties the context's list.
func (l *live) unlist() error {
	if len(l.listed) == 0 {
		return nil
	}
	for _, b := range l.listed {
		b.in = false
	}
	l.listed = l.listed[:0]
	return l.list.reset()
}

// release takes a run out of the list, and the others with it.
func (l *live) release(b *bound) error {
	if !b.in {
		return nil
	}
	return l.unlist()
}

// kernelOf is the executable's kernel in the context.
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

// appendKey writes what names a run: its executable and the numbers of its arguments.
func appendKey(dst []byte, e *executable, args []object) []byte {
	dst = strconv.AppendUint(dst, e.id, 36)
	for _, a := range args {
		dst = append(dst, ' ')
		dst = strconv.AppendUint(dst, a.id, 36)
	}
	return dst
}

// bind is a run of the executable with the arguments: one that was made earlier for the same, or a new one, or when the heap is full, the
// one used longest ago with other arguments. Runs that are in keep, the list being put together, are left alone.
func (c *contexts) bind(l *live, e *executable, args []object, key []byte, keep []*bound) (*bound, error) {
	c.clock++
	if b := l.runs[string(key)]; b != nil {
		b.used = c.clock
		return b, nil
	}
	b, err := c.spare(l, e, keep)
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
			return nil, errors.Join(fmt.Errorf("argument %q: %w", e.p.Args[i].Name, err), l.release(b), c.closeRun(l, b))
		}
		b.args[i] = a.id
	}
	return b, nil
}

// spare makes room in the heap for one more run, and is a run to be bound anew if that is how.
func (c *contexts) spare(l *live, e *executable, keep []*bound) (*bound, error) {
	for c.heap+e.config.cost > heapBudget {
		var of *live
		var oldest *bound
		for _, x := range c.alive {
			for _, b := range x.runs {
				// Among runs of the same program one need only change arguments; it is preferred to others of any age.
				same, was := b.exec == e, oldest != nil && oldest.exec == e
				if slices.Contains(keep, b) || was && !same {
					continue
				}
				if oldest == nil || same && !was || b.used < oldest.used {
					of, oldest = x, b
				}
			}
		}
		if oldest == nil {
			return nil, nil // one run alone is larger than the budget: the driver decides
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
