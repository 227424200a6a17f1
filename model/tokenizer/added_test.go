package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The matcher finds the longest token, and the first of equal ones.
func TestMatcherFindsTheLongest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string {
		b := make([]byte, 1+rng.IntN(n))
		for i := range b {
			b[i] = "ab\xc3"[rng.IntN(3)]
		}
		return string(b)
	}
	found := 0
	for range 300 {
		var list []added
		for id := range rng.Int32N(40) {
			list = append(list, added{content: random(5), id: id})
		}
		m, err := newMatcher(list)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			text := random(8)
			want := -1
			for i, a := range list {
				if strings.HasPrefix(text, a.content) && (want < 0 || len(a.content) > len(list[want].content)) {
					want = i
				}
			}
			switch got, ok := m.at(text, len(text)); {
			case ok != (want >= 0):
				t.Fatalf("%q among %v: %v", text, list, ok)
			case ok && got.id != list[want].id:
				t.Fatalf("%q among %v: %v, want %v", text, list, got, list[want])
			case ok:
				found++
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d found", found)
	}
}

// Finding added tokens takes linear time, for any number of tokens and any white space that they
// strip.
func TestMatcherTime(t *testing.T) {
	var many []added
	for i := range int32(20_000) {
		many = append(many, added{content: fmt.Sprintf("a%06d", i), id: i})
	}
	const n = 200_000
	for name, tc := range map[string]struct {
		tokens []added
		text   string
	}{
		"many tokens":      {many, strings.Repeat("a", n)},
		"space to the end": {[]added{{content: " ", id: 1, rstrip: true}}, strings.Repeat(" ", n)},
		"space before":     {[]added{{content: " ", id: 1, lstrip: true}}, strings.Repeat(" ", n)},
		"space between": {[]added{{content: "x", id: 1, lstrip: true, rstrip: true}},
			strings.Repeat(" ", n) + strings.Repeat("x", n)},
	} {
		m, err := newMatcher(tc.tokens)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.cut(tc.text, nil, func(string, int, int32) {})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: %d bytes took %v", name, len(tc.text), took)
		}
	}
}
