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
	first map[byte][]added // by first byte, longest first
	any   string           // the first bytes, to skip what cannot begin a token
}

func newMatcher(tokens []added) *matcher {
	m := &matcher{first: map[byte][]added{}}
	for _, a := range tokens {
		if _, seen := m.first[a.content[0]]; !seen {
			m.any += a.content[:1]
		}
		m.first[a.content[0]] = append(m.first[a.content[0]], a)
	}
	for _, list := range m.first {
		slices.SortStableFunc(list, func(a, b added) int { return len(b.content) - len(a.content) })
	}
	return m
}

// cut gives the pieces of a text: an added token with its id, or what lies between with -1.
func (m *matcher) cut(text string, emit func(piece string, id int32)) {
	start := 0 // of the text not yet given
	for i := 0; i < len(text); {
		if len(m.any) == 0 {
			break
		}
		if strings.IndexByte(m.any, text[i]) < 0 {
			i++
			continue
		}
		a, ok := m.at(text, i)
		if !ok {
			i++
			continue
		}
		from, to := i, i+len(a.content)
		if a.lstrip {
			from = start + len(strings.TrimRightFunc(text[start:from], unicode.IsSpace))
		}
		if a.rstrip {
			to = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
		}
		if from > start {
			emit(text[start:from], -1)
		}
		emit(text[from:to], a.id)
		start, i = to, to
	}
	if start < len(text) {
		emit(text[start:], -1)
	}
}

func (m *matcher) at(text string, i int) (added, bool) {
	for _, a := range m.first[text[i]] {
		if !strings.HasPrefix(text[i:], a.content) {
			continue
		}
		// Of several that match the longest counts, even where it then turns out not to be a word of its own.
		if a.singleWord && (wordBefore(text[:i]) || wordAfter(text[i+len(a.content):])) {
			return added{}, false
		}
		return a, true
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

// isWord is \w of Unicode regular expressions.
func isWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Pc, r)
}
