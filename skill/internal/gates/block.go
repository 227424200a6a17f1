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

// Positions that a block is looked at over: so many in one pass, as a prompt, and so many one by one, as in decoding. The first number is no multiple of any tile.
const (
	blockPass  = 40
	blockSteps = 8
)

// blockOutput is the tap of layer 0's output, for the oracle and for every plan.
const blockOutput = "layer.0.ffn.residual"

// recording is what a tapped run of the plan has shown.
type Recording struct {
	plan   string // its hash
	IDs    []int32
	Trace  gate.Trace
	output []float32 // of layer 0 [positions, hidden]
}

// record runs a few ids with all outputs seen, and compares op by op.
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
	noise, ok := gate.FormatNoise(format)
	if !ok {
		return nil, nil, fmt.Errorf("skill: it is not known how much error the number format %s explains", format)
	}
	rec := &gate.Recording{Noise: noise}
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

// unpriced is the plan without its predicted costs: a prompt is then prefilled, and every step decoded. With them a session takes the cheapest way to the next token, and where
// only prefill has been tuned yet that is to prefill all tokens again: steps would show nothing of the decode pass.
func unpriced(p *plan.Plan) *plan.Plan {
	q := *p
	q.Decode.Cost = 0
	q.Prefill = slices.Clone(p.Prefill)
	for i := range q.Prefill {
		q.Prefill[i].Cost = 0
	}
	return &q
}

// appendRows appends the rows of an output; what a device has beyond their width is the padding of its tiles.
func appendRows(rows []float32, shape []int, values []float32, width int) []float32 {
	if len(shape) != 2 || shape[1] <= width {
		return append(rows, values...)
	}
	for row := range slices.Chunk(values, shape[1]) {
		rows = append(rows, row[:width]...)
	}
	return rows
}

// checkBlock judges what layer 0 adds to the residual stream.
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

// judgeBlock holds rows of a device's layer 0 to the oracle's, without what entered the layer: of a stream with large embeddings the layer itself would be the smallest part, and one that
// does nothing nearly right.
func judgeBlock(bench *Bench, name string, got, in, out []float32, b PaperBounds) (Verdict, error) {
	if len(got) != len(out) {
		return nil, fmt.Errorf("skill: the plan shows %d values of output %s, %d were due", len(got), blockOutput, len(out))
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

// streamUnit is the unit in the last place of the residual stream's type, relative to a value. The first step of a plan makes the stream.
func streamUnit(p *plan.Plan) float64 {
	if slices.ContainsFunc(p.Program(p.Prefill[0].Steps[0].Program).Args, func(a npu.Arg) bool { return a.Kind == npu.Out && a.Type == dtype.BF16 }) {
		return 0x1p-7
	}
	return 0x1p-23
}

// stored are the bounds for what a layer adds to a residual stream, as one sees it when both have been stored in one value, after attention and again behind the feed-forward block: where
// the stream is larger than what is added, as those were not that the bounds were measured on, its last place is a part of that. Each time a device that rounds down loses a whole unit at
// most, and half of one on average.
func (b PaperBounds) stored(unit float64, stream, added []float32) PaperBounds {
	var largest, size, sizeAdded, squares float64
	for i, v := range stream {
		x, y := math.Abs(float64(v)), math.Abs(float64(added[i]))
		largest, size, sizeAdded, squares = max(largest, x), size+x, sizeAdded+y, squares+y*y
	}
	if sizeAdded == 0 || size <= sizeAdded {
		return b
	}
	before := 1 - sizeAdded/size // the part of the stream that is not the layer's
	share := before * unit * size / sizeAdded
	b.Atol += 2 * before * unit * largest / math.Sqrt(squares/float64(len(added)))
	b.Rtol += share
	b.Pearson -= share * share
	b.Note += fmt.Sprintf("; and what storing a residual stream %.3g times as large costs, whose last place is %.2g of it: relative %.3g", size/sizeAdded, unit, share)
	return b
}

// checkBlockOps judges each op of layer 0 on its own.
func checkBlockOps(ctx context.Context, bench *Bench) (Verdict, error) {
	rec, _, err := bench.Record(ctx)
	if err != nil {
		return nil, err
	}
	c := Checks{Name: journal.GateBlockOps}
	t := rec.Trace
	t.Taps = slices.DeleteFunc(slices.Clone(t.Taps), func(tap gate.Tap) bool { return tap.Layer > 0 || strings.HasPrefix(tap.Name, "head.") })
	d := gate.Diagnose(t)
	c.Hold(d.Taps > 0 && d.Checked, "taps", "%d outputs were seen, each held to what the oracle makes of the device's own inputs", d.Taps)
	for _, f := range d.Findings {
		c.Hold(false, gate.MeanRelL1, "%s: error %.3g where the format explains %.2g; %s; usual cause: %s", f.Tap, f.Error, f.Explains, strings.Join(f.Where, "; "), f.Cause)
	}
	return c, nil
}
