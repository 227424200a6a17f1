package gate

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// explain fills in the pattern of a wrong op and its usual cause. Kinds lists all wrong ops.
func (f *Finding) explain(first Tap, kinds []string) {
	if len(f.Layers) > 0 {
		f.Where = append(f.Where, whereLayers(f.Layers, f.Of))
	}
	o := first.Own
	f.Where = append(f.Where, wherePositions(o.Rows, o.bounds.Row, o.Steps, o.Metrics.NonFinite)...)
	if w := whereColumns(o.Columns, o.bounds.L1); w != "" {
		f.Where = append(f.Where, w)
	}
	if o.Metrics.NonFinite == 0 && math.Abs(o.Scale-1) > o.bounds.Scale && o.Residual < 0.1 {
		f.Where = append(f.Where, fmt.Sprintf("scale: everything is %.6g times what it should be",
			o.Scale))
	}
	f.Cause = causeOf(f.Kind, f.Where, kinds)
}

// whereLayers describes which layers are wrong.
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

// wherePositions describes the positions at which an output is wrong. Those from steps on were
// decoded one by one.
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
		where = fmt.Sprintf("positions: those from %d on, which were decoded one by one; the prefill "+
			"is right", first)
	case dense && first == 0 && last == steps-1:
		where = fmt.Sprintf("positions: the first %d, which were prefilled; the decode steps after it "+
			"are right", steps)
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

// grows reports whether the last quarter's sum is over three times the first quarter's.
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

// share is the part of the largest error from which a column counts as wrong.
const share = 0.05

// whereColumns describes the columns in which an output is wrong; "" if there is no pattern.
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
		return fmt.Sprintf("columns: blocks of %d, such as heads or tiles: %s of %d", block, join(which),
			n/block)
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

// stride returns the distance between neighbors if it is the same for all of three or more,
// otherwise 0.
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

// blocks finds the largest block size, at most half of n, such that each block is either wrong (in
// 9 of 10 columns) or not at all.
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

// causeOf returns the usual causes of a pattern: those of the place first, then those of the kind
// of op.
func causeOf(kind string, where, kinds []string) string {
	has := func(prefix string) bool {
		return slices.ContainsFunc(where, func(w string) bool { return strings.HasPrefix(w, prefix) })
	}
	other := func(kind string) bool { return slices.Contains(kinds, kind) }
	var list []string
	switch {
	case has("values:"):
		list = append(list, "uninitialized memory, an overflow, or a division by zero")
	case has("layers: from"):
		list = append(list, "the weights from that layer on: a wrong file offset, or another layer's "+
			"weights bound")
	case slices.ContainsFunc(where, func(w string) bool {
		return strings.HasPrefix(w, "layers:") && strings.Contains(w, "alone")
	}):
		list = append(list, "that layer's own weights or buffers: another layer's are bound, or a "+
			"launch is missing")
	}
	switch {
	case strings.HasSuffix(kind, "_rope"): // low frequencies hide the error in some columns
	case has("columns: the tail"):
		list = append(list, "the edge of a tile: the last columns have their own code path, or are "+
			"missing")
	case has("columns: one in"):
		list = append(list, "the edge of every tile: its last column, or its first")
	case has("columns: blocks"):
		list = append(list, "the mapping of heads or tiles")
	case has("columns:"):
		list = append(list, "one tile, or one block of the weights")
	}
	switch place := has("positions: from") || has("positions: all, growing"); {
	case has("positions: those from"):
		list = append(list, "the kernels of single rows, which decode uses")
	case has("positions: the first "):
		list = append(list, "the kernels of many rows, which prefill uses")
	case has("positions: rows "):
		list = append(list, "some rows of a pass: a tile of rows, or the remainder after whole tiles")
	case has("positions: all but the first") && kind != "attn.core" &&
		!strings.HasSuffix(kind, "_rope"):
		list = append(list, "rows are permuted: only the first is in its place")
	case place && kind == "attn.core":
		list = append(list, "the KV cache or the mask")
	case place:
		list = append(list, "the rows of a later chunk or step: their offset, or a tile's edge")
	}
	switch {
	case kind == "embed.embed":
		list = append(list, "the table's rows: a wrong offset or stride, or ids that were not synced")
	case slices.Contains([]string{"attn.norm", "ffn.norm", "head.norm", "attn.q_norm", "attn.k_norm"},
		kind):
		list = append(list, "a norm: eps, its weight (missing, or another's), or the width of the "+
			"mean; for q_norm and k_norm "+
			"that is the head, not the row")
	case kind == "attn.q_rope" || kind == "attn.k_rope":
		cause := "RoPE: "
		switch {
		case has("positions: all but the first"):
			cause += "position 0 is right, so the angles are wrong rather than the offset: pairs " +
				"interleaved " +
				"instead of half-split, frequencies, scaling, or no rotation at all"
		default:
			cause += "positions off by one, pairs, or frequencies"
		}
		if other("attn.q_rope") != other("attn.k_rope") {
			cause += "; only one of q and k is affected"
		}
		list = append(list, cause)
	case kind == "attn.core":
		cause := "attention: which KV head a query head reads, the scale 1/sqrt(headDim), the mask, " +
			"or the " +
			"cache's content"
		if has("positions: all but the first") {
			cause += "; position 0 attends to itself only and is right, which points to scale, mask or " +
				"cache " +
				"rather than to the mapping of heads"
		}
		list = append(list, cause)
	case strings.HasSuffix(kind, "_bias"):
		list = append(list, "a bias that is missing, or another's")
	case kind == "ffn.act":
		list = append(list, "SiLU and product: gate and up swapped, or another activation")
	case strings.HasSuffix(kind, ".residual"):
		list = append(list, "the residual: a branch missing, or another one added")
	case kind == "head.pick":
		list = append(list, "a row other than the one picked")
	case slices.Contains(weighted, kind):
		list = append(list, "the product: which weights, their order, a truncated K, or accumulation "+
			"in too narrow a type")
	default:
		list = append(list, "the kernel of this op")
	}
	return strings.Join(list, "; ")
}
