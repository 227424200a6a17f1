package tokenizer

import (
	"fmt"
	"slices"
	"strings"
)

// parts are the components of a tokenizer, independent of the file format.
type parts struct {
	vocab        []entry
	merges       [][2]string // in the byte-level alphabet
	ignoreMerges bool
	unknown      bool // the model has an unk_token
	added        []addedToken
	nfc          bool
	splits       []splitter // each splits the words of the previous one
	prefix       []int32
	suffix       []int32
}

// entry is a token of the vocabulary, in the byte-level alphabet.
type entry struct {
	token string
	id    int32
}

// maxGap bounds the number of ids without a token, so that a hostile id cannot cause a huge
// allocation.
const maxGap = 1 << 16

func (p *parts) build() (*byteLevel, error) {
	t := &byteLevel{nfc: p.nfc, split: chain(p.splits), prefix: p.prefix, suffix: p.suffix, added: map[string]int32{},
		cache: newWordCache()}
	size, err := p.size()
	if err != nil {
		return nil, err
	}
	t.tokens = make([]string, size)
	t.known = make([]bool, size)
	t.special = make([]bool, size)
	t.words = make(map[string]int32, len(p.vocab))
	for _, e := range p.vocab {
		if t.known[e.id] {
			return nil, fmt.Errorf("tokens %q and %q have the same id %d", e.token, t.tokens[e.id], e.id)
		}
		text, ok := decodeBytes(e.token)
		ids := t.words
		if !ok {
			ids = t.added
		}
		if first, twice := ids[text]; twice {
			return nil, fmt.Errorf("token %q has two ids, %d and %d", e.token, first, e.id)
		}
		ids[text] = e.id
		t.tokens[e.id], t.known[e.id] = text, true
	}
	if t.bpe, err = newBPE(t.words, p.merges, p.ignoreMerges); err != nil {
		return nil, err
	}
	if p.unknown && slices.Contains(t.bpe.bytes[:], none) {
		return nil, &UnsupportedError{"an unk_token with a vocabulary that lacks some bytes"}
	}
	if err := t.add(p.added); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(p.prefix, p.suffix) {
		if _, ok := t.Token(id); !ok {
			return nil, fmt.Errorf("id %d, which the post-processor adds, has no token", id)
		}
	}
	return t, nil
}

// size returns the number of ids, from 0 to the largest.
func (p *parts) size() (int, error) {
	limit := len(p.vocab) + len(p.added) + maxGap
	size := 0
	check := func(token string, id int32) error {
		if id < 0 || int(id) >= limit {
			return fmt.Errorf("token %q has the id %d, which is out of range: there are only %d tokens", token, id,
				len(p.vocab)+len(p.added))
		}
		size = max(size, int(id)+1)
		return nil
	}
	for _, e := range p.vocab {
		if err := check(e.token, e.id); err != nil {
			return 0, err
		}
	}
	for _, a := range p.added {
		if err := check(a.Content, a.ID); err != nil {
			return 0, err
		}
		if a.Content == "" {
			return 0, errEmpty(a.ID)
		}
	}
	return size, nil
}

// add adds the added tokens. One may repeat a token of the vocabulary under the same id.
func (t *byteLevel) add(list []addedToken) error {
	var before, after []added
	for _, a := range list {
		text, _ := decodeBytes(a.Content)
		if id, ok := t.ID(a.Content); ok && id != a.ID {
			return fmt.Errorf("token %q has two ids, %d and %d", a.Content, id, a.ID)
		} else if !ok && t.known[a.ID] {
			return fmt.Errorf("the added token %q has the id %d of token %q", a.Content, a.ID, t.tokens[a.ID])
		}
		t.added[a.Content] = a.ID
		t.tokens[a.ID], t.known[a.ID], t.special[a.ID] = text, true, t.special[a.ID] || a.Special
		blank := !a.Special && strings.TrimSpace(a.Content) == ""
		entry := added{a.Content, a.ID, a.LStrip, a.RStrip, a.SingleWord, blank}
		if !a.Normalized {
			before = append(before, entry)
			continue
		}
		if t.nfc {
			entry.content = nfc(entry.content)
		}
		after = append(after, entry)
	}
	var err error
	if t.before, err = newMatcher(before); err == nil {
		t.after, err = newMatcher(after)
	}
	return err
}
