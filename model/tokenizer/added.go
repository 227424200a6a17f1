package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// added is a token that is found in the text before any splitting.
type added struct {
	content                    string
	id                         int32
	lstrip, rstrip, singleWord bool
}

// matcher finds added tokens: at each position the longest, from left to right.
type matcher struct {
	first [256][]added // by first byte, longest first
	none  bool
}

func newMatcher(tokens []added) *matcher {
	m := &matcher{none: len(tokens) == 0}
	for _, a := range tokens {
		b := a.content[0]
		m.first[b] = append(m.first[b], a)
	}
	for _, list := range m.first {
		slices.SortStableFunc(list, func(a, b added) int { return len(b.content) - len(a.content) })
	}
	return m
}

// cut gives the pieces of a text: an added token with its id, or what lies between with -1.
//
// The search goes on behind a token's own text, also where a token that has to be a word of its own was passed over, and where one takes
// white space with it: should a token lie in that white space, both are given, as Hugging Face's library does.
func (m *matcher) cut(text string, emit func(piece string, id int32)) {
	start := 0 // of the text not yet given
	for i := 0; i < len(text) && !m.none; {
		a, ok := m.at(text[i:])
		if !ok {
			i++
			continue
		}
		from, to := i, i+len(a.content)
		i = to
		// Of several that match the longest counts, even where it then turns out not to be a word of its own.
		if a.singleWord && (wordBefore(text[:from]) || wordAfter(text[to:])) {
			continue
		}
		if a.lstrip {
			from = max(start, len(strings.TrimRightFunc(text[:from], unicode.IsSpace)))
		}
		if a.rstrip {
			to = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
		}
		if from > start {
			emit(text[start:from], -1)
		}
		emit(text[min(from, to):to], a.id)
		start = to
	}
	if start < len(text) {
		emit(text[start:], -1)
	}
}

// at is the longest token that text begins with.
func (m *matcher) at(text string) (added, bool) {
	for _, a := range m.first[text[0]] {
		if strings.HasPrefix(text, a.content) {
			return a, true
		}
	}
	return added{}, false
}

func wordBefore(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func wordAfter(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}
