package model

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/oracle"
)

// f32 is a plan whose arithmetic differs from the oracle's in the order of sums alone.
var f32 = &plan.Options{Activations: dtype.F32, Cache: dtype.F32}

// A tapped run gives the same logits as any other, and every launch's output under the name that the oracle has for it.
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

// scores gives all logits of ids from a fresh session.
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

// Step goes on where Score has stopped, and gives what Score would have given there.
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
