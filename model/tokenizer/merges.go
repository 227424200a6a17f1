package tokenizer

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// mergeTable maps pairs of ids to their merge. It is a hash table with open addressing and 16-byte
// slots, because encoding spends most of its time in find.
type mergeTable struct {
	slots []mergeSlot
	shift int
	// multiplier hashes the keys (multiply-shift, Dietzfelbinger et al. 1997). It is random, so
	// that no file can force collisions.
	multiplier uint64
}

type mergeSlot struct {
	left, right int32
	id          int32
	place       int32 // rank + 1, or 0 in an empty slot
}

// noMerge is the rank of a pair without a merge.
const noMerge = int32(math.MaxInt32)

func newMergeTable(merges int) *mergeTable {
	size := max(bits.Len(uint(merges+merges/2)), 1) // at most two thirds full
	return &mergeTable{slots: make([]mergeSlot, 1<<size), shift: 64 - size, multiplier: rand.Uint64() | 1}
}

func (t *mergeTable) slot(left, right int32) *mergeSlot {
	i := (uint64(uint32(left))<<32 | uint64(uint32(right))) * t.multiplier >> t.shift
	for {
		s := &t.slots[i]
		if s.place == 0 || s.left == left && s.right == right {
			return s
		}
		i = (i + 1) & uint64(len(t.slots)-1)
	}
}

// add adds a merge. A later merge of the same pair replaces the earlier one, as in Hugging Face's
// library.
func (t *mergeTable) add(left, right, rank, id int32) {
	*t.slot(left, right) = mergeSlot{left, right, id, rank + 1}
}

// find returns the rank and the result of a merge, or noMerge.
func (t *mergeTable) find(left, right int32) (rank, id int32) {
	s := t.slot(left, right)
	if s.place == 0 {
		return noMerge, 0
	}
	return s.place - 1, s.id
}

// mergeHeap is a priority queue of possible merges: rank in the upper half, position in the lower,
// least first. container/heap would box each into an interface.
type mergeHeap []uint64

func candidate(rank, at int32) uint64 { return uint64(rank)<<32 | uint64(uint32(at)) }

// order establishes the heap order.
func (h mergeHeap) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *mergeHeap) push(c uint64) {
	*h = append(*h, c)
	q := *h
	i := len(q) - 1
	for i > 0 && q[(i-1)/2] > c {
		q[i] = q[(i-1)/2]
		i = (i - 1) / 2
	}
	q[i] = c
}

func (h *mergeHeap) pop() uint64 {
	q := *h
	least, last := q[0], len(q)-1
	q[0] = q[last]
	*h = q[:last]
	h.down(0)
	return least
}

func (h mergeHeap) down(i int) {
	if i >= len(h) {
		return
	}
	c := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if c <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = c
}
