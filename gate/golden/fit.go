package golden

import (
	"fmt"
	"strings"
)

// Model has the dimensions that a golden file must fit.
type Model struct {
	Vocab, Hidden, Layers int
	SeqLen                int // positions of a session
}

// Fits reports whether a session of n positions can show something that the sequence has.
func (s *Sequence) Fits(n int) bool {
	room := n - len(s.IDs)
	return room >= 0 && (s.Logits != nil || s.Top != nil || s.NLL != nil) || room > 0 && len(s.Greedy) > 0
}

// Check returns an error that names the field if the file cannot be of the model, or if none of its
// sequences fits in a session. It cannot tell whether the reference
// had the same weights.
func (f *File) Check(m Model) error {
	shortest, fits := len(f.Sequences[0].IDs), false
	for i := range f.Sequences {
		s := &f.Sequences[i]
		if err := s.checkModel(m); err != nil {
			return fmt.Errorf("golden: %s: %w: is it a golden file of another model?", f.Path, err)
		}
		shortest = min(shortest, len(s.IDs))
		fits = fits || s.Fits(m.SeqLen)
	}
	if !fits {
		return fmt.Errorf("golden: %s: input_ids has %d ids or more, and a session has %d positions: want a "+
			"longer session, "+
			"or a shorter text in the golden file (scripts/golden.py makes one)", f.Path, shortest, m.SeqLen)
	}
	return nil
}

func (s *Sequence) checkModel(m Model) error {
	if s.Logits != nil && s.Vocab() != m.Vocab {
		return fmt.Errorf("%s: rows of %d logits, and the model has a vocabulary of %d", s.field("logits"),
			s.Vocab(), m.Vocab)
	}
	for name, ids := range map[string][]int32{"input_ids": s.IDs, "greedy": s.Greedy} {
		for i, id := range ids {
			if int(id) >= m.Vocab {
				return fmt.Errorf("%s[%d]: id %d, and the model has a vocabulary of %d", s.field(name), i, id, m.Vocab)
			}
		}
	}
	for pos, top := range s.Top {
		for _, id := range top.IDs {
			if int(id) >= m.Vocab {
				return fmt.Errorf("%s[%d]: id %d, and the model has a vocabulary of %d", s.field("top_ids"), pos, id,
					m.Vocab)
			}
		}
	}
	for tap, rows := range s.Hidden {
		name := hiddenName(tap)
		if width := len(rows) / len(s.IDs); width != m.Hidden {
			return fmt.Errorf("%s: rows of %d values, and the model's hidden size is %d", name, width, m.Hidden)
		}
		var layer int
		if _, err := fmt.Sscanf(tap, "layer.%d.", &layer); err == nil && layer >= m.Layers {
			return fmt.Errorf("%s: the model has %d layers", name, m.Layers)
		}
	}
	return nil
}

// field is the name of one of the sequence's fields in its file.
func (s *Sequence) field(name string) string {
	if s.Place == "" {
		return name
	}
	return s.Place + "." + name
}

// hiddenName is the array's name in a file: the inverse of tapOf.
func hiddenName(tap string) string {
	switch tap {
	case "embed.embed":
		return "hidden.embed"
	case "head.norm":
		return "hidden.norm"
	}
	return "hidden." + strings.TrimSuffix(strings.TrimPrefix(tap, "layer."), ".ffn.residual")
}
