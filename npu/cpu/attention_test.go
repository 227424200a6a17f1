package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// cache is a session's keys and values in the test's own form: [kvHead][position][headDim].
type cache struct {
	bufs     [2]npu.Buffer
	capacity int
	values   [2][][][]float64
}

// newCache makes the state of a session with so many positions behind it. The rest is poison: nothing may read it.
func newCache(t testing.TB, d *Device, rng *rand.Rand, kvHeads, hd, past, capacity int, typ dtype.Type) *cache {
	c := &cache{capacity: capacity}
	for i := range c.values {
		c.bufs[i] = alloc(t, d, typ.Bytes(kvHeads*capacity*hd))
		poison(c.bufs[i].Bytes())
		for h := range kvHeads {
			var rows [][]float64
			for p := range past {
				row := random(rng, hd)
				encode(c.bufs[i].Bytes()[typ.Bytes((h*capacity+p)*hd):], typ, row)
				rows = append(rows, row)
			}
			c.values[i] = append(c.values[i], rows)
		}
	}
	return c
}

func random(rng *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	return x
}

// attentionProgram writes the rows' keys and values and attends to all.
func attentionProgram(heads, kvHeads, hd int, act, kv dtype.Type) *npu.Program {
	p := npu.NewProgram("attention")
	q := p.In("q", act, op.Rows, heads*hd)
	k := p.In("k", act, op.Rows, kvHeads*hd)
	v := p.In("v", act, op.Rows, kvHeads*hd)
	kc := p.State("kcache", kv, kvHeads, op.Capacity, hd)
	vc := p.State("vcache", kv, kvHeads, op.Capacity, hd)
	y := p.Out("y", act, op.Rows, heads*hd)
	p.Launch("k_write", op.KVWrite{Rows: op.Rows, KVHeads: kvHeads, HeadDim: hd}, k, kc)
	p.Launch("v_write", op.KVWrite{Rows: op.Rows, KVHeads: kvHeads, HeadDim: hd}, v, vc)
	p.Launch("attn", op.Attention{Rows: op.Rows, Heads: heads, KVHeads: kvHeads, HeadDim: hd, Cached: true}, q, kc, vc,
		y)
	return p
}

// eager makes attention for every type of result as it is made for BF16. FP32 results show errors
// that BF16 would hide.
type eager struct{ engine }

func (e eager) AttentionTable(k, v, _ int32, hd int64) int32 {
	return e.engine.AttentionTable(k, v, kernel.BF16, hd)
}

func TestCachedAttentionEqualsReference(t *testing.T) {
	type seg struct{ past, rows int }
	cases := []struct {
		heads, kvHeads, hd int
		segs               []seg
	}{
		{1, 1, 2, []seg{{0, 1}}},
		{3, 3, 64, []seg{{0, 1}}},
		{9, 3, 64, []seg{{0, 37}}},
		{9, 3, 64, []seg{{40, 1}}},
		{14, 2, 64, []seg{{300, 1}}},
		{7, 1, 48, []seg{{0, 70}}},
		{8, 2, 20, []seg{{130, 5}}},
		{32, 8, 64, []seg{{511, 1}, {512, 1}, {513, 1}, {0, 1}}},
		{4, 2, 128, []seg{{5, 33}, {0, 1}, {700, 2}, {64, 64}}},
		{6, 2, 96, []seg{{4500, 1}, {4200, 3}}},
		{2, 1, 256, []seg{{100, 20}}},
		{15, 1, 80, []seg{{0, 100}, {1000, 1}}},
		// Several blocks of positions, cut by neither rows nor queries, poison after an odd number
		// of them, and more heads to a key-value head than a chunk has queries.
		{9, 3, 64, []seg{{3, 1}, {250, 37}}},
		{4, 1, 256, []seg{{120, 30}, {7, 1}, {0, 21}}},
		{200, 1, 32, []seg{{140, 2}}},
		{5, 1, 32, []seg{{0, 1}, {0, 299}}},
		{4, 2, 128, []seg{{0, 1}, {130, 17}}},
		{6, 1, 96, []seg{{1, 1}, {380, 41}}},
	}
	types := some(t, "types", [][2]dtype.Type{{f32, bf}, {bf, half}, {bf, bf}, {f32, f32}})
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		d.engine = eager{d.engine}
		for i, tc := range cases {
			for _, typ := range types {
				t.Run(fmt.Sprintf("%d heads of %d over %d, %v %v", tc.heads, tc.hd, tc.kvHeads, tc.segs, typ),
					func(t *testing.T) {
						rng := rand.New(rand.NewPCG(uint64(i), 7))
						exec, err := d.Load(context.Background(), attentionProgram(tc.heads, tc.kvHeads, tc.hd, typ[0],
							typ[1]))
						if err != nil {
							t.Fatal(err)
						}
						rows := 0
						var segments []npu.Segment
						var caches []*cache
						for j, s := range tc.segs {
							c := newCache(t, d, rng, tc.kvHeads, tc.hd, s.past, s.past+s.rows+j, typ[1])
							segments = append(segments, npu.Segment{Rows: s.rows, Pos: s.past, State: c.bufs[:]})
							caches = append(caches, c)
							rows += s.rows
						}
						input := func(width int, size float64) (npu.Buffer, []float64) {
							b, x := alloc(t, d, typ[0].Bytes(rows*width)), random(rng, rows*width)
							for i := range x {
								x[i] *= size
							}
							encode(b.Bytes(), typ[0], x)
							return b, x
						}
						size := 1.0
						if typ[0] == bf { // scores so far apart that sums must be brought to a larger one now and then
							size = 6
						}
						q, qx := input(tc.heads*tc.hd, size)
						k, kx := input(tc.kvHeads*tc.hd, 1)
						v, vx := input(tc.kvHeads*tc.hd, 1)
						y := alloc(t, d, typ[0].Bytes(rows*tc.heads*tc.hd))
						poison(y.Bytes())
						run := npu.Run{Exec: exec, Args: []npu.Buffer{q, k, v, nil, nil, y}, Segments: segments}
						if err := d.Submit(context.Background(), []npu.Run{run}); err != nil {
							t.Fatal(err)
						}
						var want []float64
						row := 0
						scale := op.Attention{HeadDim: tc.hd}.Softmax()
						for j, s := range tc.segs {
							c := caches[j]
							for range s.rows {
								for h := range tc.kvHeads {
									for side, x := range [][]float64{kx, vx} {
										stored := append([]float64(nil), x[(row*tc.kvHeads+h)*tc.hd:][:tc.hd]...)
										encode(make([]byte, typ[1].Bytes(tc.hd)), typ[1], stored)
										c.values[side][h] = append(c.values[side][h], stored)
									}
								}
								for h := range tc.heads {
									g := h / (tc.heads / tc.kvHeads)
									want = append(want, attend(qx[(row*tc.heads+h)*tc.hd:][:tc.hd], c.values[0][g],
										c.values[1][g], scale)...)
								}
								row++
							}
						}
						compare(t, decode(t, y.Bytes(), typ[0], rows*tc.heads*tc.hd), want, typ[0], 4*tc.hd)
					})
			}
		}
	})
}

// A session may begin behind positions that another one computed, and its rows are then cut into
// other blocks of queries: they must be the same to the bit.
func TestAttentionDoesNotDependOnWhereASegmentBegins(t *testing.T) {
	const heads, kvHeads, hd, rows = 6, 2, 64, 300
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		d.engine = eager{d.engine}
		rng := rand.New(rand.NewPCG(5, 6))
		exec, err := d.Load(context.Background(), attentionProgram(heads, kvHeads, hd, f32, bf))
		if err != nil {
			t.Fatal(err)
		}
		state := newCache(t, d, rng, kvHeads, hd, 0, rows, bf)
		var in [3][]float64
		for i, width := range []int{heads * hd, kvHeads * hd, kvHeads * hd} {
			in[i] = random(rng, rows*width)
		}
		attend := func(from int) []byte { // rows from from on
			var args []npu.Buffer
			for _, x := range in {
				x = x[len(x)/rows*from:]
				args = append(args, alloc(t, d, 4*len(x)))
				encode(args[len(args)-1].Bytes(), f32, x)
			}
			y := alloc(t, d, 4*(rows-from)*heads*hd)
			run := npu.Run{Exec: exec, Args: append(args, nil, nil, y),
				Segments: []npu.Segment{{Rows: rows - from, Pos: from, State: state.bufs[:]}}}
			if err := d.Submit(context.Background(), []npu.Run{run}); err != nil {
				t.Fatal(err)
			}
			return y.Bytes()
		}
		whole := attend(0)
		for _, from := range []int{1, 5, 16, 37, 64, 100, 203} {
			if !bytes.Equal(attend(from), whole[4*from*heads*hd:]) {
				t.Errorf("rows from %d on have other bits than behind those before them", from)
			}
		}
	})
}

// The tests above would pass with AVX-512 as well.
func TestAMXAttendsToBF16(t *testing.T) {
	forEachDevice(t, 1, func(t *testing.T, d *Device) {
		for _, tc := range []struct {
			k, v, y int32
			hd      int64
			want    bool
		}{
			{kernel.BF16, kernel.BF16, kernel.BF16, 64, true}, {kernel.BF16, kernel.BF16, kernel.BF16, 96, true},
			{kernel.BF16, kernel.BF16, kernel.BF16, 80, false},
			{kernel.F32, kernel.F32, kernel.BF16, 64, false}, {kernel.BF16, kernel.F16, kernel.BF16, 64, false},
			{kernel.BF16, kernel.BF16, kernel.F32, 64, false},
		} {
			want := tc.want && d.Kernels() == "amx"
			if got := d.engine.AttentionTable(tc.k, tc.v, tc.y, tc.hd); (got != 0) != want {
				t.Errorf("keys %d, values %d, results %d, heads of %d: table %d, want the matrix unit %v", tc.k, tc.v,
					tc.y, tc.hd, got, want)
			}
		}
	})
}

// Without a cache keys and values come with the rows, in the layouts of the NPU's kernels.
func TestUncachedAttentionEqualsReference(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		d.engine = eager{d.engine}
		for i, o := range []op.Attention{
			{Rows: 1, Heads: 4, KVHeads: 2, HeadDim: 16},
			{Rows: 37, Heads: 6, KVHeads: 2, HeadDim: 64},
			{Rows: 37, Heads: 6, KVHeads: 2, HeadDim: 64, HeadFirst: true, Scale: 0.3},
			{Rows: 67, Heads: 4, KVHeads: 1, HeadDim: 128, HeadFirst: true, Split: 2},
		} {
			for _, typ := range []dtype.Type{bf, f32} {
				t.Run(fmt.Sprintf("%+v %v", o, typ), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(i), 3))
					p := npu.NewProgram("attention")
					var refs []npu.Ref
					var bufs []npu.Buffer
					var in [][]float64
					for _, operand := range o.Operands() {
						kind, x := npu.In, random(rng, (op.Size{}).Elements(operand.Shape))
						buf := alloc(t, d, typ.Bytes(len(x)))
						encode(buf.Bytes(), typ, x)
						if operand.Write {
							kind = npu.Out
							poison(buf.Bytes())
						}
						in, bufs = append(in, x), append(bufs, buf)
						refs = append(refs, p.Arg(kind, operand.Name, typ, operand.Shape...))
					}
					p.Launch("attn", o, refs...)
					exec, err := d.Load(context.Background(), p)
					if err != nil {
						t.Fatal(err)
					}
					if err := d.Submit(context.Background(), []npu.Run{{Exec: exec, Args: bufs}}); err != nil {
						t.Fatal(err)
					}
					got := decode(t, bufs[3].Bytes(), typ, len(in[3]))

					// at is the place of element e of a head's row.
					at := func(heads, head, row, e, split int) int {
						if !o.HeadFirst {
							return (row*heads+head)*o.HeadDim + e
						}
						part := o.HeadDim / split
						return ((head*split+e/part)*o.Rows+row)*part + e%part
					}
					vector := func(x []float64, heads, head, row, split int) []float64 {
						y := make([]float64, o.HeadDim)
						for e := range y {
							y[e] = x[at(heads, head, row, e, split)]
						}
						return y
					}
					want := make([]float64, len(got))
					split := max(1, o.Split)
					for h := range o.Heads {
						g := h / (o.Heads / o.KVHeads)
						var keys, values [][]float64
						for r := range o.Rows {
							keys = append(keys, vector(in[1], o.KVHeads, g, r, 1))
							values = append(values, vector(in[2], o.KVHeads, g, r, split))
							for e, v := range attend(vector(in[0], o.Heads, h, r, 1), keys, values, o.Softmax()) {
								want[at(o.Heads, h, r, e, split)] = v
							}
						}
					}
					compare(t, got, want, typ, 4*o.HeadDim)
				})
			}
		}
	})
}
