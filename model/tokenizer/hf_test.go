//go:build hftokenizers

package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/npukit/npukit/internal/testenv"
)

func openHF(t *testing.T, path string) *library {
	t.Helper()
	h, err := openLibrary(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// Ids and texts agree with Hugging Face's library, on text made of difficult pieces.
func TestHFAgrees(t *testing.T) {
	agree := func(t *testing.T, name, path string, texts int, ours ...*byteLevel) {
		theirs := openHF(t, path)
		rng := rand.New(rand.NewPCG(1, 2))
		for n := range texts {
			text := strings.ReplaceAll(randomText(rng, ours[0]), "\x00", "\x01")
			if name == "o200k" { // its pattern goes to regexp2, which has Go's Unicode tables
				text = strings.Map(oldUnicode, text)
			}
			opts := &EncodeOptions{NoSpecial: n%2 == 1}
			want, err := theirs.Encode(text, opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, tok := range ours {
				if got, err := tok.Encode(text, opts); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%s: Encode(%+q) = %v, %v, want %v", name, text, got, err, want)
				}
			}
			ids := want
			if n%4 == 0 {
				ids = nil
				for range 1 + rng.IntN(12) {
					if id := rng.Int32N(int32(ours[0].Size()) + 2); !strings.Contains(ours[0].Decode([]int32{id}),
						"\x00") {
						ids = append(ids, id)
					}
				}
			}
			text, err = theirs.decode(ids, false)
			if got := ours[0].Decode(ids); got != text || err != nil {
				t.Fatalf("%s: Decode(%v) = %+q, want %+q (%v)", name, ids, got, text, err)
			}
			text, err = theirs.decode(ids, true)
			if got := ours[0].Text(ids); got != text || err != nil {
				t.Fatalf("%s: Text(%v) = %+q, want %+q (%v)", name, ids, got, text, err)
			}
		}
	}
	for _, o := range own {
		t.Run(o.name, func(t *testing.T) { agree(t, o.name, ownPath(o.name), 1500, openOwn(t, o.name)) })
	}
	for _, f := range families {
		t.Run(f.dir, func(t *testing.T) {
			a, b := openPublished(t, f.dir)
			agree(t, f.dir, filepath.Join(testenv.Shared(t, "tokenizers/"+f.dir), "tokenizer.json.gz"), 2000, a, b)
		})
	}
}

// oldUnicode replaces letters that Go's Unicode tables lack with older ones.
func oldUnicode(r rune) rune {
	if unicode.In(r, letters, numbers) {
		return 'é'
	}
	return r
}

// randomText mixes scripts, new Unicode characters, emoji, white space, digits, control characters,
// contractions and added tokens.
func randomText(rng *rand.Rand, tok *byteLevel) string {
	var b strings.Builder
	for range 1 + rng.IntN(14) {
		switch k := rng.IntN(20); {
		case k < 7:
			b.WriteString(troubles[rng.IntN(len(troubles))])
		case k == 7:
			if list := tok.addedTokens(); len(list) > 0 {
				b.WriteString(list[rng.IntN(len(list))])
			}
		default:
			r := scripts[rng.IntN(len(scripts))]
			for range 1 + rng.IntN(6) {
				b.WriteRune(r[0] + rng.Int32N(r[1]-r[0]+1))
			}
		}
		if rng.IntN(3) == 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// addedTokens returns the contents of the added tokens, in order.
func (t *byteLevel) addedTokens() (list []string) {
	for content := range t.added {
		list = append(list, content)
	}
	slices.Sort(list)
	return list
}

var troubles = []string{"don't", "I'LL", "we'Ve", "'ſ", "\r\n", "\n\n", "  \n", "    ", "\t\t", "hello", " world",
	"12345", "½", "naïve",
	"日本語", "€", "👩‍👩‍👧", "👍🏽",
	"e\u0301\u0323", "A\u1ac5\u0301", "\u212b", "...", "://", " word ", "Cafe\u0301",
	"\u00a0",
	"a" + strings.Repeat("\u0316", 40) + "\u0301", strings.Repeat("\u0301\u0323", 9),
	"\u1100" + strings.Repeat("\u0301", 33) + "\u1161", "\u3000", "\u2028", "\u0085"}

var scripts = [][2]rune{{' ', '~'}, {' ', '~'}, {'a', 'z'}, {'0', '9'}, {0x01, 0x1f}, {0x7f, 0xa0}, {0xa1, 0x24f},
	{0x300, 0x36f},
	{0x370, 0x52f}, {0x590, 0x6ff}, {0x900, 0xd7f}, {0xe00, 0xeff}, {0x1100, 0x11ff}, {0x1ab0, 0x1ace},
	{0x1e00, 0x206f}, {0x2150, 0x218f}, {0x2460, 0x24ff}, {0x3040, 0x30ff},
	{0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0xfe00, 0xfe0f}, {0x10d40, 0x10d85}, {0x11930, 0x1193f}, {0x1ccf0, 0x1ccf9},
	{0x1d7ce, 0x1d7ff}, {0x1f300, 0x1faff},
	{0x2ebf0, 0x2ee5d}}

// Every character on its own, which shows differences between Unicode versions.
func TestHFEveryCharacter(t *testing.T) {
	for _, name := range []string{"llama3", "smollm2", "qwen2"} {
		ours, theirs := openOwn(t, name), openHF(t, ownPath(name))
		for r := rune(1); r <= 0x323af; r += 7 {
			if r >= 0xd800 && r <= 0xf8ff { // surrogates and private use
				continue
			}
			text := fmt.Sprintf("a%cb 1%[1]c2 .%[1]c,%[1]c\u0301", r)
			want, err := theirs.Encode(text, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := ours.Encode(text, nil); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: U+%04X in %+q: ids %v, %v, want %v", name, r, text, got, err, want)
			}
		}
	}
}

// Truncation and padding in the file have no effect.
func TestHFTruncationIsIgnored(t *testing.T) {
	j := base(t, "gpt2")
	j["truncation"] = object{"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
	j["padding"] = object{"strategy": object{"Fixed": 500}, "direction": "Right", "pad_to_multiple_of": nil,
		"pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, encodeJSON(t, j), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("gravity ", 20)
	want, err := openOwn(t, "gpt2").Encode(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := openHF(t, path).Encode(text, nil); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d ids, %v, want %d", len(got), err, len(want))
	}
}

// Text that the library cannot represent is an error.
func TestHFNul(t *testing.T) {
	ours, theirs := openOwn(t, "gpt2"), openHF(t, ownPath("gpt2"))
	if ids, err := theirs.Encode("a\x00b", nil); err == nil || !strings.Contains(err.Error(),
		"NUL character, at byte 1") {
		t.Errorf("a text with NUL: %v, %v", ids, err)
	}
	ids, err := ours.Encode("a\x00b", nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := theirs.decode(ids, false); err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("decoding a NUL: %q, %v", text, err)
	}
	bos, _ := ours.ID("<bos>")
	for _, ids := range [][]int32{nil, {bos}, {-1}, {1 << 30}, {bos, -5, bos}} {
		if text, err := theirs.decode(ids, true); text != "" || err != nil {
			t.Errorf("Text(%v) = %q, %v, want nothing", ids, text, err)
		}
	}
}

func TestHFOpenErrors(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "tokenizer.json")
	for _, content := range []string{"", "{}", `{"model": 5}`, "\x1f\x8bnothing"} {
		if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := openLibrary(bad, nil); err == nil || !strings.HasPrefix(err.Error(), "tokenizer: "+bad+": ") {
			t.Errorf("%q: %v, %v, want an error that names the file", content, h, err)
		}
	}
	if _, err := openLibrary(bad+".absent", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

// A kind of tokenizer that Open rejects: words by white space.
func TestHFOtherKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	const words = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
		"normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},
		"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"what":0,"is":1,"gravity":2,"?":3,
		"[UNK]":4},"unk_token":"[UNK]"}}`
	if err := os.WriteFile(path, []byte(words), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openByteLevel(path); err == nil || !strings.Contains(err.Error(), "hftokenizers") {
		t.Errorf("Open: %v, want an error that names the build tag", err)
	}
	h := openHF(t, path)
	ids, err := h.Encode("What is this gravity?", nil)
	if want := []int32{0, 1, 4, 2, 3}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("ids %v, %v, want %v", ids, err, want)
	}
	if text, err := h.decode([]int32{0, 1, 2, 3}, false); text != "what is gravity ?" || err != nil {
		t.Errorf("decoded %q, %v", text, err)
	}
}

// Flush returns the text that a stream held back: texts that end in U+FFFD or inside a character
// are as long as with decode.
func TestHFStream(t *testing.T) {
	ours, theirs := openOwn(t, "gpt2"), openHF(t, ownPath("gpt2"))
	for _, text := range []string{"abc", "abc \ufffd", "ok \ufffd\ufffd", "ok 🦙", "🦙🦙", "日本語"} {
		ids, err := ours.Encode(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(ids) + 1 {
			want, err := theirs.decode(ids[:n], false)
			if err != nil {
				t.Fatal(err)
			}
			s := theirs.Stream()
			s.Special = true
			for range 2 { // the second time after Flush: another text
				got := ""
				for _, id := range ids[:n] {
					got += s.Next(id)
				}
				if got += s.Flush(); got != want {
					t.Errorf("%v is streamed as %+q, want %+q", ids[:n], got, want)
				}
			}
		}
	}
}

// Close may be called twice, and while others encode.
func TestHFClose(t *testing.T) {
	h := openHF(t, ownPath("qwen2"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if ids, err := h.Encode("What is gravity?", nil); err == nil && len(ids) == 0 || err != nil &&
					err != errClosed {
					t.Errorf("%v, %v", ids, err)
				}
			}
		})
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if _, err := h.Encode("x", nil); err != errClosed {
		t.Errorf("Encode after Close: %v", err)
	}
	if _, err := h.decode([]int32{1}, false); err != errClosed {
		t.Errorf("Decode after Close: %v", err)
	}
}

// Spans do not change ids if content has no added token, and are an error otherwise: Tokenizer and
// the library agree on the texts.
func TestHFPlain(t *testing.T) {
	for _, o := range own {
		ours, theirs := openOwn(t, o.name), openHF(t, ownPath(o.name))
		rng := rand.New(rand.NewPCG(11, 12))
		equal, refused := 0, 0
		for range 2000 {
			text := randomParts(rng)
			opts := &EncodeOptions{NoSpecial: true, Plain: randomSpans(rng, len(text))}
			want, err := ours.Encode(text, opts)
			if err != nil {
				t.Fatal(err)
			}
			got, err := theirs.Encode(text, opts)
			switch {
			case err != nil && strings.Contains(err.Error(), "the message content has the text of the token"):
				if whole, err := theirs.Encode(text, noSpecial); err != nil || slices.Equal(whole, want) {
					t.Fatalf("%s: %+q, spans %v: refused, though nothing in it is forged (%v)", o.name, text,
						opts.Plain, err)
				}
				refused++
			case err != nil:
				t.Fatal(err)
			case !slices.Equal(got, want):
				t.Fatalf("%s: %+q, spans %v: %v, want %v", o.name, text, opts.Plain, got, want)
			default:
				equal++
			}
		}
		if equal < 100 || refused < 100 {
			t.Errorf("%s: %d texts equal, %d refused", o.name, equal, refused)
		}
	}
}

// The library receives the tokens of added_tokens_decoder, and a different id is an error.
func TestHFFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", metaspace)
	write("tokenizer_config.json", `{"added_tokens_decoder": {"9": {"content": "<tool>", "special": true}}}`)
	c, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.(*library).Close()
	if ids, err := c.Encode("a<tool>b", noSpecial); err != nil || !slices.Contains(ids, 9) {
		t.Errorf("ids %v, %v", ids, err)
	}
	if _, err := c.Encode("a<tool>b", &EncodeOptions{Plain: []Span{{1, 8}}}); err == nil {
		t.Error("a forged token is no error")
	}
	for decoder, want := range map[string]string{
		`{"12": {"content": "<tool>"}}`: `the token "<tool>" the id 12, which Hugging Face's library does not`,
		`{"3": {"content": "<tool>"}}`:  `has the id 3 of "▁a"`,
	} {
		write("tokenizer_config.json", `{"added_tokens_decoder": `+decoder+`}`)
		if _, err := OpenFolder(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", decoder, err)
		}
	}
}
