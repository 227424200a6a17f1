package tokenizer

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Hugging Face's library uses Unicode data of three versions, and Go's unicode package a fourth.
// The tables in this file are the differences, found by comparing every code point:
//
//   - \p{L} and \p{N} in patterns are Oniguruma's, and Digits is Rust's standard library: Unicode
//     16. Go has 15.0, so this file lists the additions of 15.1 and 16.
//   - NFC is the crate unicode-normalization-alignments: Unicode 9. Newer marks are not marks
//     there.

// letters and numbers were added in Unicode 15.1 and 16.
var (
	letters = table(0x1c89, 0x1c8a, 0xa7cb, 0xa7cd, 0xa7da, 0xa7dc, 0x105c0, 0x105f3, 0x10d4a, 0x10d65, 0x10d6f,
		0x10d85, 0x10ec2, 0x10ec4,
		0x11380, 0x11389, 0x1138b, 0x1138b, 0x1138e, 0x1138e, 0x11390, 0x113b5, 0x113b7, 0x113b7, 0x113d1, 0x113d1,
		0x113d3, 0x113d3,
		0x11bc0, 0x11be0, 0x13460, 0x143fa, 0x16100, 0x1611d, 0x16d40, 0x16d6c, 0x18cff, 0x18cff, 0x1e5d0, 0x1e5ed,
		0x1e5f0, 0x1e5f0,
		0x2ebf0, 0x2ee5d)
	numbers = table(0x10d40, 0x10d49, 0x116d0, 0x116e3, 0x11bf0, 0x11bf9, 0x16130, 0x16139, 0x16d70, 0x16d79, 0x1ccf0,
		0x1ccf9, 0x1e5f1, 0x1e5fa)
)

// newMarks are characters that the NFC of Unicode 9 neither reorders nor composes: newer marks, and
// U+11930, the second half of the only newer composition.
var newMarks = table(0x7fd, 0x7fd, 0x898, 0x89f, 0x8ca, 0x8d3, 0x9fe, 0x9fe, 0xc3c, 0xc3c, 0xd3b, 0xd3c, 0xeba,
	0xeba, 0x1715, 0x1715,
	0x1abf, 0x1ace, 0x1df6, 0x1dfa, 0xa82c, 0xa82c, 0x10d24, 0x10d27, 0x10eab, 0x10eac, 0x10efd, 0x10eff, 0x10f46,
	0x10f50,
	0x10f82, 0x10f85, 0x11070, 0x11070, 0x1133b, 0x1133b, 0x1145e, 0x1145e, 0x11839, 0x1183a, 0x11930, 0x11930,
	0x1193d, 0x1193e,
	0x11943, 0x11943, 0x119e0, 0x119e0, 0x11a34, 0x11a34, 0x11a47, 0x11a47, 0x11a99, 0x11a99, 0x11d42, 0x11d42,
	0x11d44, 0x11d45,
	0x11d97, 0x11d97, 0x11f41, 0x11f42, 0x16ff0, 0x16ff1, 0x1e08f, 0x1e08f, 0x1e130, 0x1e136, 0x1e2ae, 0x1e2ae,
	0x1e2ec, 0x1e2ef,
	0x1e4ec, 0x1e4ef)

// table returns a range table of pairs of first and last characters.
func table(bounds ...rune) *unicode.RangeTable {
	t := new(unicode.RangeTable)
	for i := 0; i < len(bounds); i += 2 {
		if lo, hi := bounds[i], bounds[i+1]; hi <= 0xffff {
			t.R16 = append(t.R16, unicode.Range16{Lo: uint16(lo), Hi: uint16(hi), Stride: 1})
		} else {
			t.R32 = append(t.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
		}
	}
	return t
}

// isLetter reports whether r matches \p{L}.
func isLetter(r rune) bool { return unicode.IsLetter(r) || r >= 0x1c89 && unicode.Is(letters, r) }

// isNumber reports whether r matches \p{N}.
func isNumber(r rune) bool { return unicode.IsNumber(r) || r >= 0x10d40 && unicode.Is(numbers, r) }

// isWord reports whether r matches \w as Unicode defines it for regular expressions (UTS 18, annex
// C).
func isWord(r rune) bool {
	return isLetter(r) || isNumber(r) && !unicode.Is(unicode.No, r) ||
		unicode.In(r, unicode.M, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// nfc returns s in the NFC of Hugging Face's library.
func nfc(s string) string {
	if norm.NFC.IsNormalString(s) { // also without the newer marks
		return s
	}
	var b strings.Builder
	for {
		i := strings.IndexFunc(s, func(r rune) bool { return unicode.Is(newMarks, r) })
		if i < 0 {
			b.WriteString(normalize(s))
			return b.String()
		}
		b.WriteString(normalize(s[:i]))
		n := strings.IndexFunc(s[i:], func(r rune) bool { return !unicode.Is(newMarks, r) })
		if n < 0 {
			n = len(s) - i
		}
		b.WriteString(s[i : i+n])
		s = s[i+n:]
	}
}
