package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// added is a token that is found in the text before the text is split.
type added struct {
	content                    string
	id                         int32
	lstrip, rstrip, singleWord bool

	// blank is a token of white space alone that is not special, for example the runs of line feeds
	// in some vocabularies. It counts as ordinary text, so it is found inside plain spans too.
	blank bool
}

// matcher finds added tokens from left to right, the longest at each position. It is a trie of the
// tokens' bytes, so the cost of a position does not depend on the number of tokens.
type matcher struct {
	tokens []added
	nodes  []matchNode // the root is the first
	start  [256]int32  // the root's children by byte; 0 is none
}

// matchNode is a prefix of tokens. Its children are a linked list.
type matchNode struct {
	token       int32 // the token that ends here, or none
	child, next int32 // 0 is none, because the root is no child
	b           byte
}

// Bounds on the added tokens, whose trie takes 16 bytes per byte of text. Published tokens have up
// to 60 bytes each and 100 KB in total.
const (
	maxAddedLength = 1 << 10
	maxAddedBytes  = 4 << 20
)

// newMatcher builds the trie. Of two tokens with the same text it keeps the first.
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

// child returns the child of a node for b. It adds the child if there is none.
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

// step returns the child of a node for b, or 0.
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

// cut splits a text at the added tokens and calls emit for each piece in order: an added token with
// its id, or the text between tokens with -1. at is the position of the piece.
//
// A token is found only if none of its own bytes is in a span of plain, unless it is blank. The
// white space that it strips may be in a span.
//
// The search continues after the token's own text, even if the token must be a separate word and is
// not, or strips the following white space. A second token in that white space is emitted too, as
// in Hugging Face's library.
func (m *matcher) cut(text string, plain []Span, emit func(piece string, at int, id int32)) {
	start := 0  // of the text that is not emitted yet
	blanks := 0 // end of the white space that the last token stripped
	cursor := spanCursor(plain)
	for i := 0; i < len(text) && len(m.tokens) > 0; {
		a, ok := m.at(text[i:], cursor.free(i, len(text)))
		if !ok {
			i++
			continue
		}
		from, to := i, i+len(a.content)
		i = to
		// The longest match counts, even if it then turns out not to be a separate word.
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

// at returns the longest token at the start of text that is within the first free bytes or blank.
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
