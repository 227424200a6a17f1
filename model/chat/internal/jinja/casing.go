package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Upper and lower case are Python's: by character, with the mappings to several characters, and
// with the sigma at the end of a word.

// eachRune rewrites t character by character. f gets a character and its text.
func (r *run) eachRune(t str, f func(b *builder, c rune, s string)) str {
	return r.transform(t, func(b *builder, part string) {
		for len(part) > 0 {
			c, width := utf8.DecodeRuneInString(part)
			f(b, c, part[:width])
			part = part[width:]
		}
	})
}

// upperRune is the upper case of c, whose text is s. Some characters become several: ß gives SS.
func upperRune(c rune, s string) string {
	if c < utf8.RuneSelf {
		if c >= 'a' && c <= 'z' {
			return ascii[c-'a'+'A' : c-'a'+'A'+1]
		}
		return s
	}
	if u := unicode.ToUpper(c); !manyFold(c, u) {
		return string(u)
	}
	return cases.Upper(language.Und).String(s)
}

// titleRune is the title case of c: ﬁ gives Fi.
func titleRune(c rune, s string) string {
	if c < utf8.RuneSelf {
		return upperRune(c, s)
	}
	if u := unicode.ToTitle(c); !manyFold(c, u) {
		return string(u)
	}
	return cases.Title(language.Und, cases.NoLower).String(s)
}

// manyFold reports whether c may become more than u, its mapping to one character. These are the
// lower case letters without such a mapping, and Greek letters with an iota.
func manyFold(c, u rune) bool {
	return u == c && unicode.IsLower(c) || c >= 0x1f80 && c < 0x2000
}

func lowerRune(c rune, s string) string {
	switch {
	case c < utf8.RuneSelf:
		if c >= 'A' && c <= 'Z' {
			return ascii[c-'A'+'a' : c-'A'+'a'+1]
		}
		return s
	case c == 'İ':
		return "i̇"
	}
	return string(unicode.ToLower(c))
}

// ascii has each of its characters at its own place, to cut strings of one byte from.
var ascii = func() string {
	var b [utf8.RuneSelf]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}()

func (r *run) upper(t str) str {
	return r.eachRune(t, func(b *builder, c rune, s string) { b.raw(upperRune(c, s)) })
}

func (r *run) lower(t str) str {
	if r.every(t.s, func(c rune) bool { return c < utf8.RuneSelf && (c < 'A' || c > 'Z') }) {
		return t
	}
	return r.lowerFrom(t, 0)
}

// endsWord reports whether a letter is before the character at i and none after it, not counting
// characters that case ignores.
func (r *run) endsWord(s string, i int) bool {
	before := strings.TrimRightFunc(s[max(0, i-64):i], ignoresCase)
	after := strings.TrimLeftFunc(s[i+len("Σ"):min(len(s), i+64)], ignoresCase)
	last, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	return before != "" && isCased(last) && (after == "" || !isCased(next))
}

func ignoresCase(c rune) bool {
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:·’․‧﹒﹕＇．：", c)
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

func (r *run) casefold(t str) str {
	return r.eachRune(t, func(b *builder, c rune, s string) {
		if c < utf8.RuneSelf {
			b.raw(lowerRune(c, s))
		} else {
			b.raw(cases.Fold().String(s))
		}
	})
}

func (r *run) capitalize(t str) str {
	n := r.runeWidth(t.s)
	first := r.eachRune(t.cut(0, n), func(b *builder, c rune, s string) { b.raw(titleRune(c, s)) })
	out := r.concat(first, r.lowerFrom(t, n))
	out.safe = t.safe
	return out
}

// lowerFrom is the lower case of t from byte n on, where it knows what is before.
func (r *run) lowerFrom(t str, n int) str {
	at := n
	return r.eachRune(t.cut(n, len(t.s)), func(b *builder, c rune, s string) {
		if c == 'Σ' && r.endsWord(t.s, at) {
			b.raw("ς")
		} else {
			b.raw(lowerRune(c, s))
		}
		at += len(s)
	})
}

// title begins a word after everything that has no case, unlike the filter of that name.
func (r *run) title(t str) str {
	cased, at := false, 0
	return r.eachRune(t, func(b *builder, c rune, s string) {
		switch {
		case !cased:
			b.raw(titleRune(c, s))
		case c == 'Σ' && r.endsWord(t.s, at):
			b.raw("ς")
		default:
			b.raw(lowerRune(c, s))
		}
		cased = isCased(c)
		at += len(s)
	})
}

func (r *run) swapcase(t str) str {
	at := 0
	return r.eachRune(t, func(b *builder, c rune, s string) {
		switch {
		case c == 'Σ' && r.endsWord(t.s, at):
			b.raw("ς")
		case unicode.IsUpper(c):
			b.raw(lowerRune(c, s))
		case unicode.IsLower(c):
			b.raw(upperRune(c, s))
		default:
			b.raw(s)
		}
		at += len(s)
	})
}

func isLower(c rune) bool { return unicode.IsLower(c) }

func isUpper(c rune) bool { return unicode.IsUpper(c) }

// hasCase reports whether some character of s has a case and none has the other.
func (r *run) hasCase(s string, is, not func(rune) bool) bool {
	found := false
	ok := r.every(s, func(c rune) bool {
		found = found || is(c)
		return !not(c) && !unicode.IsTitle(c)
	})
	return ok && found
}

func isSuperscript(c rune) bool {
	return strings.ContainsRune("²³¹", c) || c >= 0x2070 && c <= 0x2079 && c != 0x2071 ||
		c >= 0x2080 && c <= 0x2089
}
