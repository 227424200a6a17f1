package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// slowly merges by the definition: it scans all pairs and joins the leftmost of those with the
// lowest rank, repeatedly.
func (b *bpe) slowly(word string) (ids []int32) {
	for _, c := range []byte(word) {
		if id := b.bytes[c]; id != none {
			ids = append(ids, id)
		}
	}
	for {
		best, at, joined := noMerge, -1, int32(0)
		for i := range len(ids) - 1 {
			if rank, id := b.merges.find(ids[i], ids[i+1]); rank < best {
				best, at, joined = rank, i, id
			}
		}
		if at < 0 {
			return ids
		}
		ids[at] = joined
		ids = slices.Delete(ids, at+1, at+2)
	}
}

// The algorithms for short and for long words agree with the definition.
func TestMergingAgreesWithDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	check := func(t *testing.T, b *bpe, word string) {
		t.Helper()
		want := b.slowly(word)
		if len(word) <= shortWord {
			if got := b.encodeShort(nil, word); !slices.Equal(got, want) {
				t.Fatalf("short: %q gives %v, want %v", word, got, want)
			}
		}
		if got := b.encodeLong(nil, word); !slices.Equal(got, want) {
			t.Fatalf("long: %q gives %v, want %v", word, got, want)
		}
	}
	t.Run("trained", func(t *testing.T) {
		for _, name := range []string{"gpt2", "options"} { // options lacks two bytes
			b := openOwn(t, name).bpe
			for range 5000 {
				var s strings.Builder
				for range 1 + rng.IntN(24) {
					s.WriteString(scraps[rng.IntN(len(scraps))])
				}
				check(t, b, s.String())
			}
			for _, unit := range []string{"\a", "x\a", "\ax", "a", "the"} {
				for _, n := range []int{0, 1, 2, shortWord, shortWord + 1, 300} {
					check(t, b, strings.Repeat(unit, n))
				}
			}
		}
	})
	// Merges in a random order, unlike trained ones: a token may be joined before its parts can be.
	t.Run("random", func(t *testing.T) {
		for range 200 {
			ids := map[string]int32{"a": 0, "b": 1, "c": 2}
			tokens := []string{"a", "b", "c"}
			var merges [][2]string
			for range 1 + rng.IntN(30) {
				left, right := tokens[rng.IntN(len(tokens))], tokens[rng.IntN(len(tokens))]
				if _, ok := ids[left+right]; !ok {
					ids[left+right] = int32(len(tokens))
					tokens = append(tokens, left+right)
				}
				merges = append(merges, [2]string{left, right})
			}
			rng.Shuffle(len(merges), func(i, j int) { merges[i], merges[j] = merges[j], merges[i] })
			b, err := newBPE(ids, merges, false)
			if err != nil {
				t.Fatal(err)
			}
			for range 50 {
				word := make([]byte, rng.IntN(100))
				for i := range word {
					word[i] = byte('a' + rng.IntN(3))
				}
				check(t, b, string(word))
			}
		}
	})
}

var scraps = []string{"a", "e", "the", "th", "gra", "vity", "wh", "at", " ", "  ", "\n", "\t", "1", "20", "é",
	"日", "本語", "Пр", "ивет", "🙂", "\x00", "\a", "\x7f", "½", "'", "..."}

// The table finds every merge, and no others.
func TestMergeTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{0, 1, 2, 3, 1000, 50000} {
		want := map[[2]int32][2]int32{}
		table := newMergeTable(n)
		for rank := range int32(n) {
			pair := [2]int32{rng.Int32N(1000), rng.Int32N(1000)}
			id := rng.Int32()
			want[pair] = [2]int32{rank, id}
			table.add(pair[0], pair[1], rank, id)
		}
		for left := range int32(1000) {
			for right := int32(0); right < 1000; right += 1 + rng.Int32N(20) {
				rank, id := table.find(left, right)
				if w, ok := want[[2]int32{left, right}]; ok && w != [2]int32{rank, id} || !ok && rank != noMerge {
					t.Fatalf("of %d merges: find(%d, %d) = %d, %d, want %v", n, left, right, rank, id, w)
				}
			}
		}
	}
}

// A tokenizer and its cache are safe for concurrent use.
func TestConcurrentUse(t *testing.T) {
	v := readOwnVectors(t, "options")
	tok := openOwn(t, "options")
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range v.Cases {
				c := v.Cases[(i+g*7)%len(v.Cases)]
				if ids, err := tok.Encode(c.Text, nil); err != nil || !slices.Equal(ids, c.IDs) {
					t.Errorf("%+q: %v, %v, want %v", c.Text, ids, err, c.IDs)
					return
				}
				s, streamed := tok.Stream(), ""
				for _, id := range c.IDs {
					streamed += s.Next(id)
				}
				if streamed += s.Flush(); streamed != tok.Text(c.IDs) {
					t.Errorf("%v: streamed %+q, decoded %+q", c.IDs, streamed, tok.Text(c.IDs))
					return
				}
			}
		})
	}
	wg.Wait()
}
