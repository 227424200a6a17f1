package tokenizer

import "fmt"

// bpe merges bytes into tokens (Sennrich et al., arXiv 1508.07909): it repeatedly joins the pair of
// neighbours whose merge has the lowest rank, the leftmost of equals, until no pair has a merge.
type bpe struct {
	// Id of a token by its bytes, if a word that is a token skips the merges; else nil.
	words  map[string]int32
	bytes  [256]int32 // id of a single byte, or none
	merges *mergeTable
}

// none marks a byte without a token. SmolLM2 lacks some bytes that valid text never has. Like
// Hugging Face's library, bpe skips such bytes if there is no unk_token.
const none = -1

// newBPE builds the tables from the ids of tokens and the merges in the byte-level alphabet. It
// keeps words.
func newBPE(words map[string]int32, merges [][2]string, ignoreMerges bool) (*bpe, error) {
	b := &bpe{merges: newMergeTable(len(merges))}
	for i := range b.bytes {
		b.bytes[i] = none
		if id, ok := words[string([]byte{byte(i)})]; ok {
			b.bytes[i] = id
		}
	}
	var buf []byte
	for rank, m := range merges {
		var ok [5]bool
		buf, ok[0] = appendBytes(buf[:0], m[0])
		cut := len(buf)
		buf, ok[1] = appendBytes(buf, m[1])
		var left, right, joined int32
		left, ok[2] = words[string(buf[:cut])]
		right, ok[3] = words[string(buf[cut:])]
		joined, ok[4] = words[string(buf)]
		if ok != [5]bool{true, true, true, true, true} {
			return nil, fmt.Errorf("merge %d: %q, %q or %q is not in the vocabulary",
				rank, m[0], m[1], m[0]+m[1])
		}
		b.merges.add(left, right, int32(rank), joined)
	}
	if ignoreMerges {
		b.words = words
	}
	return b, nil
}

// shortWord is the length in bytes up to which every merge scans all pairs. That is a few hundred
// steps for most words and needs no heap.
const shortWord = 64

// encode appends the ids of a word to ids.
func (b *bpe) encode(ids []int32, word string) []int32 {
	if b.words != nil {
		if id, ok := b.words[word]; ok {
			return append(ids, id)
		}
	}
	if len(word) <= shortWord {
		return b.encodeShort(ids, word)
	}
	return b.encodeLong(ids, word)
}

// encodeShort keeps the tokens of a word in an array, with the merge of each token and the next.
func (b *bpe) encodeShort(ids []int32, word string) []int32 {
	var tokens, ranks, joined [shortWord]int32
	n := 0
	for i := range len(word) {
		if id := b.bytes[word[i]]; id != none {
			tokens[n] = id
			n++
		}
	}
	for i := range n - 1 {
		ranks[i], joined[i] = b.merges.find(tokens[i], tokens[i+1])
	}
	for n > 1 {
		best, at := noMerge, 0
		for i, rank := range ranks[:n-1] {
			if rank < best {
				best, at = rank, i
			}
		}
		if best == noMerge {
			break
		}
		tokens[at] = joined[at]
		n--
		copy(tokens[at+1:n], tokens[at+2:n+1])
		if at+1 < n {
			copy(ranks[at+1:n-1], ranks[at+2:n])
			copy(joined[at+1:n-1], joined[at+2:n])
			ranks[at], joined[at] = b.merges.find(tokens[at], tokens[at+1])
		}
		if at > 0 {
			ranks[at-1], joined[at-1] = b.merges.find(tokens[at-1], tokens[at])
		}
	}
	return append(ids, tokens[:n]...)
}

// symbol is a token of a long word, in a doubly linked list.
type symbol struct {
	id           int32
	prev, next   int32 // -1 at the ends
	rank, joined int32 // of the merge with the next one, or noMerge
}

// encodeLong takes O(n log n) time, so a long text without spaces stays cheap.
func (b *bpe) encodeLong(ids []int32, word string) []int32 {
	list := make([]symbol, 0, len(word))
	for i := range len(word) {
		if id := b.bytes[word[i]]; id != none {
			n := int32(len(list))
			list = append(list, symbol{id, n - 1, n + 1, noMerge, 0})
		}
	}
	if len(list) == 0 {
		return ids
	}
	list[len(list)-1].next = -1
	queue := make(mergeHeap, 0, len(list))
	for i := range len(list) - 1 {
		s := &list[i]
		if s.rank, s.joined = b.merges.find(s.id, list[i+1].id); s.rank != noMerge {
			queue = append(queue, candidate(s.rank, int32(i)))
		}
	}
	queue.order()
	look := func(at int32) {
		s := &list[at]
		if s.rank = noMerge; s.next >= 0 {
			if s.rank, s.joined = b.merges.find(s.id, list[s.next].id); s.rank != noMerge {
				queue.push(candidate(s.rank, at))
			}
		}
	}
	for len(queue) > 0 {
		c := queue.pop()
		at := int32(uint32(c))
		s := &list[at]
		if s.rank != int32(c>>32) { // outdated: one of the two was merged with another neighbour
			continue
		}
		gone := &list[s.next]
		s.id, s.next = s.joined, gone.next
		gone.rank = noMerge
		if s.next >= 0 {
			list[s.next].prev = at
		}
		look(at)
		if s.prev >= 0 {
			look(s.prev)
		}
	}
	for at := int32(0); at >= 0; at = list[at].next {
		ids = append(ids, list[at].id)
	}
	return ids
}
