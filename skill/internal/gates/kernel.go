package gates

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// OfKernels returns a gate for each distinct kernel of the plan.
func OfKernels(bench *Bench) ([]Gate, error) {
	p, err := bench.Plan()
	if err != nil {
		return nil, err
	}
	kernels, err := KernelsOf(p)
	if err != nil {
		return nil, err
	}
	var list []Gate
	for _, k := range kernels {
		list = append(list, Gate{Name: journal.GateKernel + "/" + k.Name, Subject: k.hash,
			Run: func(ctx context.Context, bench *Bench) (Verdict, error) { return bench.checkKernel(ctx, k) }})
	}
	return list, nil
}

// Places returns the rows that a kernel of open shape is tried with: one row after others, as in
// decoding; one at the end of a session if the op depends on the position; and more rows than a
// tile, as in a prompt. A kernel of fixed shape has one place.
func Places(k *Kernel, seqLen int) [][]gatetest.Segment {
	one, many := gatetest.Segment{Rows: 1, Pos: 7}, gatetest.Segment{Rows: 37}
	if a, ok := k.Op.(op.Attention); ok && !a.Cached {
		one.Pos = 0 // it reads the rows of its own run and no cache
	}
	if !k.symbolic() {
		return [][]gatetest.Segment{nil}
	}
	places := [][]gatetest.Segment{{one}}
	if last := seqLen - 1; last > many.Rows && countsPositions(k.Op) {
		places = append(places, []gatetest.Segment{{Rows: 1, Pos: last}})
	}
	return append(places, []gatetest.Segment{many})
}

// countsPositions reports whether an op depends on the position.
func countsPositions(o op.Op) bool {
	switch o := o.(type) {
	case op.RoPE, op.KVWrite:
		return true
	case op.Attention:
		return o.Cached
	}
	return false
}

// Options returns the device of a kernel and how the kernel is tried there. The note is not empty
// if something is tried in place of the kernel.
func (bench *Bench) Options(k *Kernel) (dev npu.Device, opts gatetest.Options, note string) {
	dev, tolerances := bench.Models.Device, gatetest.Default(bench.Models.Info)
	switch {
	case k.on == plan.OnHost:
		dev, tolerances = npu.HostOf(dev), gate.CPU
	case bench.Models.Info.Array != "":
		tolerances = arrayTolerance(k.Mapping)
	}
	opts = gatetest.Options{Mapping: k.Mapping, Tolerances: tolerances, Types: append([]dtype.Type(nil), k.Types...)}
	for i, t := range opts.Types {
		if t.Quantized() {
			// The device expands such weights to BF16 for the kernel. The gate of the block
			// covers the rounding.
			opts.Types[i] = dtype.BF16
			note = fmt.Sprintf("weights of type %s are tried as the BF16 that the device makes of them", t)
		}
	}
	return dev, opts, note
}

// checkKernel compares a kernel with the oracle and records the findings.
func (bench *Bench) checkKernel(ctx context.Context, k *Kernel) (Verdict, error) {
	dev, opts, what := bench.Options(k)
	note := journal.KernelNote{Key: k.Name, Op: k.Text(), Kind: k.Op.Kind(), Types: k.Types, Mapping: k.Mapping,
		On: k.on, Launches: k.launches, Count: k.count, Note: what}
	if f := k.Mapping.Fused; f != "" {
		// A part of a fused kernel is not a program. The op is tried alone, in this shape; the
		// gate of the block covers the fused kernel.
		opts.Mapping = MappingAlone(k)
		part := fmt.Sprintf(" part of the fused kernel %s, which is judged with the block", f)
		note.Note = strings.TrimSpace(note.Note + part)
	}
	c := Checks{Name: k.Text()}
	var worst gate.Report
	for _, segments := range Places(k, bench.Recipe.SeqLen) {
		opts.Segments = segments
		r, rows, err := checkAlone(ctx, dev, k.Op, &opts)
		if err != nil {
			return nil, err
		}
		if rows > 0 {
			note.Note = strings.TrimSpace(fmt.Sprintf("%s tried %d rows at a time: with more, the kernel may not "+
				"be a program's only launch (rule %s), and in the plan it is not",
				note.Note, rows, ruleAlone))
		}
		name := "1 row"
		if n := rowsOf(segments, k); n != 1 {
			name = fmt.Sprintf("%d rows", n)
		} else if len(segments) > 0 && segments[0].Pos > 0 && countsPositions(k.Op) {
			name += fmt.Sprintf(" at position %d", segments[0].Pos)
		}
		c.take(name, r)
		if worst.Metrics.Count == 0 || r.Metrics.MeanRelL1 > worst.Metrics.MeanRelL1 {
			worst = r
		}
	}
	note.OK, note.Figures = c.OK(), c.Figures
	if err := bench.time(ctx, k, &opts, &note); err != nil {
		return nil, err
	}
	if note.On == plan.OnDevice && bench.Models.Info.Array != "" {
		note.Row, note.Family = registryRow(k, worst, note, timing.Virtual(bench.Models.Info))
	}
	return c, bench.noteKernel(note)
}

// ruleAlone refuses GEMMs of some mappings that are a program's only launch, since they write
// garbage without an error. Merged with another launch they are right.
const ruleAlone = "S-3"

// checkAlone is [gatetest.CheckKernel]. If a product must not be alone with its number of rows, it
// is tried with as many as are allowed; rows is then their number, and 0 otherwise.
func checkAlone(ctx context.Context, dev npu.Device, o op.Op, opts *gatetest.Options) (r gate.Report, rows int,
	err error) {
	r, err = gatetest.CheckKernel(ctx, dev, o, opts)
	mm, ok := o.(op.MatMul)
	for ok && mm.M > 1 && mm.M%2 == 0 {
		var refused *xdna2.ResourceError
		if !errors.As(err, &refused) || refused.Rule != ruleAlone {
			break
		}
		mm.M /= 2
		rows = mm.M
		r, err = gatetest.CheckKernel(ctx, dev, mm, opts)
	}
	return r, rows, err
}

// shortK is the largest K for which upstream's own tests of GEMM have elements near zero outside
// their bound.
const shortK = 1024

// The largest measured share of elements outside the bound, and the share that is allowed, which is
// about five times that.
//
// Measured by TestShortGEMMsAreMeasured on npu/sim with 32 seeds: 26 products of K 192 to 1024 in
// the mappings of their plans, 832 runs.
const shortOutside, shortAllowed = 2.1e-5, 1e-4

// arrayTolerance returns the published tolerance of an op under a mapping. Products that round
// their sum on the way have the low tier. The absolute bound of a GEMM was set for the results of
// inputs randn/sqrt(K) with K of at least 1024. Shorter sums have larger results, and the bound
// grows with them.
func arrayTolerance(m npu.Mapping) gatetest.Tolerances {
	return func(o op.Op, out dtype.Type) (gate.Tolerance, bool) {
		mm, ok := o.(op.MatMul)
		if !ok || mm.M == 1 {
			return gatetest.Published(o, out)
		}
		t, ok := gatetest.Published(o, out)
		if m.Variant == "direct" {
			t = gate.PublishedLow()
		}
		if mm.K <= shortK {
			t.Atol *= math.Sqrt(shortK / float64(mm.K))
			t.Mismatches = shortAllowed
			t.Note += fmt.Sprintf("; K is %d: the absolute bound times sqrt(%d/K), and %g of the elements may be "+
				"outside it, as some near zero are upstream; measured on npu/sim, 832 runs of "+
				"26 products of K 192 to 1024: at most %g of a product outside, and without the root 0.006 at K "+
				"192, 0.0024 at 256, 0.00018 at 512", mm.K, shortK, shortAllowed, shortOutside)
		}
		return t, ok
	}
}

func rowsOf(segments []gatetest.Segment, k *Kernel) int {
	if !k.symbolic() {
		for _, o := range k.Op.Operands() {
			if o.Write {
				return o.Shape[0]
			}
		}
	}
	return segments[0].Rows
}

// MappingAlone returns a mapping with which a part of a fused kernel can be a program: the nearest
// one of the published registry that the array accepts, or one with one column.
func MappingAlone(k *Kernel) npu.Mapping {
	var list []npu.Mapping
	if rows, err := xdna2.PublishedRegistry().Candidates(k.Op, k.stored(), op.Size{}); err == nil {
		for _, r := range rows {
			list = append(list, r.Mapping)
		}
	}
	for tile := 2048; tile >= 16; tile /= 2 {
		list = append(list, npu.Mapping{Tile: []int{tile}, Herd: []int{1, 1}})
	}
	for _, m := range list {
		if xdna2.Fits(k.Op, k.Types, m, xdna2.NPU2()) {
			return m
		}
	}
	m := k.Mapping
	m.Fused = ""
	return m // the array refuses it with a reason
}

// kernelRuns is how often a kernel is timed on a device whose time is real.
const kernelRuns = 5

// time predicts the time of a kernel of the array, and measures a kernel of a device whose time is
// real. It does not time the host's steps of a plan for an array.
func (bench *Bench) time(ctx context.Context, k *Kernel, opts *gatetest.Options, note *journal.KernelNote) error {
	more := func(text string) { note.Note = strings.TrimSpace(note.Note + " " + text) }
	if bench.Models.Info.Array != "" {
		if k.on == plan.OnHost {
			return nil
		}
		if cost, err := xdna2.NewClock(xdna2.HostNpukit()).Launch(k.Op, k.Types, k.Mapping, op.Size{}); err != nil {
			more("no prediction: " + err.Error())
		} else {
			note.Predicted, note.Bound = cost.Time, cost.Bound
			more(cost.Note)
		}
	}
	if timing.Virtual(bench.Models.Info) {
		return nil
	}
	t, err := gatetest.TimeKernel(ctx, bench.Models.Device, k.Op, opts, kernelRuns)
	var alone *gatetest.RefusedError
	if errors.As(err, &alone) { // it was tried with fewer rows
		more("not timed: " + err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	note.Measured, note.Runs = float64(t.Median.Nanoseconds())/1e3, t.Runs
	return nil
}

// registryRow returns a row for the registry. A virtual array has no time of its own, and the row's
// note has the prediction. For a real one, the time is that of a run that is dispatched alone; a
// part of a fused kernel has none.
func registryRow(k *Kernel, r gate.Report, n journal.KernelNote, virtual bool) (*xdna2.Row, xdna2.Kernel) {
	family, shape, err := xdna2.ShapeOf(k.Op, op.Size{})
	if err != nil {
		return nil, ""
	}
	m := r.Metrics
	row := &xdna2.Row{
		ID: "own/" + k.Name, Kernel: family, Shape: shape, Out: k.stored(), Mapping: k.Mapping, Record: xdna2.Own,
		Status:    xdna2.OK,
		MeanRelL1: finite(m.MeanRelL1), MaxAbs: finite(m.MaxAbs), MaxRel: finite(m.MaxRel),
		Pearson: max(0, finite(m.Pearson)),
		ATol:    r.Tolerance.Atol, RTol: r.Tolerance.Rtol, UsedBy: n.Launches,
	}
	switch {
	case virtual:
		row.Note = fmt.Sprintf("numbers by a virtual array; predicted %.4g us, not measured", n.Predicted)
	case n.Measured > 0 && k.Mapping.Fused == "":
		row.Latency = n.Measured
		row.Note = fmt.Sprintf("median of %d runs by a deployment, with their dispatch; predicted %.4g us", n.Runs,
			n.Predicted)
	default:
		row.Note = fmt.Sprintf("numbers by a deployment; predicted %.4g us, not measured alone", n.Predicted)
	}
	if !n.OK {
		row.Status, row.Failure = xdna2.Corrupt, "deployment_gate"
	}
	if row.Validate() != nil { // a shape that no registry has
		return nil, ""
	}
	return row, family
}

// finite returns x, or 0 if JSON has no number for it.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
