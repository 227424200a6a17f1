// Package golden reads reference outputs that another implementation, such as Hugging Face's,
// computed for a model. The oracle is checked against them, and devices against both.
//
//	g, err := golden.Read("golden.safetensors")
//	if err != nil { ... }
//	s := g.Sequences[0]
//	record, ok := s.Record()                               // logits of every position, as a gate.Scorer
//	rep, err := gate.Teacher(ctx, session, record, s.IDs, thresholds)
//
// Two formats are read into the same [File].
//
// A safetensors file holds one sequence: input_ids [T] I64, logits [T, V], and optionally greedy
// [N] I64, the greedy continuation of the ids, and the residual stream: hidden.embed, hidden.0, ...
// (after each layer) and hidden.norm (after the final norm), each [T, D]. Floats are F32, F16, BF16
// or F64. The metadata field source names the implementation that computed
// them. scripts/golden.py writes such files.
//
// A JSON file is for models whose logits would fill a disk. It has prompts with the top few logits
// of each position and a greedy continuation, and a text with the likelihood of each token. For its
// fields see testdata/smollm2-135m/golden.json.
//
// Files may be hostile: every length and every id is checked.
package golden

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/readfile"
)

// File is the content of a golden file. Source names the implementation that computed it; Sequences
// has at least one element.
type File struct {
	Path      string
	Sum       string // SHA-256 of its content
	Source    string
	Sequences []Sequence
}

// Sequence is a list of ids and the outputs of the reference along it. Everything except IDs may be
// missing, but not all at once.
type Sequence struct {
	Name  string  // for people: "What is gravity?"
	Place string  // in a JSON file: "prompts[2]"; "" where the file holds one sequence
	IDs   []int32 // from position 0 on

	Logits []float32 // [len(IDs), vocab]
	Top    []Top     // [len(IDs)], if not all logits are stored
	NLL    []float64 // [len(IDs)-1] of IDs[1:], in nats; from the logits if those are stored

	Greedy []int32   // the reference's greedy continuation of IDs
	Gaps   []float64 // [len(Greedy)] between the top two logits, if stored

	// Hidden is the residual stream by tap name: "embed.embed", "layer.3.ffn.residual",
	// "head.norm", each [len(IDs), D].
	Hidden map[string][]float32
}

// Top has a position's top logits in descending order, and the log-sum-exp of all.
type Top struct {
	IDs       []int32
	Logits    []float64
	LogSumExp float64
}

// maxFile bounds the size of a file: 8 GiB hold the logits of 14,000 positions of the largest
// vocabulary.
const maxFile = 8 << 30

// Read reads a golden file of either format, detected from its content, or one that [BuiltIn]
// names. It returns a [formatError] for bad content.
func Read(path string) (*File, error) {
	read := func(path string) ([]byte, error) { return readfile.Regular(path, maxFile) }
	if IsBuiltIn(path) {
		read = builtInData
	}
	data, err := read(path)
	if errors.Is(err, readfile.ErrTooLarge) {
		err = fmt.Errorf("%w: store fewer positions", err)
	}
	if err != nil {
		return nil, fmt.Errorf("golden: %w", err)
	}
	f, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("golden: %s: %w", path, err)
	}
	sum := sha256.Sum256(data)
	f.Path, f.Sum = path, hex.EncodeToString(sum[:])
	return f, nil
}

// parse reads the content of a golden file of either form.
func parse(data []byte) (*File, error) {
	form := parseSafetensors
	if looksLikeJSON(data) {
		form = parseJSON
	}
	f, err := form(data)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// looksLikeJSON distinguishes the formats: the first bytes of JSON, read as the header length of a
// safetensors file, exceed any file.
func looksLikeJSON(data []byte) bool {
	text := bytes.TrimLeft(data[:min(64, len(data))], " \t\r\n")
	return len(text) > 0 && text[0] == '{' && (len(data) < 8 ||
		binary.LittleEndian.Uint64(data) > maxFile)
}

// maxID bounds ids: about ten times the largest vocabulary.
const maxID = 1 << 21

// check checks the requirements of both formats.
func (f *File) check() error {
	if len(f.Sequences) == 0 {
		return fmt.Errorf("no sequence: want prompts or a text")
	}
	for i := range f.Sequences {
		if err := f.Sequences[i].check(); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	return nil
}

func (s *Sequence) check() error {
	n := len(s.IDs)
	switch {
	case n == 0:
		return fmt.Errorf("no input_ids")
	case s.Logits == nil && s.Top == nil && s.NLL == nil && s.Greedy == nil:
		return fmt.Errorf("nothing but input_ids: want logits, top_ids, nll or greedy")
	case s.Top != nil && len(s.Top) != n:
		return fmt.Errorf("top_ids has %d positions for %d ids", len(s.Top), n)
	case s.NLL != nil && len(s.NLL) != n-1:
		return fmt.Errorf("nll has %d values for %d ids: want one per id except the first", len(s.NLL), n)
	case s.Gaps != nil && len(s.Gaps) != len(s.Greedy):
		return fmt.Errorf("greedy_top2_gap has %d values for %d greedy tokens", len(s.Gaps),
			len(s.Greedy))
	}
	limit := int32(maxID)
	if s.Logits != nil {
		limit = int32(s.Vocab())
	}
	for _, list := range [][]int32{s.IDs, s.Greedy} {
		for i, id := range list {
			if id < 0 || id >= limit {
				return fmt.Errorf("id %d at %d is outside the vocabulary of %d", id, i, limit)
			}
		}
	}
	for i, v := range s.Logits {
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("a logit of position %d is %v: the reference is broken", i/s.Vocab(), v)
		}
	}
	sum := 0.0
	for i, v := range s.NLL {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("nll %d is %v, want a finite number >= 0", i, v)
		}
		sum += v
	}
	if len(s.NLL) > 0 && sum == 0 {
		return fmt.Errorf("nll is 0 everywhere: no reference is certain of every token")
	}
	for pos, top := range s.Top {
		if err := top.check(); err != nil {
			return fmt.Errorf("position %d: %w", pos, err)
		}
	}
	return nil
}

func (t Top) check() error {
	if len(t.IDs) < 2 || len(t.Logits) != len(t.IDs) {
		return fmt.Errorf("%d top_ids and %d top_logits: want equally many, at least two", len(t.IDs),
			len(t.Logits))
	}
	for i, id := range t.IDs {
		switch v := t.Logits[i]; {
		case id < 0 || id >= maxID:
			return fmt.Errorf("top_ids has %d", id)
		case i > 0 && !(v <= t.Logits[i-1]):
			return fmt.Errorf("top_logits are not in descending order")
		case !(v <= t.LogSumExp): // NaN too
			return fmt.Errorf("a top logit is %v, above the logsumexp %v", v, t.LogSumExp)
		}
	}
	if math.IsInf(t.LogSumExp, 0) {
		return fmt.Errorf("the logsumexp is infinite")
	}
	sum, seen := 0.0, map[int32]bool{}
	for i, id := range t.IDs {
		if seen[id] {
			return fmt.Errorf("top_ids has %d twice", id)
		}
		seen[id] = true
		d := t.Logits[i] - t.LogSumExp
		if math.IsInf(d, 0) {
			return fmt.Errorf("a top logit is %v and the logsumexp %v: too far apart", t.Logits[i],
				t.LogSumExp)
		}
		sum += math.Exp(d)
	}
	if sum > 1.01 { // logits are stored with five digits
		return fmt.Errorf("the probabilities of top_logits sum up to %.3g", sum)
	}
	return nil
}

// Vocab returns the number of logits per position; 0 if none are stored.
func (s *Sequence) Vocab() int { return len(s.Logits) / max(1, len(s.IDs)) }

// Record returns the stored logits as a scorer, and whether there are any.
func (s *Sequence) Record() (gate.Recorded, bool) {
	return gate.Recorded{IDs: s.IDs, Logits: s.Logits}, s.Logits != nil
}
