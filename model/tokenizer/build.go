package tokenizer

import (
	"fmt"
	"slices"
)

// parts is what a tokenizer is made of, wherever it was read.
type parts struct {
	vocab        map[string]int32 // in the byte-level alphabet
	merges       [][2]string
	ignoreMerges bool
	added        []addedToken
	nfc          bool
	splits       []splitter // each cuts the words of the one before
	prefix       []int32
	suffix       []int32
}

// maxID bounds ids, so that a hostile one does not make a huge table.
const maxID = 1 << 24

func (p *parts) build() (*Tokenizer, error) {
	t := &Tokenizer{nfc: p.nfc, prefix: p.prefix, suffix: p.suffix}
	largest := int32(-1)
	check := func(token string, id int32) error {
		if id < 0 || id > maxID {
			return fmt.Errorf("tokenizer: token %q has id %d, want 0 to %d", token, id, maxID)
		}
		largest = max(largest, id)
		return nil
	}
	for token, id := range p.vocab {
		if err := check(token, id); err != nil {
			return nil, err
		}
	}
	for _, a := range p.added {
		if err := check(a.Content, a.ID); err != nil {
			return nil, err
		}
		if a.Content == "" {
			return nil, fmt.Errorf("tokenizer: added token %d is empty", a.ID)
		}
	}
	for _, id := range slices.Concat(p.prefix, p.suffix) {
		if id < 0 || id > largest {
			return nil, fmt.Errorf("tokenizer: id %d is put around the text, and is no token", id)
		}
	}
	t.tokens = make([]string, largest+1)
	t.known = make([]bool, largest+1)
	t.special = make([]bool, largest+1)
	t.ids = p.vocab
	for token, id := range p.vocab {
		if t.known[id] {
			return nil, fmt.Errorf("tokenizer: tokens %q and %q have the same id %d", token, t.tokens[id], id)
		}
		t.tokens[id], t.known[id] = string(decodeBytes(token)), true
	}
	var err error
	if t.bpe, err = newBPE(p.vocab, p.merges, p.ignoreMerges); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if err := t.add(p.added); err != nil {
		return nil, err
	}
	t.split = chain(p.splits)
	return t, nil
}

// add enters the added tokens. One may repeat a token of the vocabulary, under the same id.
func (t *Tokenizer) add(list []addedToken) error {
	var before, after []added
	for _, a := range list {
		if id, ok := t.ids[a.Content]; ok && id != a.ID {
			return fmt.Errorf("tokenizer: token %q has the ids %d and %d", a.Content, id, a.ID)
		}
		if _, ok := t.ids[a.Content]; !ok && t.known[a.ID] {
			return fmt.Errorf("tokenizer: added token %q has the id %d of token %q", a.Content, a.ID, t.tokens[a.ID])
		}
		t.ids[a.Content] = a.ID
		t.tokens[a.ID], t.known[a.ID] = string(decodeBytes(a.Content)), true
		t.special[a.ID] = a.Special
		entry := added{a.Content, a.ID, a.LStrip, a.RStrip, a.SingleWord}
		if a.Normalized && t.nfc {
			after = append(after, entry)
		} else {
			before = append(before, entry)
		}
	}
	t.before, t.after = newMatcher(before), newMatcher(after)
	return nil
}

// chain makes one splitter of several, each cutting the words of the one before.
func chain(splits []splitter) splitter {
	switch len(splits) {
	case 0:
		return func(text string, emit func(string)) {
			if text != "" {
				emit(text)
			}
		}
	case 1:
		return splits[0]
	}
	first, rest := splits[0], chain(splits[1:])
	return func(text string, emit func(string)) {
		first(text, func(word string) { rest(word, emit) })
	}
}
