package gatetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Names of gates in [Adversary.Meant].
const (
	gateKernel      = "kernel"
	gateLogits      = "teacher-forced logits"
	gateGreedy      = "greedy tokens"
	gateDeterminism = "determinism"
)

// Adversary is a device with one fault and otherwise correct. A gate that does not catch the
// adversaries meant for it proves nothing about the devices that it passes.
type Adversary struct {
	Name string `json:"name"`
	Does string `json:"does"` // the fault in words

	// Meant maps each gate that must catch it to the metric that must be among the reasons. Gates are
	// "kernel" (CheckKernel), "teacher-forced logits" (gate.Teacher), "greedy tokens" (gate.Greedy)
	// and "determinism" (gate.Determinism).
	Meant map[string]string `json:"meant"`
	// Probes are the kernels on which [CheckKernel] must catch it; none if only whole models show
	// it.
	Probes []Probe `json:"-"`

	faults func(info npu.Info, find Tolerances) func(*fault.Step) fault.Fault
}

// Probe is a kernel on which an adversary is tested.
type Probe struct {
	Op       op.Op
	Segments []Segment
}

// Wrap returns a device that computes with dev and adds the fault. Programs are executed launch by
// launch, so dev must be able to load any launch by itself. Each call returns an adversary with its
// own state. Find returns the tolerance that noise must exceed; nil means [Default].
//
// If dev is nil, or a is not from [Adversaries] or [Forgetful], every call of the result returns an
// [gate.InputError].
func (a Adversary) Wrap(dev npu.Device, find Tolerances) npu.Device {
	if err := needDevice(dev); err != nil {
		return failing{err}
	}
	if a.faults == nil {
		return failing{badOption("Adversary", "%q has no fault: take one from Adversaries or Forgetful",
			a.Name)}
	}
	info := dev.Info()
	if find == nil {
		find = Default(info)
	}
	return fault.Wrap(dev, fault.Always(a.faults(info, find)))
}

// Adversaries returns the table. In a whole model, faults in a result apply to the logits, the
// others to every launch that they name.
func Adversaries() []Adversary {
	both := func(metric, model string) map[string]string {
		return map[string]string{gateKernel: metric, gateLogits: model}
	}
	const rows = 5
	any := []Probe{
		{Op: op.MatMul{M: rows, K: 256, N: 96, TransB: true}},
		{Op: op.RMSNorm{Rows: rows, Width: 577, Eps: 1e-5}},
		{Op: op.LayerNorm{Rows: rows, Width: 577, Eps: 1e-5}},
		{Op: op.RoPE{Rows: rows, Heads: 4, HeadDim: 64}},
		{Op: op.SiLUMul{Rows: rows, Width: 577}},
		{Op: op.GELU{Rows: rows, Width: 577, Tanh: true}},
		{Op: op.Add{Rows: rows, Width: 577}},
		{Op: op.Attention{Rows: rows, Heads: 4, KVHeads: 2, HeadDim: 64}},
	}
	rotation := []Probe{{Op: op.RoPE{Rows: rows, Heads: 4, HeadDim: 64}},
		{Op: op.RoPE{Rows: 2, Heads: 3, HeadDim: 128}, Segments: []Segment{{2, 4100}}}}
	past := op.Attention{Rows: op.Rows, Heads: 4, KVHeads: 2, HeadDim: 64, Cached: true}
	return []Adversary{
		{
			Name: "zeros", Does: "the result is zeros", Probes: any, Meant: both(gate.MeanRelL1,
				gate.MeanKL),
			faults: results(func(y []float32, _ int) { clear(y) }),
		},
		{
			Name: "twice", Does: "the result is doubled", Probes: any, Meant: both(gate.MeanRelL1,
				gate.MeanKL),
			faults: results(func(y []float32, _ int) {
				for i := range y {
					y[i] *= 2
				}
			}),
		},
		{
			Name: "rows swapped", Does: "the first and the last row of the result are " +
				"swapped", Probes: any, Meant: both(gate.MeanRelL1, gate.MeanKL),
			faults: results(func(y []float32, width int) {
				first, last := y[:width], y[len(y)-width:]
				if len(y) > width {
					for i := range first {
						first[i], last[i] = last[i], first[i]
					}
				}
			}),
		},
		{
			Name: "stale", Does: "the result is that of the previous call", Probes: any,
			Meant: map[string]string{gateKernel: gate.MeanRelL1,
				gateDeterminism: gate.Repeats}, faults: stale,
		},
		{
			Name: "a NaN", Does: "one element of the result is NaN", Probes: any, Meant: both(gate.NonFinite,
				gate.NonFinite),
			faults: results(func(y []float32, _ int) { y[len(y)/2] = float32(math.NaN()) }),
		},
		{
			Name: "RoPE interleaved", Does: "RoPE pairs element 2i with 2i+1, not i with " +
				"i+headDim/2", Probes: rotation, Meant: both(gate.MeanRelL1, gate.MeanKL),
			faults: only(isRoPE, interleaved),
		},
		{
			Name: "positions off by one", Does: "queries are rotated by the previous " +
				"position", Probes: rotation, Meant: both(gate.MeanRelL1, gate.MeanKL),
			faults: positionsLate,
		},
		{
			Name: "no bias", Does: "biases are not added", Probes: []Probe{{Op: op.Add{Rows: rows, Width: 96,
				Broadcast: true}}},
			Meant:  both(gate.MeanRelL1, gate.MeanKL),
			faults: only(isBias, noBias),
		},
		{
			Name: "a layer dropped", Does: "layer 1 returns its " +
				"input", Meant: map[string]string{gateLogits: gate.MeanKL}, faults: layerDropped,
		},
		{
			Name: "previous token's KV", Does: "attention sees the keys and values of earlier tokens " +
				"only, not its own",
			Probes: []Probe{{past, []Segment{{1, 7}}}, {past, []Segment{{5, 0}}},
				{past, []Segment{{1, 3}, {2, 9}}}},
			Meant:  both(gate.MeanRelL1, gate.MeanKL),
			faults: only(readsCache, previous),
		},
		{
			Name: "noise", Does: "every result has noise of three times the " +
				"tolerance", Probes: any, Meant: both(gate.MeanRelL1, gate.MeanKL), faults: noise,
		},
	}
}

// Forgetful returns an adversary that is right before position from, and after it attends to the
// first keys and its own only, so shorter texts cannot reveal it. It is not in [Adversaries]
// because the caller chooses the position.
func Forgetful(from int) Adversary {
	past := op.Attention{Rows: op.Rows, Heads: 4, KVHeads: 2, HeadDim: 64, Cached: true}
	return Adversary{
		Name: "past forgotten", Does: fmt.Sprintf("from position %d, attention sees the first keys "+
			"and its own only", from),
		Meant: map[string]string{gateKernel: gate.MeanRelL1}, Probes: []Probe{{past,
			[]Segment{{1, from}}}, {past, []Segment{{3, from + 100}}}},
		faults: only(readsCache,
			func(s *fault.Step, run func() error) error {
				s.Segments = slices.Clone(s.Segments)
				for i := range s.Segments {
					if s.Segments[i].Pos >= from {
						s.Segments[i].Pos = 0
					}
				}
				return run()
			}),
	}
}

// isResult reports whether a launch computes the final result: the only launch of a program or, in
// a model, the logits.
func isResult(s *fault.Step) bool {
	for _, part := range []string{"embed.", "layer.", "head."} {
		if strings.HasPrefix(s.Name, part) {
			return s.Name == "head.lm_head"
		}
	}
	return s.Alone && s.Out().Rows > 0
}

func isRoPE(s *fault.Step) bool { return s.Launch.Op.Kind() == "RoPE" }

func isBias(s *fault.Step) bool {
	o, ok := s.Launch.Op.(op.Add)
	return ok && o.Broadcast
}

// readsCache reports whether a launch is attention to a KV cache.
func readsCache(s *fault.Step) bool {
	o, ok := s.Launch.Op.(op.Attention)
	return ok && o.Cached
}

// only applies a stateless fault to some launches.
func only(
	where func(*fault.Step) bool, f fault.Fault,
) func(npu.Info, Tolerances) func(*fault.Step) fault.Fault {
	return func(npu.Info, Tolerances) func(*fault.Step) fault.Fault {
		return func(s *fault.Step) fault.Fault {
			if where(s) {
				return f
			}
			return nil
		}
	}
}

// results changes the final result.
func results(
	change func(y []float32, width int),
) func(npu.Info, Tolerances) func(*fault.Step) fault.Fault {
	return only(isResult, fault.Edit(change))
}

// stale returns the result of the previous call; the first call is right.
func stale(npu.Info, Tolerances) func(*fault.Step) fault.Fault {
	last := map[string][]float32{}
	return func(s *fault.Step) fault.Fault {
		if !isResult(s) {
			return nil
		}
		return fault.Edit(func(y []float32, _ int) {
			now, before := slices.Clone(y), last[s.Name]
			for i := range y {
				if len(before) > 0 {
					y[i] = before[i%len(before)]
				}
			}
			last[s.Name] = now
		})
	}
}

// interleaved permutes the input so that the kernel rotates pairs of neighbors, and permutes the
// result back.
func interleaved(s *fault.Step, run func() error) error {
	o := s.Launch.Op.(op.RoPE)
	half := o.HeadDim / 2
	// Element i of the half-split order is element order[i] of the interleaved order.
	order := make([]int, o.HeadDim)
	for i := range half {
		order[i], order[half+i] = 2*i, 2*i+1
	}
	x, y := s.Operand(0), s.Out()
	values, err := x.Values()
	if err != nil {
		return err
	}
	apart := make([]float32, len(values))
	for at := 0; at < len(values); at += o.HeadDim {
		for i, from := range order {
			apart[at+i] = values[at+from]
		}
	}
	if err := x.SetValues(apart); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	turned, err := y.Values()
	if err != nil {
		return err
	}
	if !x.Same(y) {
		if err := x.SetValues(values); err != nil {
			return err
		}
	}
	for at := 0; at < len(turned); at += o.HeadDim {
		for i, to := range order {
			apart[at+to] = turned[at+i]
		}
	}
	return y.SetValues(apart)
}

// positionsLate rotates every row by the angles of the previous row, and the first row by
// those of the
// last row of the previous call, which in decode is the previous position too. It applies to
// queries only, because only distances between queries and keys matter in a model.
func positionsLate(npu.Info, Tolerances) func(*fault.Step) fault.Fault {
	last := map[string][]float32{}
	return func(s *fault.Step) fault.Fault {
		if s.Launch.Op.Kind() != "RoPE" || !s.Alone && !strings.HasSuffix(s.Name, "q_rope") {
			return nil
		}
		return func(s *fault.Step, run func() error) error {
			table := s.Operand(1)
			angles, err := table.Values()
			if err != nil {
				return err
			}
			w := table.Width
			late := slices.Concat(angles[:w], angles[:len(angles)-w])
			if before := last[s.Name]; len(before) == w {
				copy(late, before)
			}
			last[s.Name] = angles[len(angles)-w:]
			if err := table.SetValues(late); err != nil {
				return err
			}
			if err := run(); err != nil {
				return err
			}
			return table.SetValues(angles)
		}
	}
}

// noBias returns the input without the bias.
func noBias(s *fault.Step, run func() error) error {
	x, err := s.Operand(0).Values()
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	return s.Out().SetValues(x)
}

// layerDropped stores the input of layer 1 and returns it as the layer's output.
func layerDropped(npu.Info, Tolerances) func(*fault.Step) fault.Fault {
	var given []float32
	return func(s *fault.Step) fault.Fault {
		switch s.Name {
		case "layer.1.attn.norm":
			return func(s *fault.Step, run func() error) (err error) {
				if given, err = s.Operand(0).Values(); err != nil {
					return err
				}
				return run()
			}
		case "layer.1.ffn.residual":
			return fault.Edit(func(y []float32, _ int) { copy(y, given) })
		}
		return nil
	}
}

// previous shifts every row one position back, so that it sees one key less. A row at position 0
// keeps its own key.
func previous(s *fault.Step, run func() error) error {
	var early []npu.Segment
	for _, seg := range s.Segments {
		if seg.Pos > 0 {
			seg.Pos--
			early = append(early, seg)
			continue
		}
		first := seg
		first.Rows = 1
		early = append(early, first)
		if seg.Rows--; seg.Rows > 0 {
			early = append(early, seg)
		}
	}
	s.Segments = early
	return run()
}

// noise adds normal noise to every result, of three times the mean relative L1 that the tolerance
// allows.
func noise(_ npu.Info, find Tolerances) func(*fault.Step) fault.Fault {
	rng := rand.New(rand.NewPCG(1, 1))
	return func(s *fault.Step) fault.Fault {
		out := s.Out()
		if out.Rows == 0 {
			return nil
		}
		tol, ok := find(s.Launch.Op, out.Type)
		if !ok || tol.MeanRelL1 == 0 {
			return nil
		}
		return fault.Edit(func(y []float32, _ int) {
			sum := 0.0
			for _, v := range y {
				sum += math.Abs(float64(v))
			}
			// The mean magnitude of standard normal noise is sqrt(2/pi).
			size := 3 * tol.MeanRelL1 * sum / float64(len(y)) / math.Sqrt(2/math.Pi)
			for i := range y {
				y[i] += float32(size * rng.NormFloat64())
			}
		})
	}
}
