package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// wordCache remembers the ids of words, since natural text repeats its words. Each word has one
// slot that it may be in, and a new one takes the place of the old: so the cache needs no lock,
// never grows, and a text of words that never come again does no more harm than to empty it.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

const (
	cacheSlots  = 1 << 15 // some 4 MB when full
	cacheLength = 24      // of the longest words, in bytes; longer ones seldom come again
)

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

// encode appends the ids of a word.
func (c *wordCache) encode(ids []int32, word string, b *bpe) []int32 {
	if len(word) > cacheLength {
		return b.encode(ids, word)
	}
	slot := &c.slots[maphash.String(c.seed, word)%cacheSlots]
	if known := slot.Load(); known != nil && known.word == word {
		return append(ids, known.ids...)
	}
	start := len(ids)
	ids = b.encode(ids, word)
	slot.Store(&cachedWord{strings.Clone(word), slices.Clone(ids[start:])})
	return ids
}
