package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// added is a token that is found in the text before any splitting.
type added struct {
	content                    string
	id                         int32
	lstrip, rstrip, singleWord bool

	// blank is a token of white space alone that is not special, such as the runs of line feeds of
	// some vocabularies. It is ordinary text, so it is found inside plain spans too.
	blank bool
}

// matcher finds added tokens: at each position the longest, from left to right. It is a tree of
// their bytes, so that a step costs no more than the text has in common with any token, however
// many there are.
type matcher struct {
	tokens []added
	nodes  []matchNode // the root is the first
	start  [256]int32  // the root's children by byte; 0 is none
}

// matchNode is a beginning of tokens. Its children are a list.
type matchNode struct {
	token       int32 // the one that ends here, or none
	child, next int32 // 0 is none, as the root is nobody's child
	b           byte
}

// Bounds on the added tokens, whose tree takes 16 bytes for each of theirs: the published ones are
// up to 60 bytes long, and 100 KB together.
const (
	maxAddedLength = 1 << 10
	maxAddedBytes  = 4 << 20
)

// newMatcher makes the tree. Of two tokens with the same text the first is found.
func newMatcher(tokens []added) (*matcher, error) {
	m := &matcher{tokens: tokens, nodes: []matchNode{{token: none}}}
	total := 0
	for i, a := range tokens {
		total += len(a.content)
		if len(a.content) > maxAddedLength || total > maxAddedBytes {
			return nil, &UnsupportedError{fmt.Sprintf("an added token of more than %d KB, or %d MB of them,",
				maxAddedLength>>10, maxAddedBytes>>20)}
		}
		at := int32(0)
		for j := range len(a.content) {
			at = m.child(at, a.content[j])
		}
		if m.nodes[at].token == none {
			m.nodes[at].token = int32(i)
		}
	}
	return m, nil
}

// child is the node behind a byte, which is made where there is none.
func (m *matcher) child(at int32, b byte) int32 {
	if c := m.step(at, b); c != 0 {
		return c
	}
	c := int32(len(m.nodes))
	m.nodes = append(m.nodes, matchNode{token: none, next: m.nodes[at].child, b: b})
	m.nodes[at].child = c
	if at == 0 {
		m.start[b] = c
	}
	return c
}

// step is the node behind a byte, or 0.
func (m *matcher) step(at int32, b byte) int32 {
	if at == 0 {
		return m.start[b]
	}
	c := m.nodes[at].child
	for c != 0 && m.nodes[c].b != b {
		c = m.nodes[c].next
	}
	return c
}

// cut calls emit with the pieces of a text, in order: an added token with its id, or what lies
// between with -1. At is where the piece begins.
//
// A token is found only where none of its own bytes lie in a span of plain, unless it is blank. The
// white space that it takes with it may lie there.
//
// The search goes on behind a token's own text, also where a token that has to be a word of its own
// was passed over, and where one takes white space with it: should a token lie in that white space,
// both are given, as Hugging Face's library does.
func (m *matcher) cut(text string, plain []Span, emit func(piece string, at int, id int32)) {
	start := 0  // of the text not yet given
	blanks := 0 // end of the white space that a token took last
	cursor := spanCursor(plain)
	for i := 0; i < len(text) && len(m.tokens) > 0; {
		a, ok := m.at(text[i:], cursor.free(i, len(text)))
		if !ok {
			i++
			continue
		}
		from, to := i, i+len(a.content)
		i = to
		// Of several that match the longest counts, even where it then turns out not to be a word
		// of its own.
		if a.singleWord && (wordBefore(text[:from]) || wordAfter(text[to:])) {
			continue
		}
		if a.lstrip {
			from = start + len(strings.TrimRightFunc(text[start:max(start, from)], unicode.IsSpace))
		}
		if a.rstrip {
			if blanks < to {
				blanks = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
			}
			to = blanks
		}
		if from > start {
			emit(text[start:from], start, -1)
		}
		from = min(from, to)
		emit(text[from:to], from, a.id)
		start = to
	}
	if start < len(text) {
		emit(text[start:], start, -1)
	}
}

// at returns the longest token that text begins with: one within the first free bytes, or a blank
// one.
func (m *matcher) at(text string, free int) (*added, bool) {
	found, at := int32(none), int32(0)
	for i := range len(text) {
		if at = m.step(at, text[i]); at == 0 {
			break
		}
		if t := m.nodes[at].token; t != none && (i < free || m.tokens[t].blank) {
			found = t
		}
	}
	if found == none {
		return nil, false
	}
	return &m.tokens[found], true
}

func wordBefore(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func wordAfter(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}
