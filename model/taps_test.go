package model

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/oracle"
)

// f32 are the options of a plan that differs from the oracle's arithmetic only in the order of
// sums.
var f32 = &plan.Options{Activations: dtype.F32, Cache: dtype.F32}

// A tapped run has the same logits as any other, and reports every launch under the oracle's name.
func TestTaps(t *testing.T) {
	ctx := context.Background()
	ids := []int32{1, 17, 4, 99, 23}
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			type tap struct {
				name   string
				shape  []int
				values []float32
			}
			var got []tap
			plain := open(t, tiny(name), "", f32)
			tapped, err := Open(ctx, plain.dev, tiny(name), &OpenOptions{PlanOptions: f32,
				Tap: func(name string, shape []int, values []float32) error {
					got = append(got, tap{name, slices.Clone(shape), slices.Clone(values)})
					return nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			defer tapped.Close()
			if want, have := scores(t, plain, ids), scores(t, tapped, ids); !slices.Equal(have, want) {
				t.Error("a tapped run gives other logits")
			}

			ref, err := oracle.Open(tapped.Checkpoint())
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			check := func(name string, shape []int, want []float32) error {
				if name[len(name)-len("_write"):] == "_write" {
					return nil // caches are not tapped
				}
				if i >= len(got) {
					t.Fatalf("%d taps, the oracle goes on with %s", i, name)
				}
				g := got[i]
				i++
				if g.name != name || !slices.Equal(g.shape, shape) {
					t.Errorf("tap %d is %s %v, the oracle has %s %v", i-1, g.name, g.shape, name, shape)
					return nil
				}
				var diff, sum float64
				for j := range want {
					diff += math.Abs(float64(g.values[j] - want[j]))
					sum += math.Abs(float64(want[j]))
				}
				if !(diff <= 1e-4*sum) {
					t.Errorf("tap %s is off by %g of its size", name, diff/sum)
				}
				return nil
			}
			if err := ref.Forward(ctx, ref.NewState(), ids, &oracle.ForwardOptions{Tap: check}, nil); err != nil {
				t.Fatal(err)
			}
			if i != len(got) {
				t.Errorf("%d taps, the oracle has %d", len(got), i)
			}
		})
	}
}

// scores returns all logits of ids from a new session.
func scores(t *testing.T, m *Model, ids []int32) []float32 {
	t.Helper()
	s := m.NewSession()
	defer s.Close()
	var all []float32
	if err := s.Score(context.Background(), ids, func(_ int, logits []float32) error {
		all = append(all, logits...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// Step continues after Score, with the logits that Score would have there.
func TestStep(t *testing.T) {
	ctx := context.Background()
	m := open(t, tiny(tinyModels[0]), "", f32)
	s := m.NewSession()
	defer s.Close()
	ids := []int32{5, 6, 7, 8, 9, 10}
	vocab := m.Plan().Model.Vocab
	want := scores(t, m, ids)
	if err := s.Score(ctx, ids[:3], func(int, []float32) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for pos := 3; pos < len(ids); pos++ {
		got, err := s.Step(ctx, ids[pos])
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want[pos*vocab:][:vocab] {
			if math.Abs(float64(got[i]-w)) > 1e-4*(1+math.Abs(float64(w))) {
				t.Fatalf("position %d: logit %d is %g by a step, %g by scoring", pos, i, got[i], w)
			}
		}
	}
}

// Every op that the oracle taps has a launch of the same name in each pass of an NPU plan, merged
// or not, and a tapped run reports it with the same rows.
func TestNPUPlanTaps(t *testing.T) {
	for _, name := range []string{"llama", "qwen2-hd128-wide", "qwen3-head-first"} {
		spec := npuSpecs()[name]
		spec.Layers = 1
		dir := t.TempDir()
		if err := ckptgen.Write(dir, spec, 1); err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		reference, err := oracle.Open(ck)
		if err != nil {
			t.Fatal(err)
		}
		ids := npuIDs(npuRows / 2)
		want := map[string][]float32{}
		opts := &oracle.ForwardOptions{
			Picks: []int{len(ids) - 1},
			Tap: func(name string, shape []int, values []float32) error {
				want[name] = slices.Clone(values)
				return nil
			},
		}
		if err := reference.Forward(context.Background(), reference.NewState(), ids, opts, nil); err != nil {
			t.Fatal(err)
		}
		for _, knobs := range []plan.Knobs{plan.TunedKnobs(), {MergePre: true, LMHead: plan.OnDevice,
			LMRows: plan.TunedKnobs().LMRows}} {
			p, err := plan.NewNPU(ck.Config(), &plan.NPUOptions{Lengths: []int{npuRows}, Knobs: &knobs})
			if err != nil {
				t.Fatal(err)
			}
			p.Prefill[0].Cost, p.Decode.Cost = 0, 0 // without costs a prompt is prefilled
			dev, err := cpu.Open(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			got := map[string]float64{}
			tap := func(name string, shape []int, values []float32) error {
				e := want[name]
				if len(shape) == 2 && shape[0] == len(ids) {
					values = columns(values, shape[1], len(e)/len(ids))
				}
				if len(e) == len(values) {
					got[name] = relativeL1(values, e)
				}
				return nil
			}
			m, err := Open(context.Background(), dev, dir, &OpenOptions{Plan: p, Tap: tap})
			if err != nil {
				t.Fatal(err)
			}
			s := m.NewSession()
			if err := s.Score(context.Background(), ids, nil); err != nil {
				t.Fatal(err)
			}
			for tap := range want {
				d, ok := got[tap]
				switch {
				case strings.HasSuffix(tap, "_write"): // a cache: its room is the session's
				case !ok:
					t.Errorf("%s: no launch shows %s", name, tap)
				case !(d < 0.02): // the largest seen is 0.010
					t.Errorf("%s: %s differs by %.3g", name, tap, d)
				}
			}
			s.Close()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// columns returns the first n columns of rows of the given width, without the padding.
func columns(x []float32, width, n int) (y []float32) {
	for row := range slices.Chunk(x, width) {
		y = append(y, row[:min(n, width)]...)
	}
	return y
}
