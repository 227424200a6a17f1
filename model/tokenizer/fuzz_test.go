package tokenizer

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Any text decodes from its ids, with U+FFFD for invalid UTF-8. A stream returns the same text as
// Decode, in whole characters. With spans, the ids agree with the definition. Cuts are the
// distances between the ends of spans.
func FuzzEncode(f *testing.F) {
	for b := range 256 {
		f.Add(string([]byte{byte(b)}), []byte{0, 1})
	}
	for _, text := range []string{"", "What is gravity?", "don't I'LL\r\n\n  x", "4½ 12345", "e\u0301\u0323",
		"👩\u200d👧 日本語", "a<bos> <left> word <both>\n", "\U00010d4a\U0002ebf0", "a\xff\xe6\x97b",
		"Z" + strings.Repeat("\u0316", 40) + "\u0301", "<|im_start|>user\n<|im_end|>x<|im_end|>",
		"Cafe\u0301 <both> \xe6<eos>"} {
		f.Add(text, []byte{1, 2, 3, 4})
		f.Add(text, []byte{6, 200})
	}
	toks := map[string]*byteLevel{}
	for _, o := range own {
		toks[o.name] = openOwn(f, o.name)
	}
	f.Fuzz(func(t *testing.T, text string, cuts []byte) {
		var spans []Span
		for at := 0; len(cuts) > 1; cuts = cuts[2:] {
			start := min(len(text), at+int(cuts[0]))
			at = min(len(text), start+int(cuts[1]))
			spans = append(spans, Span{start, at})
		}
		for name, tok := range toks {
			plain, err := tok.Encode(text, &EncodeOptions{NoSpecial: true, Plain: spans})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want := encodeSlowly(t, tok, text, spans); !slices.Equal(plain, want) {
				t.Fatalf("%s: %+q with spans %v gives %v, want %v", name, text, spans, plain, want)
			}
			ids, err := tok.Encode(text, noSpecial)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := tok.Encode(text, noSpecial) // from the cache
			if err != nil || !slices.Equal(again, ids) {
				t.Fatalf("%s: %+q gives %v, then %v, %v", name, text, ids, again, err)
			}
			decoded := tok.Decode(ids)
			if name != "options" && !tok.nfc && decoded != lossy([]byte(text)) {
				t.Fatalf("%s: %+q comes back as %+q", name, text, decoded)
			}
			// NFC only replaces characters by equivalent ones.
			if name != "options" && tok.nfc && !slices.Equal(decompose(decoded), decompose(lossy([]byte(text)))) {
				t.Fatalf("%s: %+q comes back as %+q, which is another text", name, text, decoded)
			}
			s := tok.Stream()
			s.Special = true
			streamed := ""
			for _, id := range ids {
				piece := s.Next(id)
				if !utf8.ValidString(piece) {
					t.Fatalf("%s: a piece of %+q is no UTF-8: %q", name, text, piece)
				}
				streamed += piece
			}
			if streamed += s.Flush(); streamed != decoded {
				t.Fatalf("%s: %+q is streamed as %+q, decoded as %+q", name, text, streamed, decoded)
			}
		}
	})
}

// No file makes Parse panic or hang, errors have the prefix of the package, and an accepted file is
// usable.
func FuzzParse(f *testing.F) {
	for _, o := range own {
		data, err := os.ReadFile(ownPath(o.name))
		if err != nil {
			f.Fatal(err)
		}
		j := decodeJSON(f, data)
		model := j["model"].(object)
		model["vocab"], model["merges"] = object{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "ć": 4}, []any{[]any{"a", "b"}}
		ids := []string{} // old, new, old, new ...
		for i, token := range j["added_tokens"].([]any) {
			ids = append(ids, fmt.Sprintf(`"ids":[%v]`, token.(object)["id"]), fmt.Sprintf(`"ids":[%d]`, 5+i))
			token.(object)["id"] = 5 + i
		}
		small := []byte(strings.NewReplacer(ids...).Replace(string(encodeJSON(f, j))))
		if _, err := parseByteLevel(bytes.NewReader(small)); err != nil {
			f.Fatalf("%s made small: %v", o.name, err)
		}
		f.Add(small)
		f.Add(bytes.Replace(small, []byte(`["a","b"]`), []byte(`"a b"`), 1))
	}
	f.Add([]byte("{}"))
	f.Add(gzipped(f, []byte(`{"model":{"type":"BPE"}}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := parseByteLevel(bytes.NewReader(data))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "tokenizer: ") {
				t.Fatalf("%q does not name the package", err)
			}
			return
		}
		ids, err := tok.Encode("ab <bos>\abé1\xff", nil)
		if err != nil && !strings.HasPrefix(err.Error(), "tokenizer: ") {
			t.Fatalf("%q does not name the package", err)
		}
		for _, id := range ids {
			if _, ok := tok.Token(id); !ok {
				t.Fatalf("the id %d has no token", id)
			}
		}
		tok.Decode(ids)
		for id := int32(-1); int(id) <= tok.Size(); id++ {
			token, ok := tok.Token(id)
			if again, found := tok.ID(token); ok && !found && !strings.ContainsFunc(token,
				func(r rune) bool { return r < '!' || r > '~' }) {
				t.Fatalf("token %q of id %d has the id %d, %t", token, id, again, found)
			}
		}
	})
}

func TestParseNil(t *testing.T) {
	if _, err := parseByteLevel(nil); err == nil {
		t.Error("a nil reader was accepted")
	}
}
