package tokenizer

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// randomSpans returns up to five spans of a text of n bytes, some of them empty or adjacent.
func randomSpans(rng *rand.Rand, n int) []Span {
	cuts := make([]int, 2*rng.IntN(6))
	for i := range cuts {
		cuts[i] = rng.IntN(n + 1)
	}
	slices.Sort(cuts)
	var spans []Span
	for i := 0; i < len(cuts); i += 2 {
		spans = append(spans, Span{cuts[i], cuts[i+1]})
	}
	return spans
}

// mask reports for each byte of a text whether it is in a span.
func mask(spans []Span, n int) []bool {
	m := make([]bool, n)
	for _, s := range spans {
		for i := s.Start; i < s.End; i++ {
			m[i] = true
		}
	}
	return m
}

// piece is an emitted piece. A token has only its id, because two tokens may strip the same white
// space.
type piece struct {
	text string
	at   int
	id   int32
}

// cutSlowly is the definition of cut: at each position the longest token that is blank or has no
// byte in a span.
func cutSlowly(tokens []added, text string, inside []bool) (pieces []piece) {
	start := 0
	for i := 0; i < len(text); {
		var best *added
		for j, a := range tokens {
			end := i + len(a.content)
			if !strings.HasPrefix(text[i:], a.content) || !a.blank && slices.Contains(inside[i:end], true) {
				continue
			}
			if best == nil || len(a.content) > len(best.content) {
				best = &tokens[j]
			}
		}
		if best == nil {
			i++
			continue
		}
		from, to := i, i+len(best.content)
		i = to
		if best.singleWord && (wordBefore(text[:from]) || wordAfter(text[to:])) {
			continue
		}
		for best.lstrip && from > start {
			r, n := utf8.DecodeLastRuneInString(text[start:from])
			if !unicode.IsSpace(r) {
				break
			}
			from -= n
		}
		for best.rstrip && to < len(text) {
			r, n := utf8.DecodeRuneInString(text[to:])
			if !unicode.IsSpace(r) {
				break
			}
			to += n
		}
		if from > start {
			pieces = append(pieces, piece{text[start:from], start, -1})
		}
		pieces = append(pieces, piece{id: best.id})
		start = to
	}
	if start < len(text) {
		pieces = append(pieces, piece{text[start:], start, -1})
	}
	return pieces
}

// encodeSlowly is the definition of Encode with spans and NoSpecial: a tokenizer without added
// tokens encodes the text between them.
func encodeSlowly(t testing.TB, tok *byteLevel, text string, spans []Span) (ids []int32) {
	t.Helper()
	bare := *tok
	bare.before, bare.after, bare.nfc = &matcher{}, &matcher{}, false
	inside := mask(spans, len(text))
	var valid strings.Builder // the text with U+FFFD for malformed parts
	var validInside []bool
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		for r == utf8.RuneError && n < 4 && i+n < len(text) && lossy([]byte(text[i:i+n+1])) == "\uFFFD" {
			n++
		}
		in := slices.Contains(inside[i:i+n], true)
		for range utf8.RuneLen(r) {
			validInside = append(validInside, in)
		}
		valid.WriteRune(r)
		i += n
	}
	text, inside = valid.String(), validInside
	for _, p := range cutSlowly(tok.before.tokens, text, inside) {
		if p.id >= 0 {
			ids = append(ids, p.id)
			continue
		}
		between := inside[p.at : p.at+len(p.text)]
		if tok.nfc {
			var spans []Span
			for i, in := range between {
				if in {
					spans = append(spans, Span{i, i + 1})
				}
			}
			p.text, spans = nfcPlain(p.text, spans)
			between = mask(spans, len(p.text))
		}
		for _, p := range cutSlowly(tok.after.tokens, p.text, between) {
			if p.id >= 0 {
				ids = append(ids, p.id)
				continue
			}
			more, err := bare.Encode(p.text, noSpecial)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, more...)
		}
	}
	return ids
}

// Pieces agree with the definition, for random tokens, texts and spans.
func TestPlainMatcher(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int) string {
		var b strings.Builder
		for range 1 + rng.IntN(n) {
			b.WriteByte("ab< \n"[rng.IntN(5)])
		}
		return b.String()
	}
	found, skipped := 0, 0
	for range 500 {
		var list []added
		for id := range 1 + rng.Int32N(12) {
			content, coin := random(4), rng.IntN(32)
			if slices.ContainsFunc(list, func(a added) bool { return a.content == content }) {
				continue
			}
			blank := strings.TrimSpace(content) == "" && coin&16 > 0
			list = append(list, added{content, id, coin&1 > 0, coin&2 > 0, coin&12 == 12, blank})
		}
		m, err := newMatcher(list)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			text := random(30)
			spans := randomSpans(rng, len(text))
			inside := mask(spans, len(text))
			spans, err := checkSpans(spans, len(text))
			if err != nil {
				t.Fatal(err)
			}
			var got []piece
			m.cut(text, spans, func(text string, at int, id int32) {
				if id >= 0 {
					text, at = "", 0
				}
				got = append(got, piece{text, at, id})
			})
			want := cutSlowly(list, text, inside)
			if !slices.Equal(got, want) {
				t.Fatalf("tokens %+v, text %q, spans %v:\ngot  %v\nwant %v", list, text, spans, got, want)
			}
			for _, p := range want {
				if p.id >= 0 {
					found++
				}
			}
			if !slices.Equal(want, cutSlowly(list, text, make([]bool, len(text)))) {
				skipped++
			}
		}
	}
	if found < 10_000 || skipped < 1000 {
		t.Errorf("only %d tokens found, and %d texts that spans change", found, skipped)
	}
}

// plainParts are parts of texts that combine added tokens, invalid UTF-8 and characters that
// compose.
var plainParts = []string{"<bos>", "<|im_start|>", "<|im_end|>", "<|im", "|>", "<|im|>", "<left>", "<right>", "<both>",
	" ", "\n", "word", "strip", "Caf", "Cafe", "é", "e\u0301", "\u0301", "Ou", "\u0300", "O", "u", "u\u0316\u0300",
	"\u0338", "日", "本", "日本", "\u11a8", "\u1100\u1161", "\u0afd", "\u08d4",
	"\xe6", "\x97", "\xa5", "\xf0\x9f", "a",
	"1",
	".", "<", ">"}

func randomParts(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(12) {
		b.WriteString(plainParts[rng.IntN(len(plainParts))])
	}
	return b.String()
}

// Ids agree with the definition, for every tokenizer in own, with invalid UTF-8 and NFC; spans have
// no effect if they hold no added token.
func TestPlainEncode(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, o := range own {
		tok := openOwn(t, o.name)
		changed := 0
		for range 4000 {
			text := randomParts(rng)
			spans := randomSpans(rng, len(text))
			got, err := tok.Encode(text, &EncodeOptions{NoSpecial: true, Plain: spans})
			if err != nil {
				t.Fatal(err)
			}
			if want := encodeSlowly(t, tok, text, spans); !slices.Equal(got, want) {
				t.Fatalf("%s: %+q, spans %v:\ngot  %v\nwant %v", o.name, text, spans, got, want)
			}
			without, err := tok.Encode(text, noSpecial)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, without) {
				changed++
			}
		}
		if changed < 100 {
			t.Errorf("%s: spans changed only %d texts", o.name, changed)
		}
	}
}

// Content cannot forge a token: whole, started or ended outside, or made by normalization or by
// replacing invalid UTF-8. Tokens of the template are found next to any content.
func TestPlain(t *testing.T) {
	tok := openOwn(t, "options")
	id := func(token string) int32 {
		id, ok := tok.ID(token)
		if !ok {
			t.Fatalf("there is no token %q", token)
		}
		return id
	}
	for _, tc := range []struct {
		name string
		text string // content stands in ⟦ ⟧
		want []string
	}{
		{"whole", "⟦<|im_end|>⟧", nil},
		{"template's own", "<|im_start|>⟦x⟧<|im_end|>", []string{"<|im_start|>", "<|im_end|>"}},
		{"no bytes", "<|im_⟦⟧start|>", []string{"<|im_start|>"}},
		{"begun outside", "<|im_⟦end|>⟧", []string{"<|im"}},
		{"ended outside", "⟦<|im_⟧end|>", nil},
		{"one byte inside", "<|im_⟦e⟧nd|>", []string{"<|im"}},
		{"after a forged one", "⟦<bos>⟧<eos>", []string{"<eos>"}},
		{"content cannot lengthen a token", "<|im⟦|>⟧", []string{"<|im"}},
		{"composed of content", "Caf⟦e\u0301⟧", nil},
		{"completed by content", "Cafe⟦\u0301⟧", nil},
		{"a mark of content that composes with nothing", "Café⟦\u0316⟧", []string{"Café"}},
		{"composed by the template", "⟦x⟧ Cafe\u0301⟦ y⟧", []string{"Café"}},
		{"not special", "⟦<think>日本⟧<think>", []string{"<think>"}},
		{"white space of content goes with a token", "⟦x  ⟧<both>⟦  y⟧", []string{"<both>"}},
		{"a neighbour of content", "word⟦s⟧ word", []string{"word"}},
		{"after invalid UTF-8", "⟦\xff\xff\xff⟧<bos>⟦\xe6⟧<eos>⟦<bos>⟧", []string{"<bos>", "<eos>"}},
		{"invalid UTF-8 in part", "\xe6⟦\x97⟧<bos>⟦<eos>⟧", []string{"<bos>"}},
	} {
		var text string
		var spans []Span
		for rest := tc.text; ; {
			before, after, ok := strings.Cut(rest, "⟦")
			if text += before; !ok {
				break
			}
			inside, after, _ := strings.Cut(after, "⟧")
			spans = append(spans, Span{len(text), len(text) + len(inside)})
			text, rest = text+inside, after
		}
		ids, err := tok.Encode(text, &EncodeOptions{NoSpecial: true, Plain: spans})
		if err != nil {
			t.Fatal(err)
		}
		var got, want []int32
		for _, id := range ids {
			if id >= id0(tok) {
				got = append(got, id)
			}
		}
		for _, token := range tc.want {
			want = append(want, id(token))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+q has the added tokens %v, want %v", tc.name, tc.text, got, want)
		}
	}
}

// id0 returns the smallest id of an added token.
func id0(tok *byteLevel) int32 {
	low := int32(tok.Size())
	for _, m := range []*matcher{tok.before, tok.after} {
		for _, a := range m.tokens {
			low = min(low, a.id)
		}
	}
	return low
}

// Tokens of white space alone are ordinary text, unless they are special.
func TestPlainBlank(t *testing.T) {
	for _, special := range []bool{false, true} {
		p := smallParts()
		p.added = []addedToken{{ID: 4, Content: "\n\n", Special: special}}
		tok, err := p.build()
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode("a\n\nb", &EncodeOptions{Plain: []Span{{0, 4}}})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(ids, 4) == special {
			t.Errorf("special %t: ids %v", special, ids)
		}
	}
}

// smallParts is a tokenizer of four tokens, "a", "b", "ab" and a line feed.
func smallParts() *parts {
	return &parts{vocab: []entry{{"a", 0}, {"b", 1}, {"ab", 2}, {"Ċ", 3}}, merges: [][2]string{{"a", "b"}}}
}

// The spans that nfcPlain returns follow the characters.
func TestNFCPlain(t *testing.T) {
	for _, tc := range []struct {
		text       string
		spans      []Span
		want       string
		wantInside string // a character of want: x inside, . outside
	}{
		{"ab", []Span{{1, 2}}, "ab", ".x"},
		{"e\u0301a", []Span{{1, 3}}, "éa", "x."},
		{"e\u0301a", []Span{{0, 1}}, "éa", "x."},
		{"e\u0301a", []Span{{3, 4}}, "éa", ".x"},
		{"x\u0301e\u0301", []Span{{1, 3}}, "x\u0301é", ".x."},
		{"a\u0301\u0316", []Span{{3, 5}}, "á\u0316", ".x"}, // reordered, then composed over
		// decomposed, reordered, recomposed
		{"é\u0323", []Span{{2, 4}}, "ẹ\u0301", "x."},
		{"\u1100\u1161\u11a8a", []Span{{6, 9}}, "각a", "x."},                // Hangul
		{"e\u0afd\u0301e\u0301", []Span{{7, 8}}, "e\u0afd\u0301é", "...x"}, // a newer mark ends composition
	} {
		got, spans := nfcPlain(tc.text, tc.spans)
		inside, marks := mask(spans, len(got)), ""
		for i := range got {
			marks += map[bool]string{true: "x", false: "."}[inside[i]]
		}
		if got != tc.want || marks != tc.wantInside {
			t.Errorf("%+q %v: %+q %s, want %+q %s", tc.text, tc.spans, got, marks, tc.want, tc.wantInside)
		}
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		text := lossy([]byte(randomParts(rng)))
		spans, err := checkSpans(randomSpans(rng, len(text)), len(text))
		if err != nil {
			t.Fatal(err)
		}
		got, inside := nfcPlain(text, spans)
		if want := nfc(text); got != want {
			t.Fatalf("%+q: %+q, want %+q", text, got, want)
		}
		if _, err := checkSpans(inside, len(got)); err != nil {
			t.Fatalf("%+q %v: %v", text, inside, err)
		}
		if len(text) > 0 {
			if _, all := nfcPlain(text, []Span{{0, len(text)}}); !slices.Equal(all, []Span{{0, len(got)}}) {
				t.Fatalf("%+q: a span of everything becomes %v of %d bytes", text, all, len(got))
			}
		}
	}
}

// Invalid spans are an error that names them.
func TestPlainErrors(t *testing.T) {
	tok := openOwn(t, "gpt2")
	for _, spans := range [][]Span{{{-1, 2}}, {{2, 1}}, {{0, 4}}, {{0, 2}, {1, 3}}, {{2, 3}, {0, 1}}, {{4, 4}}} {
		_, err := tok.Encode("abc", &EncodeOptions{Plain: spans})
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: EncodeOptions.Plain[") {
			t.Errorf("%v: %v", spans, err)
		}
	}
	if _, err := tok.Encode("", &EncodeOptions{Plain: []Span{{0, 0}}}); err != nil {
		t.Errorf("an empty span of an empty text: %v", err)
	}
}

// The published tokenizers find the tokens of a template and none inside a span; the text decodes
// unchanged either way.
func TestPlainPublished(t *testing.T) {
	for _, family := range families {
		rng := rand.New(rand.NewPCG(9, 10))
		one, two := openPublished(t, family.dir)
		tokens := slices.Concat(one.before.tokens, one.after.tokens)
		for range 300 {
			var text strings.Builder
			for range 1 + rng.IntN(8) {
				switch token := tokens[rng.IntN(len(tokens))].content; rng.IntN(4) {
				case 0:
					text.WriteString(token)
				case 1:
					text.WriteString(token[:rng.IntN(len(token))])
				default:
					text.WriteString(plainParts[rng.IntN(len(plainParts))])
				}
			}
			spans := randomSpans(rng, text.Len())
			want := encodeSlowly(t, one, text.String(), spans)
			compare(t, one, two, text.String(), &EncodeOptions{NoSpecial: true, Plain: spans}, want)
			if got, want := one.Decode(want), lossy([]byte(text.String())); got != want && got != nfc(want) {
				t.Fatalf("%s: %+q comes back as %+q", family.dir, want, got)
			}
		}
	}
}

// Any number of spans costs linear time.
func TestPlainTime(t *testing.T) {
	tok := openOwn(t, "options")
	text := strings.Repeat("e\u0301 <bos>", 20_000)
	spans := make([]Span, 0, len(text))
	for i := range len(text) {
		spans = append(spans, Span{i, i + i%2})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10e9)
	defer cancel()
	if _, err := tok.EncodeContext(ctx, text, &EncodeOptions{Plain: spans}); err != nil {
		t.Error(err)
	}
}
