package tokenizer

import (
	"container/heap"
	"fmt"
	"unicode/utf8"
)

// bpe merges bytes into tokens (Sennrich et al., arXiv 1508.07909): of all pairs of neighbours the one whose merge was learned first is
// joined, the leftmost of equals, until no pair has a merge.
type bpe struct {
	ids          map[string]int32 // token, in the byte-level alphabet, to id
	bytes        [256]int32       // id of a single byte, or none
	merges       map[pair]merge
	ignoreMerges bool // a word that is a token is that token, whatever the merges say
}

type pair struct{ left, right int32 }

type merge struct{ rank, id int32 }

// none stands for a byte that the vocabulary has no token for: SmolLM2's lacks some control characters, for one. Such bytes are left out, as
// Hugging Face's library leaves them out when there is no token for the unknown.
const none = -1

// newBPE builds the tables from tokens and pairs of tokens in the byte-level alphabet.
func newBPE(ids map[string]int32, merges [][2]string, ignoreMerges bool) (*bpe, error) {
	b := &bpe{ids: ids, merges: make(map[pair]merge, len(merges)), ignoreMerges: ignoreMerges}
	for i := range 256 {
		b.bytes[i] = none
		if id, ok := ids[string(byteRunes[i])]; ok {
			b.bytes[i] = id
		}
	}
	var both []byte
	for rank, m := range merges {
		both = append(append(both[:0], m[0]...), m[1]...)
		left, ok1 := ids[m[0]]
		right, ok2 := ids[m[1]]
		joined, ok3 := ids[string(both)]
		if !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("merge %d joins %q and %q; the vocabulary lacks one of them or the result", rank, m[0], m[1])
		}
		if _, twice := b.merges[pair{left, right}]; !twice {
			b.merges[pair{left, right}] = merge{int32(rank), joined}
		}
	}
	return b, nil
}

// symbol is a token of a word that is being merged, in a doubly linked list.
type symbol struct {
	id         int32
	prev, next int32 // -1 at the ends
}

// candidate is a merge that was possible when it was found; by the time it comes off the heap a neighbour may have been merged away.
type candidate struct {
	rank, at    int32
	left, right int32
	id          int32
}

type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}

// smallWord is the length in bytes up to which looking at all pairs for every merge is faster than a heap.
const smallWord = 48

// encode appends the ids of a word.
func (b *bpe) encode(ids []int32, word string) []int32 {
	if b.ignoreMerges {
		var buf [2 * smallWord]byte // a character of the alphabet takes at most two
		text := buf[:0]
		for i := range len(word) {
			text = utf8.AppendRune(text, byteRunes[word[i]])
		}
		if id, ok := b.ids[string(text)]; ok {
			return append(ids, id)
		}
	}
	if len(word) <= smallWord {
		return b.encodeSmall(ids, word)
	}
	return b.encodeLarge(ids, word)
}

func (b *bpe) encodeSmall(ids []int32, word string) []int32 {
	start := len(ids)
	for i := range len(word) {
		if id := b.bytes[word[i]]; id != none {
			ids = append(ids, id)
		}
	}
	for {
		best, at := merge{rank: 1<<31 - 1}, -1
		for i := start; i+1 < len(ids); i++ {
			if m, ok := b.merges[pair{ids[i], ids[i+1]}]; ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			return ids
		}
		ids[at] = best.id
		ids = append(ids[:at+1], ids[at+2:]...)
	}
}

// encodeLarge takes time proportional to n log n, so that a megabyte without a space is no trap.
func (b *bpe) encodeLarge(ids []int32, word string) []int32 {
	list := make([]symbol, 0, len(word))
	for i := range len(word) {
		if id := b.bytes[word[i]]; id != none {
			n := int32(len(list))
			list = append(list, symbol{id, n - 1, n + 1})
		}
	}
	if len(list) == 0 {
		return ids
	}
	list[len(list)-1].next = -1
	var queue candidates
	look := func(at int32) {
		next := list[at].next
		if next < 0 {
			return
		}
		if m, ok := b.merges[pair{list[at].id, list[next].id}]; ok {
			heap.Push(&queue, candidate{m.rank, at, list[at].id, list[next].id, m.id})
		}
	}
	for i := range list {
		look(int32(i))
	}
	for queue.Len() > 0 {
		c := heap.Pop(&queue).(candidate)
		s := &list[c.at]
		if s.id != c.left || s.next < 0 || list[s.next].id != c.right {
			continue
		}
		dead := &list[s.next]
		dead.id = none // as a part of another, it matches no candidate any more
		s.id, s.next = c.id, dead.next
		if s.next >= 0 {
			list[s.next].prev = c.at
		}
		look(c.at)
		if s.prev >= 0 {
			look(s.prev)
		}
	}
	for at := int32(0); at >= 0; at = list[at].next {
		ids = append(ids, list[at].id)
	}
	return ids
}
