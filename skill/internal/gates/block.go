package gates

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/oracle"
	"github.com/npukit/npukit/skill/internal/journal"
)

// The positions of a block that are compared: blockPass in one pass, as a prompt, and blockSteps
// one by one, as in decoding. blockPass is no multiple of a tile.
const (
	blockPass  = 40
	blockSteps = 8
)

// blockOutput is the tap of layer 0's output, for the oracle and for every plan.
const blockOutput = "layer.0.ffn.residual"

// Recording is the result of a tapped run of a plan.
type Recording struct {
	plan   string // its hash
	IDs    []int32
	Trace  gate.Trace
	output []float32 // of layer 0 [positions, hidden]
}

// Record runs a few ids with all outputs tapped, and compares them op by op. It returns the last
// recording if that is of the same plan.
func (bench *Bench) Record(ctx context.Context) (*Recording, []int32, error) {
	hash, err := bench.PlanHash()
	if err != nil {
		return nil, nil, err
	}
	if r := bench.recorded; r != nil && r.plan == hash {
		return r, r.IDs, nil
	}
	ids, err := bench.IDs(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := bench.Plan()
	if err != nil {
		return nil, nil, err
	}
	ids = ids[:min(len(ids), blockPass+blockSteps)]
	format := p.NumberFormat(bench.Models.Info, bench.Models.Config.DType)
	rec, ok := gate.NewRecording(format)
	if !ok {
		return nil, nil, fmt.Errorf("skill: the error of number format %s is not known", format)
	}
	out := &Recording{plan: hash, IDs: ids}
	tap := func(name string, shape []int, values []float32) error {
		if name == blockOutput {
			out.output = appendRows(out.output, shape, values, bench.Models.Config.Hidden)
		}
		return rec.Tap(name, shape, values)
	}
	pass := max(1, len(ids)-blockSteps)
	err = bench.Models.Tapped(ctx, unpriced(p), tap, func(s *model.Session) error {
		if err := s.Score(ctx, ids[:pass], func(int, []float32) error { return nil }); err != nil {
			return err
		}
		for _, id := range ids[pass:] {
			if _, err := s.Step(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	out.Trace, err = rec.Trace(func(tap gate.TapFunc) error {
		return bench.Oracle.Forward(ctx, bench.Oracle.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
	})
	if err == nil {
		bench.recorded = out
	}
	return out, ids, err
}

// unpriced returns the plan without its predicted costs: prompts are then prefilled, and every step
// is decoded. With costs, a session chooses the cheapest pass for the next token. If only prefill
// has been tuned, it would prefill all tokens again, and steps would not test the decode pass.
func unpriced(p *plan.Plan) *plan.Plan {
	q := *p
	q.Decode.Cost = 0
	q.Prefill = slices.Clone(p.Prefill)
	for i := range q.Prefill {
		q.Prefill[i].Cost = 0
	}
	return &q
}

// appendRows appends the rows of an output. Columns beyond width are padding.
func appendRows(rows []float32, shape []int, values []float32, width int) []float32 {
	if len(shape) != 2 || shape[1] <= width {
		return append(rows, values...)
	}
	for row := range slices.Chunk(values, shape[1]) {
		rows = append(rows, row[:width]...)
	}
	return rows
}

// checkBlock compares the contribution of layer 0 to the residual stream.
func checkBlock(ctx context.Context, bench *Bench) (Verdict, error) {
	rec, ids, err := bench.Record(ctx)
	if err != nil {
		return nil, err
	}
	in, out, err := bench.Oracle.Block(ctx, ids, 0)
	if err != nil {
		return nil, err
	}
	b, err := bench.bounds()
	if err != nil {
		return nil, err
	}
	return judgeBlock(bench, "layer 0", rec.output, in, out, b.Block)
}

// judgeBlock compares rows of a device's layer 0 with the oracle's. It subtracts the layer's input:
// if the embeddings are large, the layer's own part is small, and a layer that does nothing would
// be nearly right.
func judgeBlock(bench *Bench, name string, got, in, out []float32, b PaperBounds) (Verdict, error) {
	if len(got) != len(out) {
		return nil, fmt.Errorf("skill: output %s of the plan has %d values, want %d", blockOutput, len(got),
			len(out))
	}
	p, err := bench.Plan()
	if err != nil {
		return nil, err
	}
	without := func(x []float32) []float32 {
		y := slices.Clone(x)
		for i, v := range in {
			y[i] -= v
		}
		return y
	}
	want := without(out)
	return paperRows(name, without(got), want, bench.Models.Config.Hidden, b.stored(streamUnit(p), out, want))
}

// streamUnit returns the unit in the last place of the residual stream's type, relative to a value.
// The first step of a plan writes the stream.
func streamUnit(p *plan.Plan) float64 {
	if slices.ContainsFunc(p.Program(p.Prefill[0].Steps[0].Program).Args,
		func(a npu.Arg) bool { return a.Kind == npu.Out && a.Type == dtype.BF16 }) {
		return 0x1p-7
	}
	return 0x1p-23
}

// stored returns the bounds for a layer's contribution to a residual stream. The sum is stored
// after attention and after the feed-forward block. If the stream is larger than the contribution,
// unlike in the measurements of the bounds, its last place is a part of that. Each store loses at
// most one unit if the device rounds down, and half a unit on average.
func (b PaperBounds) stored(unit float64, stream, added []float32) PaperBounds {
	var largest, size, sizeAdded, squares float64
	for i, v := range stream {
		x, y := math.Abs(float64(v)), math.Abs(float64(added[i]))
		largest, size, sizeAdded, squares = max(largest, x), size+x, sizeAdded+y, squares+y*y
	}
	if sizeAdded == 0 || size <= sizeAdded {
		return b
	}
	before := 1 - sizeAdded/size // the share of the stream that comes from before the layer
	share := before * unit * size / sizeAdded
	b.Atol += 2 * before * unit * largest / math.Sqrt(squares/float64(len(added)))
	b.Rtol += share
	b.Pearson -= share * share
	b.Note += fmt.Sprintf("; and what storing a residual stream %.3g times as large costs, whose last place is "+
		"%.2g of it: relative %.3g", size/sizeAdded, unit, share)
	return b
}

// checkBlockOps compares each op of layer 0 on its own.
func checkBlockOps(ctx context.Context, bench *Bench) (Verdict, error) {
	rec, _, err := bench.Record(ctx)
	if err != nil {
		return nil, err
	}
	c := Checks{Name: journal.GateBlockOps}
	t := rec.Trace
	t.Taps = slices.DeleteFunc(slices.Clone(t.Taps), func(tap gate.Tap) bool {
		return tap.Layer > 0 ||
			strings.HasPrefix(tap.Name, "head.")
	})
	d := gate.Diagnose(t)
	c.Hold(d.Taps > 0 && d.Checked, "taps", "%d outputs were seen, each held to what the oracle makes of the "+
		"device's own inputs", d.Taps)
	for _, f := range d.Findings {
		c.Hold(false, gate.MeanRelL1, "%s: error %.3g where the format explains %.2g; %s; usual cause: %s", f.Tap,
			f.Error, f.Explains, strings.Join(f.Where, "; "), f.Cause)
	}
	return c, nil
}
