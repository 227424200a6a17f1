package gates

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/npukit/npukit/skill/internal/journal"
)

// PartsFrom is how long a part of a gate must take to be recorded.
const PartsFrom = 5 * time.Second

// parts records the parts of a gate that is running.
type parts struct {
	runner *Runner
	phase  journal.Phase
	gate   string // key of the gate
}

// take adds the verdict of a part to the verdict of its gate. A part that passed before, in this
// attempt at the phase, is not computed again.
func (bench *Bench) take(c *Checks, part string, compute func() (Verdict, error)) error {
	p := bench.parts
	if p != nil {
		if n, ok := p.runner.Log.State.Part(p.phase, p.gate, part); ok {
			c.take(part, partVerdict(n))
			return nil
		}
	}
	began := time.Now()
	v, err := compute()
	if err != nil {
		return err
	}
	c.take(part, v)
	took := time.Since(began)
	if p == nil || !v.OK() || took < p.runner.PartsFrom {
		return nil
	}
	n := journal.PartNote{Gate: p.gate, Part: part, Seconds: took.Seconds()}
	n.Line, n.Figures, n.Bounds = Describe(v)
	return p.runner.Log.Append(journal.KindPart, p.phase, n)
}

// partVerdict is the verdict of a part that passed before.
type partVerdict journal.PartNote

func (partVerdict) OK() bool         { return true }
func (partVerdict) Err() error       { return nil }
func (p partVerdict) String() string { return fmt.Sprintf("PASS %s: %s\n", p.Part, p.Line) }

// MarshalJSON writes the note for programs.
func (p partVerdict) MarshalJSON() ([]byte, error) { return json.Marshal(journal.PartNote(p)) }
