package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// A splitter splits text into the words that merges stay within. It calls emit for each word in
// order; together they are the text. It returns an error only if a pattern exceeds the budget.
type splitter func(in *budget, text string, emit func(word string)) error

// Patterns of published tokenizers, as tokenizer.json writes them. Each has a splitter in this
// package, which is faster than the regular-expression engine; tests compare the two.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitterFor returns the splitter of a pattern.
func splitterFor(pattern string) (splitter, error) {
	switch pattern {
	case patternGPT2:
		return splitGPT2, nil
	case patternLlama3:
		return func(_ *budget, text string, emit func(string)) error { return splitLlama(text, 3, emit) }, nil
	case patternQwen2:
		return func(_ *budget, text string, emit func(string)) error { return splitLlama(text, 1, emit) }, nil
	}
	return regexSplitter(pattern)
}

// maxPattern bounds an unknown pattern, in bytes, because compiling takes stack in proportion to
// its nesting. GPT-4o's has about 300.
const maxPattern = 8 << 10

// budget is the time limit of one Encode.
type budget struct {
	ctx context.Context
	end time.Time // for unknown patterns
}

// An unknown pattern may take time exponential in the length of the text. Its limit is patternTime
// plus patternByte per byte of the text: twenty times the time of GPT-4o's pattern (half a
// microsecond per byte on a machine of 2019).
const (
	patternTime = 10 * time.Second
	patternByte = 10 * time.Microsecond
)

func newBudget(ctx context.Context, text string) *budget {
	return &budget{ctx, time.Now().Add(patternTime + time.Duration(len(text))*patternByte)}
}

// errTooLong is returned if a pattern exceeds the budget.
var errTooLong = errors.New("takes too long on this text: it may need time exponential in the text's length")

// left returns the remaining time.
func (s *budget) left() (time.Duration, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	d := time.Until(s.end)
	if d <= 0 {
		return 0, errTooLong
	}
	return d, nil
}

// regexSplitter returns a splitter that isolates the matches of a pattern; the text between matches
// is a word too. Its classes (\p{L}) use Go's Unicode tables, see unicode.go.
func regexSplitter(pattern string) (splitter, error) {
	if len(pattern) > maxPattern {
		return nil, &UnsupportedError{fmt.Sprintf("a Split by a pattern of more than %d bytes", maxPattern)}
	}
	re, err := regexp2.Compile(pattern, regexp2.Unicode)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: invalid Split pattern: %w", err)
	}
	// The time limit is a field of the expression, so each search needs its own.
	pool := &sync.Pool{New: func() any { return regexp2.MustCompile(pattern, regexp2.Unicode) }}
	pool.Put(re)
	return func(in *budget, text string, emit func(string)) error {
		re := pool.Get().(*regexp2.Regexp)
		defer pool.Put(re)
		runes := []rune(text)
		end := 0
		m, err := match(in, re, func() (*regexp2.Match, error) { return re.FindRunesMatch(runes) })
		for ; m != nil && err == nil; m, err = match(in, re,
			func() (*regexp2.Match, error) { return re.FindNextMatch(m) }) {
			if m.Length == 0 {
				continue
			}
			if m.Index > end {
				emit(string(runes[end:m.Index]))
			}
			emit(string(runes[m.Index : m.Index+m.Length]))
			end = m.Index + m.Length
		}
		if err != nil {
			return fmt.Errorf("tokenizer: the pattern %.200q: %w", pattern, err)
		}
		if end < len(runes) {
			emit(string(runes[end:]))
		}
		return nil
	}, nil
}

// match finds one match within the budget.
func match(in *budget, re *regexp2.Regexp, find func() (*regexp2.Match, error)) (*regexp2.Match, error) {
	left, err := in.left()
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = left
	m, err := find()
	if err != nil { // always a timeout; the engine's message contains the whole text
		err = errTooLong
	}
	return m, err
}

// class is a class of characters in the patterns.
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
	case r >= 0x4e00 && r <= 0x9fff, isLetter(r): // fast path for Chinese
		return letter
	case isNumber(r):
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

// at returns the character at i, its class and its length; length 0 at the end.
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

// run returns the end of the run of characters of class c that starts at i.
func run(text string, i int, c class) int {
	for {
		_, k, n := at(text, i)
		if n == 0 || k != c {
			return i
		}
		i += n
	}
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at i, or 0. fold ignores case
// by Unicode's rules, where the long s (U+017F) is an s.
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

// spaces returns the end of the match of \s+(?!\S)|\s+ at i. It leaves the last space to the next
// word, if there is one and the run is longer than one character.
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

// splitGPT2 implements patternGPT2.
func splitGPT2(_ *budget, text string, emit func(string)) error {
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
	return nil
}

// splitLlama implements patternLlama3 with up to 3 digits per word, and patternQwen2 with 1.
func splitLlama(text string, digits int, emit func(string)) error {
	for i := 0; i < len(text); {
		end := llamaWord(text, i, digits)
		emit(text[i:end])
		i = end
	}
	return nil
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

// splitDigits isolates every numeric character (Unicode category N, so also ½).
func splitDigits(_ *budget, text string, emit func(string)) error { return digits(text, false, emit) }

// splitDigitRuns isolates runs of numeric characters.
func splitDigitRuns(_ *budget, text string, emit func(string)) error { return digits(text, true, emit) }

func digits(text string, runs bool, emit func(string)) error {
	start := 0
	for i := 0; i < len(text); {
		_, c, n := at(text, i)
		if c != number {
			i += n
			continue
		}
		if i > start {
			emit(text[start:i])
		}
		start, i = i, i+n
		if runs {
			i = run(text, i, number)
		}
		emit(text[start:i])
		start = i
	}
	if start < len(text) {
		emit(text[start:])
	}
	return nil
}

// prefixSpace adds a space at the start of a text that has none there.
func prefixSpace(_ *budget, text string, emit func(string)) error {
	if text != "" && !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	if text != "" {
		emit(text)
	}
	return nil
}

// chain combines splitters. Each splits the words of the previous one.
func chain(splits []splitter) splitter {
	switch len(splits) {
	case 0:
		return func(_ *budget, text string, emit func(string)) error {
			if text != "" {
				emit(text)
			}
			return nil
		}
	case 1:
		return splits[0]
	}
	first, rest := splits[0], chain(splits[1:])
	return func(in *budget, text string, emit func(string)) error {
		var failed error
		err := first(in, text, func(word string) {
			if failed == nil {
				failed = rest(in, word, emit)
			}
		})
		if err == nil {
			err = failed
		}
		return err
	}
}
