package model

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// executor runs a plan on a device: it owns the loaded programs, the weights and the buffers between programs, which all sessions of a model share. One pass
// runs at a time. This file loads a plan; schedule.go says whose rows a pass takes, pass.go runs it.
type executor struct {
	dev, host npu.Device // host executes the steps that run there; it is dev itself where the device has none
	plan      *plan.Plan
	freq      []float32 // RoPE, radians per position

	tap        Tap // nil, or what sees every launch's output
	tapBuffers map[tapKey]npu.Buffer

	prefill []boundPass
	decode  boundPass
	values  map[string]*value
	frees   []func() error // of programs and weights

	queue   *scheduler
	fewRows int // npu.Info.FewRows: passes of more rows may sum in another order

	// done is the input whose rows the values hold, up to the head. It is nil after a pass of any
	// number of rows and after a failed one. It and the values belong to the running pass.
	done *input
}

// value is a buffer of the plan that grows to the largest run seen.
type value struct {
	plan.Value
	on  npu.Device // the device, where one of its steps uses the value, else the host
	buf npu.Buffer

	// Which side wrote it last, and how far the other side has it. The zero values are those of a buffer that nobody has written.
	hostWrote   int // bytes from the start on that the host has written and the device has not got
	deviceWrote bool
	hostHas     int // bytes from the start on of what the device wrote that the host has got
	padded      int // bytes from which on the host's side holds zeros, as the device has them too; 0 for none
}

// boundPass is a pass whose steps are resolved.
type boundPass struct {
	plan.Pass
	steps, head []boundStep
}

// boundStep is a step whose executable and constants are resolved.
type boundStep struct {
	plan.Step
	exec   npu.Executable
	consts []npu.Buffer // one for each argument, nil where the argument is not const
	states []string     // caches of the session, in the order of the program's State arguments
	taps   []tapped     // of a debug load
}

// weights looks up a checkpoint's tensors for a device, and the tables that are computed beside them.
type weights struct {
	ck    *checkpoint.Checkpoint
	table npu.Tensor // TensorRoPE
}

func (w weights) Tensor(name string) (npu.Tensor, error) {
	if name == plan.TensorRoPE {
		return w.table, nil
	}
	t, err := w.ck.Tensor(name)
	return npu.Tensor{Type: t.Type, Shape: t.Shape, Data: t.Data}, err
}

// newExecutor loads the plan's programs and weights on the device.
func newExecutor(ctx context.Context, dev npu.Device, ck *checkpoint.Checkpoint, p *plan.Plan, tap Tap) (_ *executor, err error) {
	e := &executor{
		dev:    dev,
		host:   npu.HostOf(dev),
		plan:   p,
		tap:    tap,
		values: map[string]*value{},

		tapBuffers: map[tapKey]npu.Buffer{},

		queue:   newScheduler(p, dev.Info(), tap != nil),
		fewRows: dev.Info().FewRows,
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
	l := loader{e: e, from: weights{ck: ck}, programs: map[loadKey]npu.Executable{}, consts: map[loadKey]brought{}}
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

// loader resolves steps: every program is loaded once on each side that uses it, every weight brought there once.
type loader struct {
	e        *executor
	from     weights
	table    npu.Buffer // memory of from.table
	programs map[loadKey]npu.Executable
	consts   map[loadKey]brought
}

// brought is a weight that is on a device, and what it was before.
type brought struct {
	npu.Buffer
	typ   dtype.Type
	shape []int
}

type loadKey struct {
	on     string // OnDevice or OnHost
	what   string // name of a program, or a layout
	lookup bool   // of a layout: only rows of it are looked up
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
	key := loadKey{on: s.On, what: s.Program}
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

// constant brings a weight to a device, after holding it to the argument that it is bound to.
func (l *loader) constant(ctx context.Context, dev npu.Device, on string, layout npu.Layout, p *npu.Program, arg int) (npu.Buffer, error) {
	a := p.Args[arg]
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if mentions(layout, plan.TensorRoPE) {
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
	key := loadKey{on: on, what: layout.String(), lookup: p.LooksUp(arg)}
	b, ok := l.consts[key]
	src := npu.Source{Layout: layout, From: l.from, Lookup: key.lookup}
	if !ok {
		var err error
		if b.typ, b.shape, err = src.Stat(); err != nil {
			return nil, err
		}
	}
	if b.typ != a.Type || !sameWeight(b.shape, a.Shape) {
		return nil, fmt.Errorf("argument %q is %s %v, the checkpoint's %s is %s %v", a.Name, a.Type, a.Shape, layout, b.typ, b.shape)
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

// release gives back the memory of tensors that the device has made a copy of: a model's weights count once. Pages of a file come back when somebody
// reads them. What the checkpoint has rearranged does not, so it stays where a side reads weights of its type in place.
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
	if t.Mapped || !slices.Contains(l.e.dev.Info().InPlace, t.Type) && !slices.Contains(l.e.host.Info().InPlace, t.Type) {
		l.from.ck.Release(name)
	}
}

// bf16 is a layout whose tensors of other types are brought to BF16: what programs for the NPU want, whatever the checkpoint holds.
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

// sameWeight reports whether a weight of one shape is what an argument of another asks for. An argument may be flat: artefacts have their tables so.
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

// mentions reports whether a layout is made of a tensor.
func mentions(l npu.Layout, tensor string) bool {
	name, ok := l.Identity()
	return ok && name == tensor || slices.ContainsFunc(l.Args, func(a npu.Layout) bool { return mentions(a, tensor) })
}

// ropeTable makes the table that TensorRoPE names, once.
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
	l.e.frees = append(l.e.frees, buf.Close) // after the constants that are made of it: they are freed in the opposite order
	dst, row := dtype.BFloat16s(buf.Bytes()), make([]float32, width)
	for pos := range l.e.plan.SeqLen {
		ropeRow(row, l.e.freq, pos)
		dtype.F32ToBF16(dst[pos*width:][:width], row)
	}
	l.from.table = npu.Tensor{Type: dtype.BF16, Shape: []int{l.e.plan.SeqLen, width}, Data: buf.Bytes()}
	return nil
}

// Close frees programs, weights and buffers, in the opposite order of their making, after a running pass has ended. It is called once.
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
