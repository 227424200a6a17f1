package model

import "github.com/npukit/npukit/model/plan"

// choice is the next pass of a prompt.
type choice struct {
	prefill int  // index in Plan.Prefill, or -1 for the decode pass
	rows    int  // of the prompt that it takes
	fresh   bool // the pass starts at position 0: what is held already is computed again
}

// choose returns the next pass when held positions are in the cache and more ids are to come. Rows
// before position many are to be computed in passes of many rows: see [origin].
func (e *executor) choose(held, more, many int) choice {
	if e.fixed() {
		return cheapest(e.plan, held, more)
	}
	if more == 1 {
		return choice{prefill: -1, rows: 1}
	}
	rows := min(more, e.plan.Chunk)
	if left := many - held; left > 0 { // divided so that the last pass is of many rows, too
		rows = min(e.plan.Chunk, left-(e.passes(left)-1)*e.leastMany())
	}
	return choice{prefill: 0, rows: rows}
}

// fixed reports whether the plan's programs have fixed rows.
func (e *executor) fixed() bool { return e.plan.Prefill[0].Rows > 0 }

// passes is the least number of passes that rows of a prompt need.
func (e *executor) passes(rows int) int { return (rows + e.plan.Chunk - 1) / e.plan.Chunk }

// cheapest returns the next pass with programs of fixed rows.
//
// A prefill pass starts at position 0, so there are three ways on: decode the ids one by one; put
// them through a prefill pass if nothing is held yet; or put all that is held through a prefill pass
// again, together with them. What does not fit a prefill pass is decoded afterwards. The plan's
// predicted costs decide; without them a prompt is prefilled, and what comes later is decoded.
func cheapest(p *plan.Plan, held, more int) choice {
	best, least := choice{prefill: -1, rows: 1}, float64(more)*p.Decode.Cost
	known := p.Decode.Cost > 0
	total := held + more
	for i, pass := range p.Prefill {
		known = known && pass.Cost > 0
		if pass.Rows <= held {
			continue // would bring nothing new
		}
		rows := min(total, pass.Rows)
		cost := pass.Cost + float64(total-rows)*p.Decode.Cost
		covered := best.prefill >= 0 && p.Prefill[best.prefill].Rows >= total
		if known && cost < least || !known && held == 0 && more > 1 && !covered {
			best, least = choice{prefill: i, rows: rows, fresh: held > 0}, cost
		}
	}
	return best
}

// leastMany is the least number of rows of a pass of many rows, which a prompt is read in. Its rows
// have the same results in any pass of so many rows, up to a chunk. If chunks are small, many rows
// are a whole chunk.
func (e *executor) leastMany() int { return min(e.fewRows+1, e.plan.Chunk) }

// origin tells how the first positions of a sequence were computed: many positions in passes of many
// rows, after which come passes of few rows, whose results may depend on their number. With programs
// of fixed rows, many positions were computed in one prefill pass, and the next decoded ones one by
// one.
//
// Two sequences with the same ids and the same origin have the same keys and values there, to the
// bit.
type origin struct {
	many    int
	prefill int // with fixed rows: index in Plan.Prefill of that pass, -1 if not all of it is left
	decoded int // with fixed rows
}

// after returns the origin of a sequence of origin o and at positions, after a pass of n more rows.
// Prefill is the pass's index in Plan.Prefill, or -1 for the decode pass.
func (e *executor) after(o origin, at, n, prefill int) origin {
	switch {
	case !e.fixed():
		if n >= e.leastMany() && o.many == at {
			o.many += n
		}
	case prefill >= 0:
		o = origin{many: n, prefill: prefill}
	case o.many+o.decoded == at:
		o.decoded += n
	}
	return o
}

// cut shortens the sequence to n positions.
func (o *origin) cut(n int) {
	switch {
	case n == 0:
		*o = origin{}
	case n < o.many:
		*o = origin{many: n, prefill: -1}
	default:
		o.decoded = min(o.decoded, n-o.many)
	}
}

// newOrigin returns the origin that a prompt of n ids has in a new session.
func (e *executor) newOrigin(n int) origin {
	if !e.fixed() {
		last := (n-1)%e.plan.Chunk + 1
		if last >= e.leastMany() {
			last = 0
		}
		return origin{many: n - last}
	}
	c := cheapest(e.plan, 0, n)
	if c.prefill < 0 {
		return origin{decoded: n}
	}
	return origin{many: c.rows, prefill: c.prefill, decoded: n - c.rows}
}

// exact returns how many of the first common positions of a sequence of origin have are, to the bit,
// those of a sequence of origin want, and allow the rest to be computed as want says.
func (e *executor) exact(have, want origin, common int) int {
	if e.fixed() {
		// Rows of a prefill pass may depend on the rows after them: see value.pad.
		if have.many != want.many || have.prefill != want.prefill || common < want.many {
			return 0
		}
		return min(common, have.many+have.decoded)
	}
	n := min(common, have.many, want.many)
	for n > 0 && e.passes(want.many-n)*e.leastMany() > want.many-n {
		n--
	}
	return n
}
