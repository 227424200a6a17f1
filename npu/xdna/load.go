package xdna

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// loaded is a binary that is in use by executables.
type loaded struct {
	config
	path  string
	users int // guarded by Device.mu
	cost  int // bytes that a run takes from the device heap
}

// executable is a program and its artefact. Its hardware context is opened when a run needs it.
type executable struct {
	d        *Device
	p        *npu.Program
	artefact *Artefact
	config   *loaded
	id       uint64
	scratch  []int // rank of each Scratch argument: its index in Device.scratch
	closed   atomic.Bool
}

func (e *executable) Program() *npu.Program { return e.p }

// Close waits for a running Submit and releases the program's runs. The last program of a binary
// also closes the hardware context.
func (e *executable) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	d := e.d
	d.sem <- struct{}{}
	defer d.release()
	d.mu.Lock()
	e.config.users--
	last := e.config.users == 0 && d.configs[e.config.path] == e.config
	if last {
		delete(d.configs, e.config.path)
	}
	d.mu.Unlock()
	if !last {
		return d.contexts.closeProgram(e)
	}
	return errors.Join(d.contexts.dropConfig(e.config), e.config.close())
}

// Load finds the artefact of a program: the one with its name, whose signature matches. The signature
// is the instance, the number and the sizes of the arguments, the layout of attention, and the
// mapping. What the manifest does not state is read from the binary: how far the transfers reach in
// each argument, and the pitch of its rows. The mapping cannot be read; it is compared if the
// manifest states it.
//
// If there is no such artefact, the program is compiled if the device has a [Compiler]. Otherwise the
// error wraps [ErrNoArtefact], or [ErrMismatch] if the signature differs or cannot be known, and
// advises how to fix it.
func (d *Device) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := checkShapes(p); err != nil {
		return nil, err
	}
	a, err := d.artefacts.find(p)
	if d.compile != nil && (errors.Is(err, ErrNoArtefact) || errors.Is(err, ErrMismatch)) {
		if errors.Is(err, ErrMismatch) {
			d.log.Warn("an artefact is not used: compiling the program", "program", p.Name, "reason", err)
		}
		a, err = d.compile.artefact(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	if _, err := a.readUsage(); err != nil {
		d.log.Warn("transfers are not checked against the sizes of arguments", "program", p.Name, "reason", err)
	}
	c, err := d.configOf(a)
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: program %s: %w", p.Name, failure(err))
	}
	e := &executable{d: d, p: p, artefact: a, config: c, id: d.next.Add(1), scratch: scratchRanks(p)}
	if err := c.check(a, len(p.Args)); err != nil {
		return nil, errors.Join(fmt.Errorf("npu/xdna: program %s: %w", p.Name, err), e.Close())
	}
	return e, nil
}

// scratchRanks numbers the Scratch arguments of p, largest first, so that programs share large and
// small scratch buffers alike.
func scratchRanks(p *npu.Program) []int {
	ranks := make([]int, len(p.Args))
	var order []int
	for i, a := range p.Args {
		if a.Kind == npu.Scratch {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return argBytes(p.Args[j]) - argBytes(p.Args[i]) })
	for rank, i := range order {
		ranks[i] = rank
	}
	return ranks
}

// configOf returns the binary of an artefact, reading it on first use.
func (d *Device) configOf(a *Artefact) (*loaded, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, npu.ErrClosed
	}
	if l := d.configs[a.Binary]; l != nil {
		l.users++
		return l, nil
	}
	info, err := os.Stat(a.Binary)
	if err != nil {
		return nil, err
	}
	c, err := d.drv.load(a.Binary, a.isELF())
	if err != nil {
		return nil, err
	}
	// Each run of an ELF has a copy of its instructions and configuration. All runs of an xclbin
	// kernel share one stream.
	l := &loaded{config: c, path: a.Binary, users: 1, cost: heapUnit}
	if a.isELF() {
		l.cost = (int(info.Size()) + heapUnit - 1) / heapUnit * heapUnit
	}
	d.configs[a.Binary] = l
	return l, nil
}

// arguments returns the device memory of every argument of a run.
func (e *executable) arguments(r *npu.Run, dst []object) ([]object, error) {
	for i, a := range e.p.Args {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("npu/xdna: run %q of program %s, argument %q: %w", r.Name, e.p.Name,
				a.Name, fmt.Errorf(format, args...))
		}
		need := argBytes(a)
		switch b := r.Args[i].(type) {
		case nil:
			m, err := e.d.scratch.get(e.scratch[i], need)
			if err != nil {
				return nil, bad("%d bytes of scratch: %w", need, failure(err))
			}
			dst = append(dst, m)
		case *buffer:
			switch {
			case b.d != e.d:
				return nil, bad("buffer belongs to another device")
			case b.isClosed():
				return nil, bad("buffer: %w", npu.ErrClosed)
			case b.size < need: // Run.Check does not check constants
				return nil, bad("buffer too small: %s %s needs %d bytes, have %d", a.Type,
					op.ShapeString(a.Shape), need, b.size)
			}
			dst = append(dst, b.array)
		case *weight:
			switch {
			case b.d != e.d:
				return nil, bad("buffer belongs to another device")
			case b.isClosed():
				return nil, bad("buffer: %w", npu.ErrClosed)
			case a.Kind != npu.Const && a.Kind != npu.In:
				return nil, bad("the program writes it, but its buffer is a read-only weight")
			case b.s.typ != a.Type || b.s.size < need:
				return nil, bad("weight does not match: %s %s needs %d bytes, the buffer holds %d "+
					"bytes of %s", a.Type, op.ShapeString(a.Shape), need, b.s.size,
					b.s.typ)
			}
			dst = append(dst, b.s.array)
		default:
			return nil, bad("buffer belongs to another device")
		}
	}
	return dst, nil
}

func (b *buffer) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func (w *weight) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
