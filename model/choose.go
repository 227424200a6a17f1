package model

// choice is the next pass of a prompt.
type choice struct {
	prefill int  // index in Plan.Prefill, or -1 for the decode pass
	rows    int  // of the prompt that it takes
	fresh   bool // the pass starts at position 0: what is held already is computed again
}

// choose says which pass comes next when so many positions are held and so many ids are still to come.
//
// A device that takes any rows goes on in chunks. Programs of fixed rows start at position 0, so that there are three ways on: decode the ids one by one; put them
// through a prefill pass, where nothing is held yet; or put all that is held through a prefill pass again, together with them. What does not fit a prefill pass is decoded
// afterwards. The plan's predicted costs decide; without them a prompt is prefilled, and what comes later is decoded.
func (p *Plan) choose(held, more int) choice {
	if p.Prefill[0].Rows == 0 {
		if more == 1 {
			return choice{prefill: -1, rows: 1}
		}
		return choice{prefill: 0, rows: min(more, p.Chunk)}
	}
	best, cheapest := choice{prefill: -1, rows: 1}, float64(more)*p.Decode.Cost
	known := p.Decode.Cost > 0
	total := held + more
	for i, pass := range p.Prefill {
		known = known && pass.Cost > 0
		if pass.Rows <= held {
			continue // would bring nothing new
		}
		rows := min(total, pass.Rows)
		cost := pass.Cost + float64(total-rows)*p.Decode.Cost
		if known && cost < cheapest || !known && held == 0 && more > 1 && (best.prefill < 0 || p.Prefill[best.prefill].Rows < total) {
			best, cheapest = choice{prefill: i, rows: rows, fresh: held > 0}, cost
		}
	}
	return best
}
