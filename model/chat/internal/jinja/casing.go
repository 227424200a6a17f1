package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Upper and lower case are Python's: ß becomes SS, and a sigma at the end of a word another one.

// eachRune rewrites t character by character.
func (r *run) eachRune(t str, f func(c rune) string) str {
	return r.transform(t, func(b *builder, part string) {
		for i, c := range part {
			if c == utf8.RuneError {
				_, width := utf8.DecodeRuneInString(part[i:])
				b.raw(part[i : i+width]) // a byte that is no character stays as it is
			} else {
				b.raw(f(c))
			}
		}
	})
}

func (r *run) upper(t str) str { return r.eachRune(t, upperRune) }

// upperRune is the upper case of c, which may be several characters.
func upperRune(c rune) string {
	if u := unicode.ToUpper(c); !expands(c, u) {
		return string(u)
	}
	return cases.Upper(language.Und).String(string(c))
}

// titleRune is the title case of c: ﬁ gives Fi.
func titleRune(c rune) string {
	if u := unicode.ToTitle(c); !expands(c, u) {
		return string(u)
	}
	return cases.Title(language.Und, cases.NoLower).String(string(c))
}

// expands reports whether c may become more than u, its mapping to one character. These are the
// lower case letters without such a mapping, and Greek letters with an iota.
func expands(c, u rune) bool { return u == c && unicode.IsLower(c) || c >= 0x1f80 && c < 0x2000 }

func lowerRune(c rune) string {
	if c == 'İ' {
		return "i̇"
	}
	return string(unicode.ToLower(c))
}

func (r *run) lower(t str) str {
	if strings.ContainsRune(t.s, 'Σ') {
		return r.transform(t, func(b *builder, s string) { b.raw(cases.Lower(language.Und).String(s)) })
	}
	return r.eachRune(t, lowerRune)
}

func (r *run) capitalize(t str) str {
	_, n := utf8.DecodeRuneInString(t.s)
	first, rest := t.cut(0, n), r.lower(t)
	rest = rest.cut(len(r.lower(first).s), len(rest.s))
	out := r.concat(r.eachRune(first, titleRune), rest)
	out.safe = t.safe
	return out
}

// title begins a word after everything that has no case, unlike the filter of that name.
func (r *run) title(t str) str {
	r.failIf(strings.ContainsRune(t.s, 'Σ'), "str.title of a sigma is not supported")
	within := false
	return r.eachRune(t, func(c rune) string {
		begins := !within
		within = unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
		if begins {
			return titleRune(c)
		}
		return lowerRune(c)
	})
}

// hasCase reports whether some character of t has a case and none has the other.
func (r *run) hasCase(t str, is, not func(rune) bool) bool {
	found := false
	return r.every(t.s, func(c rune) bool {
		found = found || is(c)
		return !not(c) && !unicode.IsTitle(c)
	}) && found
}

// every reports whether f holds for all characters of s.
func (r *run) every(s string, f func(rune) bool) bool {
	for part := range r.chunks(s) {
		if strings.IndexFunc(part, func(c rune) bool { return !f(c) }) >= 0 {
			return false
		}
	}
	return true
}
