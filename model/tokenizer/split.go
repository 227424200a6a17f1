package tokenizer

import (
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// A splitter cuts text into the words that merges stay within. It calls emit for each, in order; together they are the text.
type splitter func(text string, emit func(word string))

// Patterns that real tokenizers use, as tokenizer.json writes them. Each has a splitter of our own, some twenty times as fast as a general
// engine with lookahead; tests hold these to the engine.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitterFor gives the splitter of a pattern.
func splitterFor(pattern string) (splitter, error) {
	switch pattern {
	case patternGPT2:
		return splitGPT2, nil
	case patternLlama3:
		return func(text string, emit func(string)) { splitLlama(text, 3, emit) }, nil
	case patternQwen2:
		return func(text string, emit func(string)) { splitLlama(text, 1, emit) }, nil
	}
	return regexSplitter(pattern)
}

// regexSplitter isolates the matches of a pattern; what lies between them are words too.
func regexSplitter(pattern string) (splitter, error) {
	re, err := regexp2.Compile(pattern, regexp2.Unicode)
	if err != nil {
		return nil, err
	}
	return func(text string, emit func(string)) {
		runes := []rune(text)
		end := 0
		for m, _ := re.FindRunesMatch(runes); m != nil; m, _ = re.FindNextMatch(m) {
			if m.Length == 0 {
				continue
			}
			if m.Index > end {
				emit(string(runes[end:m.Index]))
			}
			emit(string(runes[m.Index : m.Index+m.Length]))
			end = m.Index + m.Length
		}
		if end < len(runes) {
			emit(string(runes[end:]))
		}
	}, nil
}

// class sorts characters as the patterns do.
type class uint8

const (
	other  class = iota
	letter       // \p{L}
	number       // \p{N}
	space        // \s
)

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		return asciiClass[r]
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

var asciiClass = func() (c [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		switch {
		case unicode.IsLetter(r):
			c[r] = letter
		case unicode.IsNumber(r):
			c[r] = number
		case unicode.IsSpace(r):
			c[r] = space
		}
	}
	return c
}()

// at is the character at i, its class and its length; length 0 at the end.
func at(text string, i int) (rune, class, int) {
	if i >= len(text) {
		return 0, other, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return rune(b), asciiClass[b], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	return r, classOf(r), n
}

// run is the end of the characters of a class from i on.
func run(text string, i int, c class) int {
	for {
		_, k, n := at(text, i)
		if n == 0 || k != c {
			return i
		}
		i += n
	}
}

// contraction is the length of 's, 't, 're, 've, 'm, 'll or 'd at i, or 0. fold ignores case, as Unicode folds it: the long s (U+017F) is an s.
func contraction(text string, i int, fold bool) int {
	if text[i] != '\'' {
		return 0
	}
	lower := func(i int) (rune, int) {
		r, _, n := at(text, i)
		if fold {
			switch {
			case r >= 'A' && r <= 'Z':
				r += 'a' - 'A'
			case r == 'ſ':
				r = 's'
			}
		}
		return r, n
	}
	a, n := lower(i + 1)
	switch a {
	case 's', 't', 'm', 'd':
		return 1 + n
	case 'r', 'v', 'l':
		want := map[rune]rune{'r': 'e', 'v': 'e', 'l': 'l'}[a]
		if b, k := lower(i + 1 + n); k > 0 && b == want {
			return 1 + n + k
		}
	}
	return 0
}

// spaces is the end of a run of white space at i by \s+(?!\S)|\s+: the last one is left to the word that follows, if there is one and the run is
// longer than it.
func spaces(text string, i int) int {
	end := run(text, i, space)
	if end == len(text) {
		return end
	}
	_, size := utf8.DecodeLastRuneInString(text[i:end])
	if last := end - size; last > i {
		return last
	}
	return end
}

// splitGPT2 is patternGPT2.
func splitGPT2(text string, emit func(string)) {
	for i := 0; i < len(text); {
		end := i + contraction(text, i, false)
		if end == i {
			start := i
			_, c, n := at(text, i)
			if text[i] == ' ' {
				if _, next, k := at(text, i+1); k > 0 && next != space {
					start, c, n = i+1, next, k
				}
			}
			if c == space {
				end = spaces(text, i)
			} else {
				end = run(text, start+n, c)
			}
		}
		emit(text[i:end])
		i = end
	}
}

// splitLlama is patternLlama3, or with one digit a word patternQwen2.
func splitLlama(text string, digits int, emit func(string)) {
	for i := 0; i < len(text); {
		end := llamaWord(text, i, digits)
		emit(text[i:end])
		i = end
	}
}

func llamaWord(text string, i, digits int) int {
	if n := contraction(text, i, true); n > 0 {
		return i + n
	}
	r, c, n := at(text, i)
	// [^\r\n\p{L}\p{N}]?\p{L}+
	if c == letter {
		return run(text, i+n, letter)
	}
	if c != number && r != '\r' && r != '\n' {
		if end := run(text, i+n, letter); end > i+n {
			return end
		}
	}
	if c == number {
		end := i + n
		for range digits - 1 {
			_, k, m := at(text, end)
			if m == 0 || k != number {
				break
			}
			end += m
		}
		return end
	}
	//  ?[^\s\p{L}\p{N}]+[\r\n]*
	start := i
	if r == ' ' {
		if _, next, k := at(text, i+1); k > 0 && next == other {
			start, c = i+1, other
		}
	}
	if c == other {
		end := run(text, start, other)
		for end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end
	}
	// \s*[\r\n]+ ends at the last line break of the run of white space.
	all := run(text, i, space)
	for end := all; end > i; end-- {
		if b := text[end-1]; b == '\r' || b == '\n' {
			return end
		}
	}
	return spaces(text, i)
}

// splitDigits isolates every numeric character (Unicode category N, so one half is one too).
func splitDigits(text string, emit func(string)) {
	start := 0
	for i := 0; i < len(text); {
		_, c, n := at(text, i)
		if c == number {
			if i > start {
				emit(text[start:i])
			}
			emit(text[i : i+n])
			start = i + n
		}
		i += n
	}
	if start < len(text) {
		emit(text[start:])
	}
}
