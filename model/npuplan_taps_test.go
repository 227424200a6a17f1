package model

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/oracle"
)

// Every op that the oracle shows has a launch of the same name in each pass of a plan for the NPU, merged or not, and a tapped run shows
// it with the same rows.
func TestNPUPlanTaps(t *testing.T) {
	for _, name := range []string{"llama", "qwen2-hd128-wide", "qwen3-head-first"} {
		spec := npuSpecs()[name]
		spec.Layers = 1
		dir := t.TempDir()
		if err := ckptgen.Write(dir, spec, 1); err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Open(dir)
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
		opts := &oracle.ForwardOptions{Picks: []int{len(ids) - 1}, Tap: func(name string, shape []int, values []float32) error {
			want[name] = slices.Clone(values)
			return nil
		}}
		if err := reference.Forward(context.Background(), reference.NewState(), ids, opts, nil); err != nil {
			t.Fatal(err)
		}
		for _, knobs := range []plan.Knobs{plan.TunedKnobs(), {MergePre: true, LMHead: plan.OnDevice, LMRows: "last"}} {
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

// columns are the first n columns of rows of a width: what is behind them is padding.
func columns(x []float32, width, n int) (y []float32) {
	for row := range slices.Chunk(x, width) {
		y = append(y, row[:min(n, width)]...)
	}
	return y
}
