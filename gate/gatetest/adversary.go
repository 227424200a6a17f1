package gatetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Names of gates, as [Adversary.Meant] and tables have them.
const (
	GateKernel      = "kernel"                // CheckKernel
	GateLogits      = "teacher-forced logits" // gate.Teacher
	GateGreedy      = "greedy tokens"         // gate.Greedy
	GateDeterminism = "determinism"           // gate.Determinism
)

// Adversary is a device that is wrong in one way: right but for that, so that nothing else gives it away. A gate that does not catch those meant for
// it proves nothing about the devices that it passes.
type Adversary struct {
	Name string `json:"name"`
	Does string `json:"does"` // what is wrong, in words

	// Meant maps each gate that must catch it to the metric that must be among the reasons.
	Meant map[string]string `json:"meant"`
	// Probes are the kernels on which [GateKernel] must catch it; none if only whole models show it.
	Probes []Probe `json:"-"`

	faults func(info npu.Info, find Tolerances) func(*step) fault
}

// Probe is a kernel that an adversary is tried on.
type Probe struct {
	Op       op.Op
	Segments []Segment
}

// Wrap is the adversary: a device that computes with dev and does its one thing wrong. Programs are executed launch by launch, so dev must be able to load
// any launch by itself. Each call makes an adversary with a memory of its own. Find says how much noise is too much; nil means [Default].
// If dev is nil, or a is not from [Adversaries] or [Forgetful], every call of the result returns an [OptionsError].
func (a Adversary) Wrap(dev npu.Device, find Tolerances) npu.Device {
	if err := needDevice(dev); err != nil {
		return failing{err}
	}
	if a.faults == nil {
		return failing{badOption("Adversary", "%q has no fault: take one from Adversaries or Forgetful", a.Name)}
	}
	info := dev.Info()
	if find == nil {
		find = Default(info)
	}
	return tamper(dev, a.faults(info, find))
}

// Adversaries is the table. In a whole model those that spoil a result spoil the logits, the others every launch that they name.
func Adversaries() []Adversary {
	both := func(metric, model string) map[string]string {
		return map[string]string{GateKernel: metric, GateLogits: model}
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
	rotation := []Probe{{Op: op.RoPE{Rows: rows, Heads: 4, HeadDim: 64}}, {Op: op.RoPE{Rows: 2, Heads: 3, HeadDim: 128}, Segments: []Segment{{2, 4100}}}}
	past := op.Attention{Rows: op.Rows, Heads: 4, KVHeads: 2, HeadDim: 64, Cached: true}
	return []Adversary{
		{
			Name: "zeros", Does: "the result is zeros", Probes: any, Meant: both(gate.MeanRelL1, gate.MeanKL),
			faults: results(func(y []float32, _ int) { clear(y) }),
		},
		{
			Name: "twice", Does: "the result is twice what it should be", Probes: any, Meant: both(gate.MeanRelL1, gate.MeanKL),
			faults: results(func(y []float32, _ int) {
				for i := range y {
					y[i] *= 2
				}
			}),
		},
		{
			Name: "rows swapped", Does: "the first and the last row of the result have changed places", Probes: any, Meant: both(gate.MeanRelL1, gate.MeanKL),
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
			Name: "stale", Does: "the result is that of the call before", Probes: any,
			Meant: map[string]string{GateKernel: gate.MeanRelL1, GateDeterminism: gate.Repeats}, faults: stale,
		},
		{
			Name: "a NaN", Does: "one element of the result is NaN", Probes: any, Meant: both(gate.NonFinite, gate.NonFinite),
			faults: results(func(y []float32, _ int) { y[len(y)/2] = float32(math.NaN()) }),
		},
		{
			Name: "RoPE interleaved", Does: "RoPE pairs element 2i with 2i+1, not i with i+headDim/2", Probes: rotation, Meant: both(gate.MeanRelL1, gate.MeanKL),
			faults: only(func(s *step) bool { return s.op.Kind() == "RoPE" }, interleaved),
		},
		{
			Name: "positions off by one", Does: "queries are rotated by the position before theirs", Probes: rotation, Meant: both(gate.MeanRelL1, gate.MeanKL),
			faults: positionsLate,
		},
		{
			Name: "no bias", Does: "biases are not added", Probes: []Probe{{Op: op.Add{Rows: rows, Width: 96, Broadcast: true}}},
			Meant:  both(gate.MeanRelL1, gate.MeanKL),
			faults: only(func(s *step) bool { o, ok := s.op.(op.Add); return ok && o.Broadcast }, noBias),
		},
		{
			Name: "a layer dropped", Does: "layer 1 gives back what it was given", Meant: map[string]string{GateLogits: gate.MeanKL}, faults: layerDropped,
		},
		{
			Name: "previous token's KV", Does: "attention sees the keys and values up to the token before, not its own",
			Probes: []Probe{{past, []Segment{{1, 7}}}, {past, []Segment{{5, 0}}}, {past, []Segment{{1, 3}, {2, 9}}}},
			Meant:  both(gate.MeanRelL1, gate.MeanKL),
			faults: only(func(s *step) bool { o, ok := s.op.(op.Attention); return ok && o.Cached }, previous),
		},
		{
			Name: "noise", Does: "every result is right but for noise of three times the tolerance", Probes: any, Meant: both(gate.MeanRelL1, gate.MeanKL), faults: noise,
		},
	}
}

// Forgetful is an adversary that is right up to a position, and from there on attends to the first keys alone: nothing in a shorter text gives it away. It is in no table, since where it shows
// is for the caller to say.
func Forgetful(from int) Adversary {
	past := op.Attention{Rows: op.Rows, Heads: 4, KVHeads: 2, HeadDim: 64, Cached: true}
	return Adversary{
		Name: "past forgotten", Does: fmt.Sprintf("attention forgets what lies between the first positions and its own from position %d on", from),
		Meant: map[string]string{GateKernel: gate.MeanRelL1}, Probes: []Probe{{past, []Segment{{1, from}}}, {past, []Segment{{3, from + 100}}}},
		faults: only(func(s *step) bool { o, ok := s.op.(op.Attention); return ok && o.Cached }, func(s *step, run func() error) error {
			s.segments = slices.Clone(s.segments)
			for i := range s.segments {
				if s.segments[i].Pos >= from {
					s.segments[i].Pos = 0
				}
			}
			return run()
		}),
	}
}

// answers reports whether a launch computes what is read in the end: the only launch of a program or, in a model, whose steps are named as the oracle's taps
// are, the logits.
func answers(s *step) bool {
	for _, part := range []string{"embed.", "layer.", "head."} {
		if strings.HasPrefix(s.name, part) {
			return s.name == "head.lm_head"
		}
	}
	return s.alone && s.out().rows > 0
}

// only puts a fault without memory around some launches.
func only(where func(*step) bool, f fault) func(npu.Info, Tolerances) func(*step) fault {
	return func(npu.Info, Tolerances) func(*step) fault {
		return func(s *step) fault {
			if where(s) {
				return f
			}
			return nil
		}
	}
}

// results changes what is read in the end.
func results(change func(y []float32, width int)) func(npu.Info, Tolerances) func(*step) fault {
	return only(answers, edit(change))
}

// stale answers with what was computed in the call before. The first call is answered rightly.
func stale(npu.Info, Tolerances) func(*step) fault {
	last := map[string][]float32{}
	return func(s *step) fault {
		if !answers(s) {
			return nil
		}
		return edit(func(y []float32, _ int) {
			now, before := slices.Clone(y), last[s.name]
			for i := range y {
				if len(before) > 0 {
					y[i] = before[i%len(before)]
				}
			}
			last[s.name] = now
		})
	}
}

// interleaved puts pairs of neighbours where the kernel takes its pairs from, and back afterwards.
func interleaved(s *step, run func() error) error {
	o := s.op.(op.RoPE)
	half := o.HeadDim / 2
	// Element i of the one order is element order[i] of the other.
	order := make([]int, o.HeadDim)
	for i := range half {
		order[i], order[half+i] = 2*i, 2*i+1
	}
	x, y := s.operands[0], s.out()
	values, err := x.get()
	if err != nil {
		return err
	}
	apart := make([]float32, len(values))
	for at := 0; at < len(values); at += o.HeadDim {
		for i, from := range order {
			apart[at+i] = values[at+from]
		}
	}
	if err := x.put(apart); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	turned, err := y.get()
	if err != nil {
		return err
	}
	if !x.same(y) {
		if err := x.put(values); err != nil {
			return err
		}
	}
	for at := 0; at < len(turned); at += o.HeadDim {
		for i, to := range order {
			apart[at+to] = turned[at+i]
		}
	}
	return y.put(apart)
}

// positionsLate gives every row the angles of the row before. The first has those of the last row of the call before, which in decoding is the position
// before too. Only queries are turned so: what counts in a model is the distance to the keys.
func positionsLate(npu.Info, Tolerances) func(*step) fault {
	last := map[string][]float32{}
	return func(s *step) fault {
		if s.op.Kind() != "RoPE" || !s.alone && !strings.HasSuffix(s.name, "q_rope") {
			return nil
		}
		return func(s *step, run func() error) error {
			table := s.operands[1]
			angles, err := table.get()
			if err != nil {
				return err
			}
			w := table.width
			late := slices.Concat(angles[:w], angles[:len(angles)-w])
			if before := last[s.name]; len(before) == w {
				copy(late, before)
			}
			last[s.name] = angles[len(angles)-w:]
			if err := table.put(late); err != nil {
				return err
			}
			if err := run(); err != nil {
				return err
			}
			return table.put(angles)
		}
	}
}

// noBias gives back what the bias was to be added to.
func noBias(s *step, run func() error) error {
	x, err := s.operands[0].get()
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	return s.out().put(x)
}

// layerDropped remembers what layer 1 is given, and gives it back as the layer's result.
func layerDropped(npu.Info, Tolerances) func(*step) fault {
	var given []float32
	return func(s *step) fault {
		switch s.name {
		case "layer.1.attn.norm":
			return func(s *step, run func() error) (err error) {
				if given, err = s.operands[0].get(); err != nil {
					return err
				}
				return run()
			}
		case "layer.1.ffn.residual":
			return edit(func(y []float32, _ int) { copy(y, given) })
		}
		return nil
	}
}

// previous lets every row see one position less, by telling the kernel that the rows stand one position earlier than they do. A row at position 0 has
// nothing before it and keeps its own.
func previous(s *step, run func() error) error {
	var early []npu.Segment
	for _, seg := range s.segments {
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
	s.segments = early
	return run()
}

// noise adds normal noise to everything that is computed, of three times the mean relative L1 that the tolerance allows.
func noise(_ npu.Info, find Tolerances) func(*step) fault {
	rng := rand.New(rand.NewPCG(1, 1))
	return func(s *step) fault {
		out := s.out()
		if out.rows == 0 {
			return nil
		}
		tol, ok := find(s.op, out.typ)
		if !ok || tol.MeanRelL1 == 0 {
			return nil
		}
		return edit(func(y []float32, _ int) {
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
