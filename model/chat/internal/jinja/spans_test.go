package jinja

import (
	"strings"
	"testing"
)

// A substring has the marks of its bytes.
func TestCut(t *testing.T) {
	b := &builder{}
	for i := range 20 {
		b.write(lit(strings.Repeat("l", i%3)), str{s: strings.Repeat("c", i%4), c: whole})
	}
	whole := b.str()
	is := func(s str) (out string) {
		b := &builder{}
		b.rewrite(s, func(part string) { b.raw(part) })
		marked := b.str()
		flags := []byte(strings.Repeat(".", len(marked.s)))
		if marked.c != nil && len(marked.c.spans) == 0 {
			return strings.Repeat("#", len(marked.s))
		}
		if marked.c != nil {
			for _, span := range marked.c.spans {
				for i := span.Start; i < span.End; i++ {
					flags[i] = '#'
				}
			}
		}
		return string(flags)
	}
	all := is(whole)
	for from := range len(whole.s) {
		for to := from; to <= len(whole.s); to++ {
			cut := whole.cut(from, to)
			if got := is(cut); cut.s != whole.s[from:to] || got != all[from:to] {
				t.Fatalf("[%d:%d] has %s, want %s", from, to, got, all[from:to])
			}
			mid := (to - from) / 2
			if got, want := is(cut.cut(mid, to-from)), all[from+mid:to]; got != want {
				t.Fatalf("[%d:%d][%d:] has %s, want %s", from, to, mid, got, want)
			}
		}
	}
}
