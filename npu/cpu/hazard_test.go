package cpu

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Constants have no hazards, so a product may have none, one or two operands that can: which is
// which must not depend on how many there are.
func TestProductsOfConstants(t *testing.T) {
	const n, k = 24, 40
	for _, tc := range []struct{ a, w npu.Kind }{{npu.In, npu.Const}, {npu.Const, npu.In}, {npu.Const, npu.Const},
		{npu.In, npu.In}} {
		for _, m := range []int{3, 20} {
			o := op.MatMul{M: m, K: k, N: n, TransB: true}
			p := npu.NewProgram("product")
			a, w := p.Arg(tc.a, "a", f32, m, k), p.Arg(tc.w, "w", f32, n, k)
			y := p.Out("y", f32, m, n)
			p.Launch("first", o, a, w, y)
			// The first operand again, with its rows as they were packed before: the panels are
			// shared, and must not be stale.
			again := p.Out("again", f32, m, n)
			p.Launch("again", o, a, w, again)
			rng := rand.New(rand.NewPCG(7, uint64(m)))
			av, wv := random(rng, m*k), random(rng, n*k)
			forEachDevice(t, 2, func(t *testing.T, d *Device) {
				e := loaded(t, d, p)
				args := []npu.Buffer{alloc(t, d, 4*m*k), alloc(t, d, 4*n*k), alloc(t, d, 4*m*n), alloc(t, d, 4*m*n)}
				encode(args[0].Bytes(), f32, av)
				encode(args[1].Bytes(), f32, wv)
				if err := d.Submit(context.Background(), []npu.Run{{Exec: e, Args: args}}); err != nil {
					t.Fatal(err)
				}
				want := reference(o, [][]float64{av, wv})
				compare(t, decode(t, args[2].Bytes(), f32, m*n), want, f32, k)
				compare(t, decode(t, args[3].Bytes(), f32, m*n), want, f32, k)
			})
		}
	}
}
