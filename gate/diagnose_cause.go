package gate

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// explain finds the pattern of a wrong op, and what it usually means. Kinds are all that are wrong.
func (f *Finding) explain(first Tap, kinds []string) {
	if len(f.Layers) > 0 {
		f.Where = append(f.Where, whereLayers(f.Layers, f.Of))
	}
	o := first.Own
	f.Where = append(f.Where, wherePositions(o.Rows, o.Bounds.Row, o.Steps, o.Metrics.NonFinite)...)
	if w := whereColumns(o.Columns, o.Bounds.L1); w != "" {
		f.Where = append(f.Where, w)
	}
	if o.Metrics.NonFinite == 0 && math.Abs(o.Scale-1) > o.Bounds.Scale && o.Beside < 0.1 {
		f.Where = append(f.Where, fmt.Sprintf("scale: everything is %.6g times what it should be", o.Scale))
	}
	f.Cause = causeOf(f.Kind, f.Where, kinds)
}

// whereLayers says which of the layers are wrong.
func whereLayers(wrong []int, of int) string {
	switch first, last := wrong[0], wrong[len(wrong)-1]; {
	case len(wrong) == of && of > 1:
		return fmt.Sprintf("layers: all %d", of)
	case len(wrong) == 1:
		return fmt.Sprintf("layers: %d alone of %d", first, of)
	case last-first+1 == len(wrong) && last == of-1:
		return fmt.Sprintf("layers: from %d on", first)
	}
	return fmt.Sprintf("layers: %d of %d, the first is %d", len(wrong), of, wrong[0])
}

// wherePositions says at which positions an output is wrong. Those from steps on were computed one by one.
func wherePositions(rows []float64, limit float64, steps, nonFinite int) []string {
	var list []string
	if nonFinite > 0 {
		list = append(list, fmt.Sprintf("values: %d are NaN or infinite", nonFinite))
	}
	var wrong []int
	for i, v := range rows {
		if v > limit {
			wrong = append(wrong, i)
		}
	}
	n := len(rows)
	if len(wrong) == 0 || n < 2 {
		return list
	}
	first, last := wrong[0], wrong[len(wrong)-1]
	dense := len(wrong) == last-first+1
	where := fmt.Sprintf("positions: %d of %d, the first is %d", len(wrong), n, first)
	switch {
	case len(wrong) == n && grows(rows):
		where = "positions: all, growing with the position"
	case len(wrong) == n:
		where = "positions: all"
	case dense && first == steps:
		where = fmt.Sprintf("positions: those from %d on, which were computed one by one; the pass before them is right", first)
	case dense && first == 0 && last == steps-1:
		where = fmt.Sprintf("positions: the first %d, which were computed in one pass; the steps after it are right", steps)
	case dense && first == 1 && last == n-1:
		where = "positions: all but the first"
	case dense && last == n-1:
		where = fmt.Sprintf("positions: from %d on", first)
	case len(wrong) == 1:
		where = fmt.Sprintf("positions: %d alone of %d", first, n)
	case dense:
		where = fmt.Sprintf("positions: rows %d to %d of %d", first, last, n)
	}
	return append(list, where)
}

// grows compares the last quarter with the first.
func grows(v []float64) bool {
	n := len(v) / 4
	if n == 0 {
		return false
	}
	sum := func(v []float64) (s float64) {
		for _, x := range v {
			s += x
		}
		return s
	}
	return sum(v[len(v)-n:]) > 3*sum(v[:n])
}

// share is the part of the largest error that a column must have to count as one of the wrong ones.
const share = 0.05

// whereColumns says in which columns an output is wrong; nothing when it is everywhere, or here and there.
func whereColumns(c []float64, limit float64) string {
	most := 0.0
	for _, v := range c {
		most = max(most, v)
	}
	var wrong []int
	for i, v := range c {
		if v > max(limit, share*most) {
			wrong = append(wrong, i)
		}
	}
	n := len(c)
	if len(wrong) == 0 || len(wrong) > n*9/10 {
		return ""
	}
	first, last := wrong[0], wrong[len(wrong)-1]
	if block, which := blocks(wrong, n); len(which) > 1 {
		return fmt.Sprintf("columns: blocks of %d, as heads or tiles are: %s of %d", block, join(which), n/block)
	}
	dense := len(wrong)*10 >= (last-first+1)*9
	switch step := stride(wrong); {
	case len(wrong) == 1:
		return fmt.Sprintf("columns: %d alone of %d", first, n)
	case dense && last == n-1:
		return fmt.Sprintf("columns: the tail, from %d of %d on", first, n)
	case dense:
		return fmt.Sprintf("columns: %d to %d of %d", first, last, n)
	case step > 1:
		return fmt.Sprintf("columns: one in %d, from %d on", step, first)
	}
	return ""
}

// stride is the distance between neighbours where it is the same for all of three or more.
func stride(list []int) int {
	if len(list) < 3 {
		return 0
	}
	step := list[1] - list[0]
	for i := 2; i < len(list); i++ {
		if list[i]-list[i-1] != step {
			return 0
		}
	}
	return step
}

// blocks finds the largest block of columns, at most half of all, such that each is wrong as a whole (9 in 10 columns) or not at all.
func blocks(wrong []int, n int) (size int, which []int) {
	is := make([]bool, n)
	for _, i := range wrong {
		is[i] = true
	}
	for size := n / 2; size >= 8; size-- {
		if n%size != 0 {
			continue
		}
		which, clean := []int(nil), true
		for b := range n / size {
			count := 0
			for _, w := range is[b*size:][:size] {
				if w {
					count++
				}
			}
			switch {
			case count*10 >= size*9:
				which = append(which, b)
			case count > 0:
				clean = false
			}
		}
		if clean {
			return size, which
		}
	}
	return 0, nil
}

func join(list []int) string {
	words := make([]string, min(len(list), 8))
	for i := range words {
		words[i] = fmt.Sprint(list[i])
	}
	if len(list) > 8 {
		words = append(words, "...")
	}
	return strings.Join(words, ", ")
}

// causeOf is what usually looks like a pattern. The place narrows it down first, then the kind of op.
func causeOf(kind string, where, kinds []string) string {
	has := func(prefix string) bool {
		return slices.ContainsFunc(where, func(w string) bool { return strings.HasPrefix(w, prefix) })
	}
	other := func(kind string) bool { return slices.Contains(kinds, kind) }
	var list []string
	switch {
	case has("values:"):
		list = append(list, "memory that nobody wrote, an overflow, or a division by zero")
	case has("layers: from"):
		list = append(list, "the weights from that layer on: an offset into the file, or one layer's weights bound for another's")
	case slices.ContainsFunc(where, func(w string) bool { return strings.HasPrefix(w, "layers:") && strings.Contains(w, "alone") }):
		list = append(list, "that layer's own weights or buffers: another layer's bound in their place, or a launch left out there")
	}
	switch {
	case strings.HasSuffix(kind, "_rope"): // slow angles change little, so that columns are wrong to different degrees
	case has("columns: the tail"):
		list = append(list, "the edge of a tile: the last columns are computed by code of their own, or left out")
	case has("columns: one in"):
		list = append(list, "the edge of every tile: its last column, or its first")
	case has("columns: blocks"):
		list = append(list, "the mapping of heads or tiles")
	case has("columns:"):
		list = append(list, "one tile, or one block of the weights")
	}
	switch place := has("positions: from") || has("positions: all, growing"); {
	case has("positions: those from"):
		list = append(list, "the kernels of single rows, which decoding takes")
	case has("positions: the first "):
		list = append(list, "the kernels of many rows, which a prompt takes")
	case has("positions: rows "):
		list = append(list, "some rows of a pass: a tile of rows, or what is left over after whole tiles")
	case has("positions: all but the first") && kind != "attn.core" && !strings.HasSuffix(kind, "_rope"):
		list = append(list, "rows are mixed up: the first alone is in its place")
	case place && kind == "attn.core":
		list = append(list, "the KV cache or the mask: what a position sees of those before it")
	case place:
		list = append(list, "the rows of a later chunk or step: their offset, or their tile's edge")
	}
	switch {
	case kind == "embed.embed":
		list = append(list, "the table's rows: an offset, another stride, or ids that did not reach the device")
	case kind == "attn.norm" || kind == "ffn.norm" || kind == "head.norm" || kind == "attn.q_norm" || kind == "attn.k_norm":
		list = append(list, "a norm: eps, its weight (missing, or another's), or a mean over another width; with q_norm and k_norm, over the head and not the row")
	case kind == "attn.q_rope" || kind == "attn.k_rope":
		cause := "RoPE: "
		switch {
		case has("positions: all but the first"):
			cause += "position 0 is right, so that the angles are wrong and not the offset: pairs interleaved instead of half-split, frequencies, scaling, or no rotation at all"
		default:
			cause += "positions off by one, or pairs and frequencies"
		}
		if other("attn.q_rope") != other("attn.k_rope") {
			cause += "; only one of q and k has it"
		}
		list = append(list, cause)
	case kind == "attn.core":
		cause := "attention: which KV head a query head reads, the scale 1/sqrt(headDim), the mask, or what was written to the cache and where"
		if has("positions: all but the first") {
			cause += "; position 0 sees only itself and is right, which speaks for scale, mask or cache, and against the heads' mapping"
		}
		list = append(list, cause)
	case strings.HasSuffix(kind, "_bias"):
		list = append(list, "a bias that is missing or another's")
	case kind == "ffn.act":
		list = append(list, "SiLU and product: gate and up swapped, or another activation function")
	case strings.HasSuffix(kind, ".residual"):
		list = append(list, "the residual: a branch left out, or added from another place")
	case kind == "head.pick":
		list = append(list, "another row than the one picked")
	case slices.Contains(weighted, kind):
		list = append(list, "the product: weights (whose, and in which order), a K that is cut short, or sums in a type too narrow")
	default:
		list = append(list, "the kernel of this op")
	}
	return strings.Join(list, "; ")
}
