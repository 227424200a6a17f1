package model

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// executor runs a plan on a device. It owns the loaded programs, the weights and the buffers
// between programs, which all sessions of a model share. One pass runs at a time. This file loads a
// plan, schedule.go selects the rows of a pass, and pass.go runs it.
type executor struct {
	chooser // with the plan

	dev, host npu.Device // host runs host steps; it is dev itself if the device has no host
	freq      []float32  // RoPE, radians per position

	tap        Tap // may be nil
	tapBuffers map[tapKey]npu.Buffer

	prefill []boundPass
	decode  boundPass
	values  map[string]*value
	frees   []func() error // of programs and weights

	queue *scheduler

	// done is the input whose rows the values hold, up to the head. It is nil after a pass of any
	// number of rows and after a failed pass. The running pass owns it and the values.
	done *input
}

// value is a buffer of the plan. It grows to the largest run.
type value struct {
	plan.Value
	on  npu.Device // the device if one of its steps uses the value, else the host
	buf npu.Buffer

	// The newer side, and how much of it the other side has. In a new buffer all are zero.
	hostWrote   int // bytes from the start that the host wrote and the device does not have
	deviceWrote bool
	hostHas     int // bytes from the start of the device's that the host has
	padded      int // if not 0, both sides have zeros from this byte on
}

// boundPass is a pass with resolved steps.
type boundPass struct {
	plan.Pass
	steps, head []boundStep
}

// boundStep is a step with its executable and constants.
type boundStep struct {
	plan.Step
	exec   npu.Executable
	consts []npu.Buffer // per argument; nil if it is not a constant
	states []string     // caches of the session, in order of the program's State arguments
	taps   []tapped     // of the debug form
}

// weights provides the checkpoint's tensors and computed tables to a device.
type weights struct {
	ck    *checkpoint.Checkpoint
	table npu.Tensor // hostvalue.RoPETable
}

func (w weights) Tensor(name string) (npu.Tensor, error) {
	if name == hostvalue.RoPETable {
		return w.table, nil
	}
	t, err := w.ck.Tensor(name)
	return npu.Tensor{Type: t.Type, Shape: t.Shape, Data: t.Data}, err
}

// newExecutor loads the plan's programs and weights on the device.
func newExecutor(ctx context.Context, dev npu.Device, ck *checkpoint.Checkpoint, p *plan.Plan, tap Tap) (
	_ *executor, err error,
) {
	e := &executor{
		dev:     dev,
		host:    npu.HostOf(dev),
		chooser: chooser{plan: p, fewRows: dev.Info().FewRows},
		tap:     tap,
		values:  map[string]*value{},

		tapBuffers: map[tapKey]npu.Buffer{},

		queue: newScheduler(p, dev.Info(), tap != nil),
	}
	e.queue.pass = e.runPass
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	for _, f := range ck.Config().RoPE.InvFreq(ck.Config().HeadDim) {
		e.freq = append(e.freq, float32(f))
	}
	for _, v := range p.Values {
		e.values[v.Name] = &value{Value: v, on: e.host}
	}
	l := loader{e: e, from: weights{ck: ck}, programs: map[loadKey]npu.Executable{},
		consts: map[loadKey]loadedWeight{}}
	for _, pass := range p.Prefill {
		b, err := l.pass(ctx, pass)
		if err != nil {
			return nil, err
		}
		e.prefill = append(e.prefill, b)
	}
	e.decode, err = l.pass(ctx, p.Decode)
	return e, err
}

// loader resolves steps. It loads each program and each weight once for each side that uses it.
type loader struct {
	e        *executor
	from     weights
	table    npu.Buffer // memory of from.table
	programs map[loadKey]npu.Executable
	consts   map[loadKey]loadedWeight
}

// loadedWeight is a weight on a device, with its type and shape in the checkpoint.
type loadedWeight struct {
	npu.Buffer
	typ   dtype.Type
	shape []int
}

type loadKey struct {
	on     string // OnDevice or OnHost
	name   string // of a program, or a layout
	lookup bool   // the program only looks up rows of the weight
}

func (l *loader) pass(ctx context.Context, p plan.Pass) (b boundPass, err error) {
	b.Pass = p
	if b.steps, err = l.steps(ctx, p.Steps); err == nil {
		b.head, err = l.steps(ctx, p.Head)
	}
	return b, err
}

func (l *loader) steps(ctx context.Context, steps []plan.Step) ([]boundStep, error) {
	var list []boundStep
	for _, s := range steps {
		b, err := l.step(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("model: step %s: %w", s.Name, err)
		}
		list = append(list, b)
	}
	return list, nil
}

func (l *loader) step(ctx context.Context, s plan.Step) (b boundStep, err error) {
	dev := l.e.dev
	if s.On == plan.OnHost {
		dev = l.e.host
	}
	b = boundStep{Step: s, consts: make([]npu.Buffer, len(s.Args))}
	key := loadKey{on: s.On, name: s.Program}
	if b.exec = l.programs[key]; b.exec == nil {
		p := l.e.plan.Program(s.Program)
		if l.e.tap != nil {
			p = p.Debug()
		}
		if b.exec, err = dev.Load(ctx, p); err != nil {
			return b, err
		}
		l.programs[key] = b.exec
		l.e.frees = append(l.e.frees, b.exec.Close)
	}
	if l.e.tap != nil {
		b.taps = tapsOf(b.exec.Program())
	}
	for i, bind := range s.Args {
		switch {
		case bind.State != "":
			b.states = append(b.states, bind.State)
		case bind.Value != "" && s.On == plan.OnDevice:
			l.e.values[bind.Value].on = dev
		case bind.Const != nil:
			if b.consts[i], err = l.constant(ctx, dev, s.On, *bind.Const, b.exec.Program(), i); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

// constant loads a weight on a device, after checking it against the argument that it is bound to.
func (l *loader) constant(ctx context.Context, dev npu.Device, on string, layout npu.Layout,
	p *npu.Program, arg int,
) (npu.Buffer, error) {
	a := p.Args[arg]
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if mentions(layout, hostvalue.RoPETable) {
		if err := l.ropeTable(ctx); err != nil {
			return nil, err
		}
	}
	if a.Type == dtype.BF16 {
		var err error
		if layout, err = l.bf16(layout); err != nil {
			return nil, err
		}
	}
	key := loadKey{on: on, name: layout.String(), lookup: p.LooksUp(arg)}
	b, ok := l.consts[key]
	src := npu.Source{Layout: layout, From: l.from, Lookup: key.lookup}
	if !ok {
		var err error
		if b.typ, b.shape, err = src.Stat(); err != nil {
			return nil, err
		}
	}
	if b.typ != a.Type || !sameWeight(b.shape, a.Shape) {
		return nil, fmt.Errorf("argument %q is %s %v, the checkpoint's %s is %s %v",
			a.Name, a.Type, a.Shape, layout, b.typ, b.shape)
	}
	if !ok {
		var err error
		if b.Buffer, err = dev.Const(ctx, src); err != nil {
			return nil, err
		}
		l.consts[key] = b
		l.e.frees = append(l.e.frees, b.Close)
		l.release(layout, dev.Info().InPlace)
	}
	return b.Buffer, nil
}

// release frees the memory of tensors that the device has copied, so that a model's weights are in
// memory once. The pages of a mapped file are read again on demand, but tensors that the checkpoint
// has rearranged are not, so those stay if a side uses weights of their type in place.
func (l *loader) release(layout npu.Layout, inPlace []dtype.Type) {
	name, ok := layout.Identity()
	if !ok {
		for _, a := range layout.Args {
			l.release(a, nil)
		}
		return
	}
	t, err := l.from.ck.Tensor(name)
	if err != nil || slices.Contains(inPlace, t.Type) {
		return
	}
	used := slices.Contains(l.e.dev.Info().InPlace, t.Type) ||
		slices.Contains(l.e.host.Info().InPlace, t.Type)
	if t.Mapped || !used {
		l.from.ck.Release(name)
	}
}

// bf16 returns the layout with its tensors of other types converted to BF16, for NPU programs.
func (l *loader) bf16(layout npu.Layout) (npu.Layout, error) {
	if name, ok := layout.Identity(); ok {
		t, err := l.from.Tensor(name)
		if err != nil || t.Type == dtype.BF16 {
			return layout, err
		}
		return npu.Layout{Op: "bf16", Args: []npu.Layout{layout}}, nil
	}
	args := slices.Clone(layout.Args)
	for i := range args {
		var err error
		if args[i], err = l.bf16(args[i]); err != nil {
			return layout, err
		}
	}
	layout.Args = args
	return layout, nil
}

// sameWeight reports whether a weight of one shape fits an argument of another. An argument may be
// flat, like the tables of artifacts.
func sameWeight(shape, arg []int) bool {
	one := op.Size{}
	if len(arg) == 1 {
		return one.Elements(shape) == arg[0]
	}
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	for len(arg) > 1 && arg[0] == 1 {
		arg = arg[1:]
	}
	return slices.Equal(shape, arg)
}

// mentions reports whether a layout reads the tensor.
func mentions(l npu.Layout, tensor string) bool {
	name, ok := l.Identity()
	return ok && name == tensor ||
		slices.ContainsFunc(l.Args, func(a npu.Layout) bool { return mentions(a, tensor) })
}

// ropeTable computes the table hostvalue.RoPETable, once.
func (l *loader) ropeTable(ctx context.Context) error {
	if l.table != nil {
		return nil
	}
	width := 2 * len(l.e.freq)
	buf, err := l.e.host.Alloc(ctx, l.e.plan.SeqLen*dtype.BF16.Bytes(width))
	if err != nil {
		return fmt.Errorf("RoPE table of %d positions: %w", l.e.plan.SeqLen, err)
	}
	l.table = buf
	l.e.frees = append(l.e.frees, buf.Close) // in reverse order: after the constants made from it
	dst, row := dtype.BFloat16s(buf.Bytes()), make([]float32, width)
	for pos := range l.e.plan.SeqLen {
		ropeRow(row, l.e.freq, pos)
		dtype.F32ToBF16(dst[pos*width:][:width], row)
	}
	l.from.table = npu.Tensor{Type: dtype.BF16, Shape: []int{l.e.plan.SeqLen, width}, Data: buf.Bytes()}
	return nil
}

// Close waits for a running pass, and then frees programs, weights and buffers in reverse order of
// creation. It must be called once.
func (e *executor) Close() error {
	e.queue.close()
	var errs []error
	for _, b := range e.tapBuffers {
		errs = append(errs, b.Close())
	}
	for _, v := range e.values {
		if v.buf != nil {
			errs = append(errs, v.buf.Close())
		}
	}
	for i := len(e.frees) - 1; i >= 0; i-- {
		errs = append(errs, e.frees[i]())
	}
	return errors.Join(errs...)
}
