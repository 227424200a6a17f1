package xdna2

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// suggest searches for a mapping that passes all rules, close to the given one: first with one
// number changed, then two, then three, then a published row's mapping, then the same with a padded
// matrix. It returns the result as text, or nil.
func (p *place) suggest(known []rule) []string {
	ids, _ := p.failing(known)
	for _, i := range ids {
		if id := known[i].ID; id != "R-MAP-1" && ignoresMapping(id) {
			return nil // no mapping helps
		}
	}
	if !p.malformed() {
		if s := p.nearest(known, 3); s != "" {
			return []string{s}
		}
	}
	if s := p.fromRegistry(known); s != "" {
		return []string{s}
	}
	if s := p.padded(known); s != "" {
		return []string{s}
	}
	return nil
}

// knob is a number of the mapping that can be changed, with the values to try.
type knob struct {
	name   string
	tile   int // index in the tile, or -1
	herd   int // index in the herd, or -1
	values []int
}

func (k knob) get(p *place) int {
	if k.tile >= 0 {
		return p.tile(k.tile)
	}
	n := [2]int{}
	n[0], n[1] = p.herd()
	return n[k.herd]
}

func (k knob) set(p *place, n int) {
	if k.tile >= 0 {
		p.m.Tile[k.tile] = n
	} else {
		p.m.Herd[k.herd] = n
	}
}

// upTo returns the multiples of step up to limit.
func upTo(step, limit int) []int {
	var list []int
	for n := step; n <= limit; n += step {
		list = append(list, n)
	}
	return list
}

// dividing returns the values that divide n.
func dividing(n int, values []int) []int {
	return slices.DeleteFunc(values, func(v int) bool { return n%v != 0 })
}

func (p *place) knobs() []knob {
	var values [][]int
	switch p.kernel {
	case GEMM:
		values = [][]int{upTo(16, 128), dividing(p.shape.K, upTo(8, 2048)), {8, 16, 24, 32, 40, 48, 64, 80, 96, 128},
			upTo(16, 256)}
	case GEMV:
		values = [][]int{upTo(2, 64), {1, 2, 4, 8, 16, 32}}
	case Attention:
		values = [][]int{upTo(64, 1024), {16, 32, 64, 128}, {1, 2, 4, 8, 16}, {1, 2}}
	case Add, SiLUMul, GELU:
		values = [][]int{dividing(p.shape.N, upTo(16, 8192))}
	case RoPE:
		values = [][]int{{1}}
	case castKernel:
		values = [][]int{dividing(p.shape.N, upTo(16, 4096))}
	}
	f := forms(p.kernel)
	var list []knob
	for i := range p.m.Tile {
		list = append(list, knob{f.tile[i], i, -1, values[i]})
	}
	// Published herds: columns in powers of two, any number of rows.
	herds := [][]int{dividing(p.array.Columns, upTo(1, p.array.Columns)), upTo(1, p.array.Rows)}
	for i := range p.m.Herd {
		list = append(list, knob{[]string{"herd columns", "herd rows"}[i], -1, i, herds[i]})
	}
	return list
}

// nearest returns the smallest change of at most the given count of numbers that fits, or "".
func (p *place) nearest(known []rule, most int) string {
	knobs := p.knobs()
	q := *p
	q.m.Tile, q.m.Herd = slices.Clone(p.m.Tile), slices.Clone(p.m.Herd)
	for changes := 1; changes <= most; changes++ {
		best, found := math.Inf(1), ""
		var try func(from, left int, distance float64, words []string)
		try = func(from, left int, distance float64, words []string) {
			if distance >= best {
				return
			}
			if left == 0 {
				if q.fits(known) {
					best, found = distance, strings.Join(words, " and ")
				}
				return
			}
			for i := from; i < len(knobs); i++ {
				k := knobs[i]
				old := k.get(p)
				for _, n := range k.values {
					if n == old {
						continue
					}
					k.set(&q, n)
					d := math.Abs(math.Log2(float64(n) / float64(old)))
					if k.herd >= 0 {
						d *= 2 // halving the cores costs more than halving a tile
					}
					try(i+1, left-1, distance+d, append(slices.Clip(words),
						fmt.Sprintf("%s %d instead of %d", k.name, n, old)))
				}
				k.set(&q, old)
			}
		}
		try(0, changes, 0, nil)
		if found != "" {
			return found
		}
	}
	return ""
}

// fromRegistry returns the nearest published row whose mapping fits, as text, or "".
func (p *place) fromRegistry(known []rule) string {
	if p.op == nil || p.m.Fused != "" {
		return ""
	}
	registry := PublishedRegistry()
	q := *p
	for _, out := range []dtype.Type{dtype.BF16, dtype.F32} {
		list, err := registry.Candidates(p.op, out, fixedSize(p.op))
		if err != nil {
			return ""
		}
		for _, row := range list {
			q.m = row.Mapping
			if q.fits(known) {
				return "the mapping of the published row " + row.ID
			}
		}
	}
	return ""
}

// padded returns the smallest padding of the matrix that fits, as text, or "".
func (p *place) padded(known []rule) string {
	o, ok := p.op.(op.MatMul)
	if !ok || p.m.Fused != "" {
		return ""
	}
	type option struct {
		words string
		size  float64
	}
	var options []option
	for _, k := range []int{1, 64, 128, 256, 512, 1024} {
		for _, n := range []int{1, 64, 128, 256, 512, 1024} {
			wide := o
			wide.K, wide.N = divUp(o.K, k)*k, divUp(o.N, n)*n
			if wide == o {
				continue
			}
			q := *p
			q.op, q.shape.K, q.shape.N, q.stride = wide, wide.K, wide.N, nil
			words := ""
			switch {
			case !p.malformed() && q.fits(known):
				words = "the same mapping"
			default:
				words = q.fromRegistry(known)
			}
			if words != "" {
				text := fmt.Sprintf("K %d and N %d, padded from %d and %d, with %s", wide.K, wide.N, o.K, o.N, words)
				options = append(options, option{text, float64(wide.K) * float64(wide.N)})
			}
		}
	}
	if len(options) == 0 {
		return ""
	}
	return slices.MinFunc(options, func(a, b option) int { return cmp.Compare(a.size, b.size) }).words
}

// sprintPad returns advice to pad a dimension.
func sprintPad(name string, from, to int) string {
	return fmt.Sprintf("pad %s from %d to %d with zeros", name, from, to)
}

// sprintPartition returns advice to split a GEMV by rows, or "" if it has too few.
func sprintPartition(n, rows int) string {
	if n <= rows {
		return ""
	}
	return fmt.Sprintf("split it into %d launches of %d rows, the last padded", divUp(n, rows), rows)
}

func sprintSplit(launches, most int) string {
	return fmt.Sprintf("split it into %d programs", divUp(launches, max(1, most)))
}

func sprintBlocks(block int) string {
	return fmt.Sprintf("merge it with another launch, map it as \"fused-cast\", or run it %d rows at a time", block)
}

func quotient(n, d int) string { return fmt.Sprint(n / d) }
