package model

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// input is one session's part of a pass.
type input struct {
	ids   []int32
	pos   int // of the first id
	cache *cache
	picks []int // rows of ids whose logits are wanted

	logits []float32 // [picks, vocab], the destination
}

// execute checks a job and runs it in a pass, with jobs of other sessions if they go together: see
// [scheduler.submit].
func (e *executor) execute(j *job) error {
	if err := e.check(j); err != nil {
		return err
	}
	if err := j.ctx.Err(); err != nil {
		return err
	}
	return e.queue.submit(j)
}

// check returns an error for a job that would make the device refuse the whole pass.
func (e *executor) check(j *job) error {
	if rows := j.pass.Rows; rows > 0 && len(j.in.ids) > rows {
		return fmt.Errorf("model: a pass of %d rows cannot take %d", rows, len(j.in.ids))
	}
	return nil
}

// runPass runs the inputs through a pass and copies out the logits of their picked rows.
func (e *executor) runPass(ctx context.Context, p *boundPass, inputs []*input) error {
	if p.Rows == 0 {
		return e.openPass(ctx, p, inputs)
	}
	return e.fixedPass(ctx, p, inputs[0])
}

// openPass runs steps and head of any number of rows in one submission. It copies out the logits of
// all picked rows, so that the next pass can start while they are used.
func (e *executor) openPass(ctx context.Context, p *boundPass, inputs []*input) error {
	e.done = nil
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
	e.fill(inputs)
	row, pick := 0, 0
	for _, in := range inputs {
		for _, r := range in.picks {
			dtype.Int32s(e.values[hostvalue.Picks].buf.Bytes())[pick] = int32(row + r)
			pick++
		}
		row += len(in.ids)
	}
	e.values[hostvalue.Picks].hostWrites(4 * picks)
	steps := p.steps
	if picks > 0 {
		steps = append(steps[:len(steps):len(steps)], p.head...)
	}
	spanHost(ctx, "prepare", started)
	if err := e.submit(ctx, steps, inputs, size, 0); err != nil {
		return err
	}
	from := 0
	for _, in := range inputs {
		if err := e.readLogits(from, len(in.picks), in.logits); err != nil {
			return err
		}
		from += len(in.picks)
	}
	return nil
}

// fixedPass runs one input through programs of fixed rows, then the head for each picked row. If
// the last pass had the same input, only the head runs: long texts are scored in several such
// calls.
func (e *executor) fixedPass(ctx context.Context, p *boundPass, in *input) error {
	inputs := []*input{in}
	size := op.Size{Rows: len(in.ids), Picks: 1}
	if e.done != in {
		e.done = nil
		started := time.Now()
		if err := e.grow(ctx, size); err != nil {
			return err
		}
		e.fill(inputs)
		spanHost(ctx, "prepare", started)
		if err := e.submit(ctx, p.steps, inputs, size, p.Rows); err != nil {
			return err
		}
		e.done = in
	}
	vocab := e.plan.Model.Vocab
	for i, row := range in.picks {
		picks := e.values[hostvalue.Picks]
		dtype.Int32s(picks.buf.Bytes())[0] = int32(row)
		picks.hostWrites(4)
		if err := e.submit(ctx, p.head, inputs, size, p.Rows); err != nil {
			e.done = nil
			return err
		}
		if err := e.readLogits(0, 1, in.logits[i*vocab:]); err != nil {
			return err
		}
	}
	return nil
}

// grow grows all values to the size of the run. Values of fixed shape are allocated once.
func (e *executor) grow(ctx context.Context, size op.Size) error {
	for _, v := range e.values {
		need := v.Type.Bytes(size.Elements(v.Shape))
		if need == 0 || v.buf != nil && v.buf.Len() >= need {
			continue
		}
		buf, err := v.on.Alloc(ctx, need)
		if err != nil {
			return fmt.Errorf("model: buffer %q: %w", v.Name, err)
		}
		if v.buf != nil {
			if err := v.buf.Close(); err != nil {
				return errors.Join(err, buf.Close())
			}
		}
		v.buf, v.hostWrote, v.deviceWrote, v.hostHas, v.padded = buf, 0, false, 0, 0
	}
	return nil
}

// fill writes the host's inputs: ids, and the cosines and sines of their positions.
func (e *executor) fill(inputs []*input) {
	ids := e.values[hostvalue.IDs]
	row := 0
	for _, in := range inputs {
		copy(dtype.Int32s(ids.buf.Bytes())[row:], in.ids)
		row += len(in.ids)
	}
	ids.hostWrites(4 * row)
	for _, v := range e.values {
		if hostvalue.RoPEWidth(v.Name, v.Shape) > 0 {
			e.fillRoPE(v, inputs, row)
		}
	}
}

// readLogits copies out n rows of logits.
func (e *executor) readLogits(from, n int, dst []float32) error {
	if n == 0 {
		return nil
	}
	v, vocab := e.values[hostvalue.Logits], e.plan.Model.Vocab
	if err := v.toHost(4 * (from + n) * vocab); err != nil {
		return err
	}
	copy(dst[:n*vocab], dtype.Float32s(v.buf.Bytes())[from*vocab:])
	return nil
}

// submit dispatches steps in order; adjacent steps on the same side are submitted together. It
// syncs the values that one side wrote and the other reads. rows is the number of rows that the
// programs are compiled for, or 0 for any number.
func (e *executor) submit(ctx context.Context, steps []boundStep, inputs []*input, size op.Size, rows int,
) error {
	for i := 0; i < len(steps); {
		on := steps[i].On
		var runs []npu.Run
		n := i
		for ; n < len(steps) && steps[n].On == on && (e.tap == nil || n == i); n++ {
			r, err := e.run(ctx, &steps[n], inputs, size, rows)
			if err != nil {
				return err
			}
			runs = append(runs, r)
		}
		dev := e.dev
		if on == plan.OnHost {
			dev = e.host
		}
		started := time.Now()
		if err := dev.Submit(ctx, runs); err != nil {
			return err
		}
		if on == plan.OnHost && e.host != e.dev {
			spanHost(ctx, steps[i].Name, started)
		}
		for ; i < n; i++ {
			if e.tap != nil {
				if err := e.report(&steps[i], runs[0], size, rows); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// run binds buffers to a step's arguments and syncs its inputs to its side.
func (e *executor) run(ctx context.Context, s *boundStep, inputs []*input, size op.Size, rows int,
) (npu.Run, error) {
	r := npu.Run{Name: s.Name, Exec: s.exec, Args: make([]npu.Buffer, len(s.Args)), Picks: size.Picks}
	program := s.exec.Program()
	for j, b := range s.Args {
		a := program.Args[j]
		switch {
		case b.Const != nil:
			r.Args[j] = s.consts[j]
		case b.Value != "":
			v := e.values[b.Value]
			n := min(a.Type.Bytes(size.Elements(a.Shape)), v.buf.Len())
			r.Args[j] = v.buf
			if s.On == plan.OnHost {
				r.Args[j] = npu.HostBuffer(v.buf)
			}
			var err error
			switch {
			case a.Kind == npu.In && s.On == plan.OnHost:
				err = v.toHost(n)
			case a.Kind == npu.In:
				err = v.toDevice()
			case s.On == plan.OnHost:
				v.hostWrites(n)
				if rows > 0 {
					v.pad(n)
				}
			default:
				v.deviceWrites()
			}
			if err != nil {
				return r, err
			}
		case a.Kind == npu.Out: // scratch that the debug form exposes
			buf, err := e.tapBuffer(ctx, s, j, a.Type.Bytes(size.Elements(a.Shape)))
			if err != nil {
				return r, err
			}
			r.Args[j] = buf
		}
	}
	if rows > 0 && s.On == plan.OnDevice && len(s.states) == 0 {
		return r, nil // independent of the input
	}
	for _, in := range inputs {
		seg := npu.Segment{Rows: len(in.ids), Pos: in.pos}
		if rows > 0 && s.On == plan.OnDevice {
			seg.Rows = rows
		}
		for _, name := range s.states {
			seg.State = append(seg.State, in.cache.buffers[name])
		}
		r.Segments = append(r.Segments, seg)
	}
	return r, nil
}

// hostWrites records that the host writes the first n bytes. Earlier bytes that the device does not
// have, because a pass was cancelled, are still to be synced.
func (v *value) hostWrites(n int) { v.hostWrote, v.deviceWrote = max(v.hostWrote, n), false }

// deviceWrites records that the device writes the value.
func (v *value) deviceWrites() { v.hostWrote, v.deviceWrote, v.hostHas, v.padded = 0, true, 0, 0 }

// pad clears the padding, which follows the first n bytes that the host writes, unless it is zero
// already. No row attends to the rows after it, but in the array's block floating point neighboring
// rows of V share an exponent, so stale padding would change the last bits.
func (v *value) pad(n int) {
	b := v.buf.Bytes()
	if v.padded == 0 || v.padded > n {
		clear(b[n:])
		v.hostWrote = len(b)
	}
	v.padded = n
}

// toDevice syncs the host's bytes to the device.
func (v *value) toDevice() error {
	if v.hostWrote == 0 {
		return nil
	}
	if err := v.buf.Sync(npu.ToDevice, 0, v.hostWrote); err != nil {
		return fmt.Errorf("model: buffer %q: %w", v.Name, err)
	}
	v.hostWrote = 0
	return nil
}

// toHost syncs the first n bytes of the device to the host.
func (v *value) toHost(n int) error {
	if !v.deviceWrote || n <= v.hostHas {
		return nil
	}
	if err := v.buf.Sync(npu.FromDevice, v.hostHas, n-v.hostHas); err != nil {
		return fmt.Errorf("model: buffer %q: %w", v.Name, err)
	}
	v.hostHas = n
	return nil
}

// spanHost reports a span of host work to the context's tracer.
func spanHost(ctx context.Context, name string, started time.Time) {
	if trace := npu.Tracer(ctx); trace != nil {
		trace(npu.Span{Name: name, Category: "host", Start: started, Duration: time.Since(started)})
	}
}
