package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// executor runs a plan on a device: it owns the loaded programs, the weights and the buffers between programs, which all sessions of a model share. One pass
// runs at a time; others wait their turn.
type executor struct {
	dev  npu.Device
	plan *Plan
	freq []float32 // RoPE, radians per position

	phases map[phase][]boundStep
	values map[string]*value
	frees  []func() error // of programs and weights

	turn   chan struct{} // holds a token while no pass runs
	closed chan struct{} // closed when the executor is
}

// phase is one of a plan's two lists of steps.
type phase int

const (
	prefill phase = iota
	decode
)

// value is a buffer of the plan that grows to the largest run seen.
type value struct {
	Value
	buf npu.Buffer
}

// boundStep is a step whose executable and constants are resolved.
type boundStep struct {
	Step
	exec   npu.Executable
	consts []npu.Buffer // one for each argument, nil where the argument is not const
	states []string     // caches of the session, in the order of the program's State arguments
}

// weights looks up a checkpoint's tensors for a device.
type weights struct{ ck *checkpoint.Checkpoint }

func (w weights) Tensor(name string) (npu.Tensor, error) {
	t, err := w.ck.Tensor(name)
	return npu.Tensor{Type: t.Type, Shape: t.Shape, Data: t.Data}, err
}

// newExecutor loads the plan's programs and weights on the device.
func newExecutor(ctx context.Context, dev npu.Device, ck *checkpoint.Checkpoint, plan *Plan) (_ *executor, err error) {
	e := &executor{
		dev:    dev,
		plan:   plan,
		phases: map[phase][]boundStep{},
		values: map[string]*value{},
		turn:   make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	e.turn <- struct{}{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	for _, f := range ck.Config().RoPE.InvFreq(ck.Config().HeadDim) {
		e.freq = append(e.freq, float32(f))
	}
	for _, v := range plan.Values {
		e.values[v.Name] = &value{Value: v}
	}
	loaded := map[string]npu.Executable{}
	for _, p := range plan.Programs {
		x, err := dev.Load(ctx, p)
		if err != nil {
			return nil, err
		}
		e.frees = append(e.frees, x.Close)
		loaded[p.Name] = x
	}
	consts := map[string]npu.Buffer{}
	for ph, steps := range map[phase][]Step{prefill: plan.Prefill, decode: plan.Decode} {
		for _, s := range steps {
			if s.On != "npu" {
				return nil, fmt.Errorf("model: step %s runs on the %s, which device %s has no use for", s.Name, s.On, dev.Info().Kind)
			}
			b := boundStep{Step: s, exec: loaded[s.Program], consts: make([]npu.Buffer, len(s.Args))}
			for i, bind := range s.Args {
				if bind.State != "" {
					b.states = append(b.states, bind.State)
				}
				if bind.Const == nil {
					continue
				}
				if err := checkConst(ck, *bind.Const, b.exec.Program().Args[i]); err != nil {
					return nil, fmt.Errorf("model: step %s: %w", s.Name, err)
				}
				key := bind.Const.String()
				if consts[key] == nil {
					if consts[key], err = e.constant(ctx, ck, *bind.Const); err != nil {
						return nil, fmt.Errorf("model: step %s: %w", s.Name, err)
					}
				}
				b.consts[i] = consts[key]
			}
			e.phases[ph] = append(e.phases[ph], b)
		}
	}
	return e, nil
}

// checkConst holds the weight that a layout describes to the argument that it is bound to.
func checkConst(ck *checkpoint.Checkpoint, l npu.Layout, a npu.Arg) error {
	t, shape, err := npu.Source{Layout: l, From: weights{ck}}.Stat()
	if err != nil {
		return err
	}
	if t != a.Type || !slices.Equal(shape, a.Shape) {
		return fmt.Errorf("argument %q is %s %v, the checkpoint's %s is %s %v", a.Name, a.Type, a.Shape, l, t, shape)
	}
	return nil
}

func (e *executor) constant(ctx context.Context, ck *checkpoint.Checkpoint, l npu.Layout) (npu.Buffer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	buf, err := e.dev.Const(ctx, npu.Source{Layout: l, From: weights{ck}})
	if err == nil {
		e.frees = append(e.frees, buf.Close)
	}
	return buf, err
}

// Close frees programs, weights and buffers, in the opposite order of their making, after a running pass has ended. It is called once.
func (e *executor) Close() error {
	close(e.closed)
	<-e.turn // never put back: no pass starts again
	var errs []error
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

// lock waits for the executor's turn.
func (e *executor) lock(ctx context.Context) error {
	select {
	case <-e.closed:
		return ErrClosed
	default:
	}
	select {
	case <-e.turn:
		return nil
	case <-e.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *executor) unlock() { e.turn <- struct{}{} }

// input is one session's part of a pass.
type input struct {
	ids   []int32
	pos   int // position of the first id
	cache *cache
	picks []int // rows of ids whose logits are wanted

	logits []float32 // [picks, vocab], where to put them
}

// pass runs one phase over the inputs and copies the logits of all picked rows out, so that others may pass while they are looked at.
func (e *executor) pass(ctx context.Context, ph phase, inputs []input) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()

	rows, picks := 0, 0
	for _, in := range inputs {
		rows += len(in.ids)
		picks += len(in.picks)
	}
	started := time.Now()
	size := op.Size{Rows: rows, Picks: picks}
	if err := e.grow(ctx, size); err != nil {
		return err
	}
	if err := e.fill(inputs); err != nil {
		return err
	}
	runs := e.runs(ph, inputs, picks)
	host(ctx, "prepare", started)
	if err := e.dev.Submit(ctx, runs); err != nil {
		return err
	}
	return e.logits(inputs)
}

// runs makes the list of dispatches. Steps that only serve the logits are left out when no row is picked.
func (e *executor) runs(ph phase, inputs []input, picks int) []npu.Run {
	steps := e.phases[ph]
	runs := make([]npu.Run, 0, len(steps))
	for i := range steps {
		s := &steps[i]
		if picks == 0 && hasPicks(s.exec.Program()) {
			continue
		}
		r := npu.Run{Name: s.Name, Exec: s.exec, Args: make([]npu.Buffer, len(s.Args)), Picks: picks}
		for j, b := range s.Args {
			switch {
			case b.Value != "":
				r.Args[j] = e.values[b.Value].buf
			case b.Const != nil:
				r.Args[j] = s.consts[j]
			}
		}
		for _, in := range inputs {
			seg := npu.Segment{Rows: len(in.ids), Pos: in.pos}
			for _, name := range s.states {
				seg.State = append(seg.State, in.cache.buffers[name])
			}
			r.Segments = append(r.Segments, seg)
		}
		runs = append(runs, r)
	}
	return runs
}

// grow makes every value large enough for the run.
func (e *executor) grow(ctx context.Context, size op.Size) error {
	for _, v := range e.values {
		need := v.Type.Bytes(size.Elements(v.Shape))
		if need == 0 || v.buf != nil && v.buf.Len() >= need {
			continue
		}
		buf, err := e.dev.Alloc(ctx, need)
		if err != nil {
			return fmt.Errorf("model: buffer %q: %w", v.Name, err)
		}
		if v.buf != nil {
			if err := v.buf.Close(); err != nil {
				return errors.Join(err, buf.Close())
			}
		}
		v.buf = buf
	}
	return nil
}

// fill writes what the host knows: ids, the rotations of their positions, the picked rows.
func (e *executor) fill(inputs []input) error {
	ids, picks := e.values[ValueIDs], e.values[ValuePicks]
	row, pick := 0, 0
	for _, in := range inputs {
		copy(dtype.Int32s(ids.buf.Bytes())[row:], in.ids)
		for _, p := range in.picks {
			dtype.Int32s(picks.buf.Bytes())[pick] = int32(row + p)
			pick++
		}
		if table := e.values[ValueRoPE]; table != nil {
			width := 2 * len(e.freq)
			dst := dtype.Float32s(table.buf.Bytes())
			for r := range in.ids {
				ropeRow(dst[(row+r)*width:][:width], e.freq, in.pos+r)
			}
		}
		row += len(in.ids)
	}
	for _, name := range []string{ValueIDs, ValuePicks, ValueRoPE} {
		if v := e.values[name]; v != nil && v.buf != nil {
			if err := v.buf.Sync(npu.ToDevice, 0, v.buf.Len()); err != nil {
				return fmt.Errorf("model: buffer %q: %w", name, err)
			}
		}
	}
	return nil
}

// logits copies the picked rows' logits to where the inputs want them.
func (e *executor) logits(inputs []input) error {
	v := e.values[ValueLogits]
	from := 0
	for _, in := range inputs {
		n := len(in.picks) * e.plan.Model.Vocab
		if n == 0 {
			continue
		}
		if err := v.buf.Sync(npu.FromDevice, from*4, n*4); err != nil {
			return fmt.Errorf("model: buffer %q: %w", v.Name, err)
		}
		copy(in.logits, dtype.Float32s(v.buf.Bytes())[from:from+n])
		from += n
	}
	return nil
}

// host reports a piece of host work to the context's tracer.
func host(ctx context.Context, name string, started time.Time) {
	if trace := npu.Tracer(ctx); trace != nil {
		trace(npu.Span{Name: name, Category: "host", Start: started, Duration: time.Since(started)})
	}
}
