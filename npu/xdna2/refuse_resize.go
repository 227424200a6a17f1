package xdna2

import (
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// resized returns advice for a launch that no mapping fits: the nearest larger and the nearest
// smaller shape of the op that some mapping fits, or else to run it on the host. It is never empty.
func (p *place) resized(known []rule) []string {
	var found []string
	if p.op != nil && p.m.Fused == "" {
		for _, list := range resizings(p.op, p.array) {
			if s := p.firstPlaced(known, list); s != "" {
				found = append(found, s)
			}
		}
	}
	if len(found) == 0 {
		found = []string{"make it a step on the host"}
	}
	return found
}

// resizing is an op of another shape and the text that describes the change.
type resizing struct {
	op    op.Op
	words string
}

// firstPlaced returns the text of the first resizing that fits, or "".
func (p *place) firstPlaced(known []rule, list []resizing) string {
	for _, r := range list {
		q, err := newPlace(p.array, r.op, p.types, p.m)
		if err != nil {
			continue
		}
		if q.fits(known) {
			return r.words
		}
		for _, m := range flashMappings(r.op, p.m) {
			if q.m = m; q.fits(known) {
				return fmt.Sprintf("%s, with the tile %v and the herd %v", r.words, m.Tile, m.Herd)
			}
		}
		q.m = p.m
		if q.kernel == RMSNorm || q.kernel == LayerNorm {
			continue // rows do not get shorter with other herds
		}
		if !q.malformed() {
			if s := q.nearest(known, 2); s != "" {
				return r.words + ", with " + s
			}
		}
		if s := q.fromRegistry(known); s != "" {
			return r.words + ", with " + s
		}
	}
	return ""
}

// flashMappings returns the mappings of an attention with fewer query tiles, or fewer cores that
// share the keys. The numbers depend on each other, so knobs cannot change them one by one.
func flashMappings(o op.Op, m npu.Mapping) (list []npu.Mapping) {
	if _, ok := o.(op.Attention); !ok || m.Variant != "flash" || len(m.Tile) != 4 || len(m.Herd) != 2 {
		return nil
	}
	for tiles := m.Tile[2]; tiles > 0; tiles /= 2 {
		for rows := m.Herd[1]; rows > 0; rows /= 2 {
			n := m
			n.Tile, n.Herd = []int{tiles * m.Tile[1], m.Tile[1], tiles, m.Tile[3]}, []int{tiles * m.Tile[3], rows}
			list = append(list, n)
		}
	}
	return list
}

// resizings returns lists of shapes to try, each with the nearest first.
func resizings(o op.Op, a *Array) [][]resizing {
	var more, fewer, parts []resizing
	// rows appends other numbers of rows.
	rows := func(n int, pad, cut string, with func(n int) op.Op) {
		for _, m := range around(n) {
			if m > n {
				more = append(more, resizing{with(m), fmt.Sprintf("pad the %s from %d to %d", pad, n, m)})
			} else if cut != "" {
				fewer = append(fewer, resizing{with(m), fmt.Sprintf(cut, m)})
			}
		}
	}
	// narrower appends narrower rows for kernels that hold whole rows, starting at the widest that
	// a core could hold.
	narrower := func(width int, with func(width int) op.Op) {
		width = min(width, a.CoreMemory/dtype.BF16.Bytes(1))
		for w := width - width%16; w > 0; w -= 16 {
			fewer = append(fewer, resizing{with(w),
				fmt.Sprintf("make it a step on the host: rows of at most %d fit a core", w)})
		}
	}
	const launches = "launches of %d rows each"
	switch o := o.(type) {
	case op.Attention:
		rows(o.Rows, "positions", "a prompt of %d positions", func(n int) op.Op { q := o; q.Rows = n; return q })
	case op.RMSNorm:
		if o.Heads <= 1 {
			narrower(o.Width, func(w int) op.Op { q := o; q.Width = w; return q })
		}
	case op.LayerNorm:
		narrower(o.Width, func(w int) op.Op { q := o; q.Width = w; return q })
	case op.Add:
		rows(o.Rows, "rows", launches, func(n int) op.Op { q := o; q.Rows = n; return q })
	case op.SiLUMul:
		rows(o.Rows, "rows", launches, func(n int) op.Op { q := o; q.Rows = n; return q })
	case op.GELU:
		rows(o.Rows, "rows", launches, func(n int) op.Op { q := o; q.Rows = n; return q })
	case op.Cast:
		rows(o.Rows, "rows", launches, func(n int) op.Op { q := o; q.Rows = n; return q })
	case op.RoPE:
		rows(o.HeadDim, "head dimension", "", func(n int) op.Op { q := o; q.HeadDim = n; return q })
		rows(o.Rows, "positions", "", func(n int) op.Op { q := o; q.Rows = n; return q })
	case op.MatMul:
		if o.M > 1 {
			rows(o.M, "rows", launches, func(n int) op.Op { q := o; q.M = n; return q })
		}
		for n := 2; n <= 64; n *= 2 {
			if q := o; o.N%n == 0 {
				q.N /= n
				parts = append(parts, resizing{q, fmt.Sprintf("split N into %d launches of %d", n, q.N)})
			}
		}
		for n := 2; n <= 64; n *= 2 {
			if q := o; o.K%n == 0 {
				q.K /= n
				parts = append(parts, resizing{q, fmt.Sprintf("split K into %d launches of %d, and add their "+
					"results", n, q.K)})
			}
		}
	}
	return [][]resizing{more, fewer, parts}
}

// around returns numbers of rows near n that kernels support, nearest first: multiples of 16, 64,
// 256 and 1024.
func around(n int) []int {
	var list []int
	for _, step := range []int{16, 64, 256, 1024} {
		for k := range 4 {
			below := n - n%step - k*step
			for _, m := range []int{below, below + (2*k+1)*step} {
				if m > 0 && m != n && m < maxDim && !slices.Contains(list, m) {
					list = append(list, m)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return max(a-n, n-a) - max(b-n, n-b) })
	return list
}
