package model

import "github.com/npukit/npukit/model/plan"

// chooser selects the passes of a prompt, by the plan alone: it does not touch the device.
type chooser struct {
	plan    *plan.Plan
	fewRows int // npu.Info.FewRows: larger passes may sum in another order
}

// choice is the next pass of a prompt.
type choice struct {
	prefill int  // index in Plan.Prefill, or -1 for the decode pass
	rows    int  // rows of the prompt in the pass
	restart bool // the pass starts at position 0 and computes cached positions again
}

// choose returns the next pass if held positions are cached and more ids follow. Rows before
// position large must be computed in large passes: see [origin].
func (c chooser) choose(held, more, large int) choice {
	if c.fixed() {
		return cheapest(c.plan, held, more)
	}
	if more == 1 {
		return choice{prefill: -1, rows: 1}
	}
	rows := min(more, c.plan.Chunk)
	if left := large - held; left > 0 { // leave enough rows for the last pass to be large, too
		rows = min(c.plan.Chunk, left-(c.passes(left)-1)*c.minLarge())
	}
	return choice{prefill: 0, rows: rows}
}

// fixed reports whether the plan's programs have fixed rows.
func (c chooser) fixed() bool { return c.plan.Prefill[0].Rows > 0 }

// passes returns the least number of passes for a number of rows of a prompt.
func (c chooser) passes(rows int) int { return (rows + c.plan.Chunk - 1) / c.plan.Chunk }

// cheapest returns the next pass with programs of fixed rows.
//
// A prefill pass starts at position 0, so there are three options: decode the ids one by one;
// prefill them, if nothing is cached; or prefill the cached ids again together with them. Ids that
// do not fit the prefill pass are decoded afterwards. The plan's predicted costs decide. Without
// costs, a prompt is prefilled and later ids are decoded.
func cheapest(p *plan.Plan, held, more int) choice {
	best, least := choice{prefill: -1, rows: 1}, float64(more)*p.Decode.Cost
	known := p.Decode.Cost > 0
	total := held + more
	for i, pass := range p.Prefill {
		known = known && pass.Cost > 0
		if pass.Rows <= held {
			continue // computes no new row
		}
		rows := min(total, pass.Rows)
		cost := pass.Cost + float64(total-rows)*p.Decode.Cost
		covered := best.prefill >= 0 && p.Prefill[best.prefill].Rows >= total
		if known && cost < least || !known && held == 0 && more > 1 && !covered {
			best, least = choice{prefill: i, rows: rows, restart: held > 0}, cost
		}
	}
	return best
}

// minLarge returns the smallest number of rows of a large pass. The results of a row are the same
// in any pass of minLarge rows up to a chunk. If chunks are small, a large pass has a whole chunk.
func (c chooser) minLarge() int { return min(c.fewRows+1, c.plan.Chunk) }

// origin is the way in which the first positions of a sequence were computed: large ones in large
// passes, and then others in small passes, whose results may depend on the number of rows. With
// programs of fixed rows, large positions were computed in one prefill pass, and the next decoded
// ones one by one.
//
// Two sequences with the same ids and the same origin have bit-identical keys and values at those
// positions.
type origin struct {
	large   int
	prefill int // with fixed rows: index of the pass in Plan.Prefill, -1 if only a part of it is left
	decoded int // with fixed rows
}

// after returns the origin of a sequence with origin o and at positions after a pass of n more
// rows. prefill is the index of the pass in Plan.Prefill, or -1 for the decode pass.
func (c chooser) after(o origin, at, n, prefill int) origin {
	switch {
	case !c.fixed():
		if n >= c.minLarge() && o.large == at {
			o.large += n
		}
	case prefill >= 0:
		o = origin{large: n, prefill: prefill}
	case o.large+o.decoded == at:
		o.decoded += n
	}
	return o
}

// cut shortens the sequence to n positions.
func (o *origin) cut(n int) {
	switch {
	case n == 0:
		*o = origin{}
	case n < o.large:
		*o = origin{large: n, prefill: -1}
	default:
		o.decoded = min(o.decoded, n-o.large)
	}
}

// newOrigin returns the origin of a prompt of n ids in a new session.
func (c chooser) newOrigin(n int) origin {
	if !c.fixed() {
		last := (n-1)%c.plan.Chunk + 1
		if last >= c.minLarge() {
			last = 0
		}
		return origin{large: n - last}
	}
	first := cheapest(c.plan, 0, n)
	if first.prefill < 0 {
		return origin{decoded: n}
	}
	return origin{large: first.rows, prefill: first.prefill, decoded: n - first.rows}
}

// exact returns how many of the first common positions of a sequence with origin have are
// bit-identical to those of a sequence with origin want, and let the rest be computed as in want.
func (c chooser) exact(have, want origin, common int) int {
	if c.fixed() {
		// Rows of a prefill pass may depend on the rows after them: see value.pad.
		if have.large != want.large || have.prefill != want.prefill || common < want.large {
			return 0
		}
		return min(common, have.large+have.decoded)
	}
	n := min(common, have.large, want.large)
	for n > 0 && c.passes(want.large-n)*c.minLarge() > want.large-n {
		n--
	}
	return n
}
