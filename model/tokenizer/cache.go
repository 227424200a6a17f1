package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// wordCache caches the ids of words, because text repeats its words. Each word has one slot, and a
// new word replaces the old one. The cache therefore needs no lock and never grows.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

const (
	cacheSlots  = 1 << 15 // about 4 MB when full
	cacheLength = 24      // in bytes; longer words are rarely repeated
)

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

// encode appends the ids of a word to ids.
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
