package oracle_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/oracle"
)

// Tap names, order and shapes are those of the corresponding launches of a plan, so that a device
// can be compared with the oracle op by op.
func TestTapsMatchLaunches(t *testing.T) {
	for _, name := range []string{"llama-untied-sharded", "qwen2-bias", "qwen3-qknorm"} {
		t.Run(name, func(t *testing.T) {
			ck, err := checkpoint.Open(filepath.Join(testenv.Root(), "testdata", "tiny-models", name), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			p, err := plan.New(ck, npu.Info{Kind: "any", AnyRows: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			const rows = 3
			var names []string
			shapes := map[string][]int{}
			for _, s := range slices.Concat(p.Prefill[0].Steps, p.Prefill[0].Head) {
				for _, l := range p.Program(s.Program).Launches {
					full := s.Name + "." + l.Name
					names = append(names, full)
					for _, o := range l.Op.Operands() {
						if !o.Write {
							continue
						}
						size := op.Size{Rows: rows, Picks: rows, Capacity: rows}
						for _, d := range o.Shape {
							shapes[full] = append(shapes[full], size.Resolve(d))
						}
					}
				}
			}

			m, err := oracle.Open(ck)
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			tap := func(name string, shape []int, _ []float32) error {
				seen = append(seen, name)
				if !slices.Equal(shape, shapes[name]) {
					t.Errorf("%s is %v, the launch writes %v", name, shape, shapes[name])
				}
				return nil
			}
			opts := &oracle.ForwardOptions{Tap: tap}
			if err := m.Forward(context.Background(), m.NewState(), []int32{1, 2, 3}, opts, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(seen, names) {
				t.Errorf("taps\n  %q, launches\n  %q", seen, names)
			}
		})
	}
}
