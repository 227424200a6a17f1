package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

func words(t testing.TB, split splitter, text string) (list []string) {
	t.Helper()
	emit := func(word string) { list = append(list, word) }
	if err := split(newBudget(context.Background(), text), text, emit); err != nil {
		t.Fatal(err)
	}
	return list
}

// The splitters agree with their patterns, run by a regular-expression engine. Excluded are the
// differences between regexp2 and Hugging Face's library, which the vectors cover: letters newer
// than Go's Unicode tables, and 'ſ for 's with case folding.
func TestSplittersAgreeWithPatterns(t *testing.T) {
	pieces := []string{" ", " ", "  ", "\n", "\r", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\v",
		"'", "'s", "'S", "'T", "'re", "'Re", "'lL", "'ve", "'V", "'m",
		"'D", "’s", "a", "É", "ſ", "K", "ab", "日本", "й", "ا", "\u0301",
		"1", "12", "1234", "½", "Ⅷ", "٣", "𝟙", ".", "...", "-", "_",
		"(", "🙂", "👩\u200d👧", "\x00", "\x1b", "\ufeff",
		"\ufffd", "\U0010ffff"}
	for _, tc := range []struct {
		name, pattern string
	}{{"GPT-2", patternGPT2}, {"Llama 3", patternLlama3}, {"Qwen2", patternQwen2}} {
		t.Run(tc.name, func(t *testing.T) {
			ours, err := splitterFor(tc.pattern)
			if err != nil {
				t.Fatal(err)
			}
			engine, err := regexSplitter(tc.pattern)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(3, 4))
			for n := range 10000 {
				var b strings.Builder
				for range rng.IntN(12) {
					if n%3 == 0 {
						b.WriteRune(randomRune(rng))
					} else {
						b.WriteString(pieces[rng.IntN(len(pieces))])
					}
				}
				text := strings.ReplaceAll(b.String(), "'ſ", "ſ")
				if got, want := words(t, ours, text), words(t, engine, text); !slices.Equal(got, want) {
					t.Fatalf("%+q is cut into %+q, want %+q", text, got, want)
				}
			}
		})
	}
}

// randomRune returns a character that Go's Unicode tables classify as Hugging Face's library does.
func randomRune(rng *rand.Rand) rune {
	for {
		r := rng.Int32N([]rune{0x80, 0x600, 0x3100, 0x32000}[rng.IntN(4)])
		if (r < 0xd800 || r > 0xdfff) && !unicode.In(r, letters, numbers) {
			return r
		}
	}
}

// Every character has the class of the patterns, including those of Unicode 15.1 and 16.
func TestClasses(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		want := other
		switch {
		case unicode.IsLetter(r) || unicode.Is(letters, r):
			want = letter
		case unicode.IsNumber(r) || unicode.Is(numbers, r):
			want = number
		case unicode.IsSpace(r):
			want = space
		}
		if got := classOf(r); got != want {
			t.Errorf("U+%04X has class %d, want %d", r, got, want)
		}
	}
}

// Words agree with Hugging Face's pre-tokenizers: see testdata/make.py.
func TestSplittersAgreeWithReferences(t *testing.T) {
	var cases [][4]json.RawMessage // text, words by Llama 3's and Qwen2's pattern and by Digits
	readJSON(t, filepath.Join("testdata", "words.json"), &cases)
	if len(cases) < 200 {
		t.Fatalf("%d texts", len(cases))
	}
	llama, err := splitterFor(patternLlama3)
	if err != nil {
		t.Fatal(err)
	}
	qwen, err := splitterFor(patternQwen2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		var text string
		if err := json.Unmarshal(c[0], &text); err != nil {
			t.Fatal(err)
		}
		for i, split := range []splitter{llama, qwen, splitDigits} {
			var want []string
			if err := json.Unmarshal(c[i+1], &want); err != nil {
				t.Fatal(err)
			}
			if got := words(t, split, text); !slices.Equal(got, want) {
				t.Errorf("splitter %d cuts %+q into %+q, want %+q", i, text, got, want)
			}
		}
	}
}

// Digits isolates single numeric characters or runs of them.
func TestDigits(t *testing.T) {
	for _, tc := range []struct {
		text       string
		each, runs string // words with | between
	}{
		{"", "", ""},
		{"abc", "abc", "abc"},
		{"1", "1", "1"},
		{"12", "1|2", "12"},
		{"a12b3", "a|1|2|b|3", "a|12|b|3"},
		{"4½ Ⅷ²", "4|½| |Ⅷ|²", "4½| |Ⅷ²"},
		{"٣𝟙", "٣|𝟙", "٣𝟙"},
	} {
		if got := strings.Join(words(t, splitDigits, tc.text), "|"); got != tc.each {
			t.Errorf("%q: each digit: %q, want %q", tc.text, got, tc.each)
		}
		if got := strings.Join(words(t, splitDigitRuns, tc.text), "|"); got != tc.runs {
			t.Errorf("%q: runs of digits: %q, want %q", tc.text, got, tc.runs)
		}
	}
}

// regexp2 runs other patterns: matches and the text between them are words.
func TestOtherPatterns(t *testing.T) {
	for _, tc := range []struct{ pattern, text, want string }{
		{`\s+`, "a  b c", "a|  |b| |c"},
		{`x*`, "axxb", "a|xx|b"},
		{`zzz`, "abc", "abc"},
		{`(?i:abc)`, "xABCabcy", "x|ABC|abc|y"},
		{`\p{Han}+|\p{L}+`, "日本abcé 中", "日本|abcé| |中"},
		{`\w+(?= )|.`, "ab cd", "ab| |c|d"},
		{`(?<=a)b`, "abcb", "a|b|cb"},
		{`[\p{Lu}\p{Lt}]+`, "aBCdǅ", "a|BC|d|ǅ"},
		{`.`, "🙂é", "🙂|é"},
	} {
		split, err := splitterFor(tc.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(words(t, split, tc.text), "|"); got != tc.want {
			t.Errorf("%s cuts %q into %q, want %q", tc.pattern, tc.text, got, tc.want)
		}
		if got := words(t, split, ""); len(got) != 0 {
			t.Errorf("%s cuts nothing into %q", tc.pattern, got)
		}
	}
	if _, err := splitterFor(`(a`); err == nil || !strings.Contains(err.Error(), "invalid Split pattern") {
		t.Errorf("a pattern that is none: %v", err)
	}
}

// A chain splits the words of the previous splitter, and an error of either ends it.
func TestChain(t *testing.T) {
	if got := words(t, chain([]splitter{splitDigits, splitGPT2}), "a b12 'sx"); strings.Join(got,
		"|") != "a| b|1|2| '|sx" {
		t.Errorf("%q", got)
	}
	if got := words(t, chain(nil), "a b"); !slices.Equal(got, []string{"a b"}) {
		t.Errorf("no splitter: %q", got)
	}
	if got := words(t, chain([]splitter{prefixSpace, splitGPT2}), "a b"); strings.Join(got, "|") != " a| b" {
		t.Errorf("prefix space: %q", got)
	}
	failing := func(*budget, string, func(string)) error { return errors.New("too slow") }
	for _, list := range [][]splitter{{failing, splitGPT2}, {splitGPT2, failing}, {splitDigits, splitGPT2, failing}} {
		if err := chain(list)(nil, "a b", func(string) {}); err == nil || err.Error() != "too slow" {
			t.Errorf("%v", err)
		}
	}
}

// A pattern that backtracks forever returns an error, and so does one that is slow at each of many
// matches.
func TestSlowPattern(t *testing.T) {
	for pattern, text := range map[string]string{
		`(?:a|aa)+!`:             strings.Repeat("a", 60) + "?!",
		`[^z]*[^z]*[^z]*z|.`:     strings.Repeat("a", 300),
		`[^z]*[^z]*[^z]*[^z]*|.`: strings.Repeat("az", 1<<20),
	} {
		split, err := regexSplitter(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // again with the same engine
			began := time.Now()
			in := &budget{context.Background(), began.Add(50 * time.Millisecond)}
			err = split(in, text, func(string) {})
			if !errors.Is(err, errTooLong) || !strings.HasPrefix(err.Error(),
				fmt.Sprintf("tokenizer: the pattern %q: takes too long", pattern)) {
				t.Errorf("%s after %v: %.500v", pattern, time.Since(began), err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s took %v, may take 50 ms plus the precision of its clock", pattern, took)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := split(newBudget(ctx, text), text, func(string) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", pattern, err)
		}
	}
}

// Encoding ends with its context, in every step.
func TestEncodeContext(t *testing.T) {
	tok := *openOwn(t, "gpt2")
	want, err := tok.Encode("What is gravity?", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if got, err := tok.EncodeContext(ctx, "What is gravity?", nil); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	release := make(chan struct{})
	defer close(release)
	plain, begun := tok.split, make(chan struct{}, 1)
	tok.split = func(*budget, string, func(string)) error {
		begun <- struct{}{}
		<-release
		return nil
	}
	go func() {
		<-begun
		cancel()
	}()
	if ids, err := tok.EncodeContext(ctx, "What", nil); !errors.Is(err, context.Canceled) || ids != nil {
		t.Errorf("cancelled in a pattern: %v, %v", ids, err)
	}
	// A built-in splitter continues, but its words are not encoded.
	ctx, cancel = context.WithCancel(context.Background())
	tok.split = func(in *budget, text string, emit func(string)) error {
		cancel()
		return plain(in, text, emit)
	}
	if ids, err := tok.encode(ctx, strings.Repeat("a ", 5000), nil); !errors.Is(err, context.Canceled) || ids != nil {
		t.Errorf("cancelled between words: %d ids, %v", len(ids), err)
	}
}

// Encode returns the error of the splitter.
func TestEncodeSplitError(t *testing.T) {
	tok := *openOwn(t, "gpt2")
	tok.split = func(*budget, string, func(string)) error { return errors.New("too slow") }
	if ids, err := tok.Encode("a<bos>b", nil); err == nil || err.Error() != "too slow" || ids != nil {
		t.Errorf("%v, %v", ids, err)
	}
}
