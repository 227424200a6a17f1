package tokenizer

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// Token, ID, IsSpecial and String.
func TestTokens(t *testing.T) {
	tok := openOwn(t, "options")
	size := int32(tok.Size())
	for _, tc := range []struct {
		written, text string // as the vocabulary writes it, and its bytes
		special       bool
	}{
		{"a", "a", false}, {"Ġthe", " the", false}, {"Ċ", "\n", false}, {"<bos>", "<bos>", true},
		{"<left>", "<left>", true},
		{"<think>", "<think>", false}, {"日本", "日本", false},
	} {
		id, ok := tok.ID(tc.written)
		if !ok {
			t.Errorf("%q has no id", tc.written)
			continue
		}
		if text, ok := tok.Token(id); !ok || text != tc.text || tok.IsSpecial(id) != tc.special {
			t.Errorf("%q, id %d, is %q, %t, special %t; want %q, special %t", tc.written, id, text, ok,
				tok.IsSpecial(id), tc.text, tc.special)
		}
	}
	for _, absent := range []string{"", "zzz", " the", "日", "<none>", "ć"} {
		if id, ok := tok.ID(absent); ok {
			t.Errorf("%q has the id %d", absent, id)
		}
	}
	for _, id := range []int32{-1, size, 1<<31 - 1, -1 << 31} {
		if text, ok := tok.Token(id); ok || tok.IsSpecial(id) || tok.Decode([]int32{id}) != "" {
			t.Errorf("id %d is %q", id, text)
		}
	}
	bos, _ := tok.ID("<bos>")
	eos, _ := tok.ID("<eos>")
	if !slices.Equal(tok.prefix, []int32{bos}) || !slices.Equal(tok.suffix, []int32{eos}) {
		t.Errorf("around the text: %v and %v, want %d and %d", tok.prefix, tok.suffix, bos, eos)
	}
	if got, want := openOwn(t, "llama3").String(), "byte-level BPE, 712 tokens"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

// EOS of GGUF metadata is added after the text. A missing BOS is not added.
func TestVocabAround(t *testing.T) {
	v := vocabOf(t, ownPath("gpt2"), "default")
	v.BOS, v.AddBOS, v.EOS, v.AddEOS = -1, true, slices.Index(v.Tokens, "<eos>"), true
	tok, err := fromVocab(v)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Decode(ids); got != "a<eos>" {
		t.Errorf("%q, want %q", got, "a<eos>")
	}
}

// NFC may be in a sequence. It stops at a mark that is newer than Hugging Face's Unicode data.
func TestNormalizerSequence(t *testing.T) {
	j := base(t, "gpt2")
	j["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"}}}
	tok, err := parseByteLevel(bytes.NewReader(encodeJSON(t, j)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range [][2]string{
		{"e\u0301", "é"}, {"e\u0301\u1ac5", "é\u1ac5"}, {"e\u1ac5\u0301", "e\u1ac5\u0301"},
		{"\u212b\U00011930\U00011935", "Å\U00011930\U00011935"},
		{"A\u030a\u1ac5\u1ac6", "Å\u1ac5\u1ac6"}, {"é", "é"},
	} {
		ids, err := tok.Encode(tc[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(ids); got != tc[1] {
			t.Errorf("%+q becomes %+q, want %+q", tc[0], got, tc[1])
		}
	}
}

// ByteLevel splits words by default: GPT-2's own file is older than the option.
func TestByteLevelCutsByDefault(t *testing.T) {
	j := base(t, "gpt2")
	delete(j["pre_tokenizer"].(object), "use_regex")
	tok, err := parseByteLevel(bytes.NewReader(encodeJSON(t, j)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range readOwnVectors(t, "gpt2").Cases {
		compare(t, tok, tok, c.Text, nil, c.IDs)
	}
}

// Ids may have gaps, which decode to nothing.
func TestGaps(t *testing.T) {
	j := base(t, "gpt2")
	j["model"].(object)["vocab"].(object)["QQ"] = 5000
	tok, err := parseByteLevel(bytes.NewReader(encodeJSON(t, j)))
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Decode([]int32{5000, 4000, 5000}); got != "QQQQ" || tok.Size() != 5001 {
		t.Errorf("%q, size %d", got, tok.Size())
	}
}

// Open returns a *Tokenizer if it can read the file, else the reason.
func TestOpen(t *testing.T) {
	c, err := Open(ownPath("gpt2"))
	if _, ok := c.(*byteLevel); !ok || err != nil {
		t.Errorf("%T, %v", c, err)
	}
	if _, err := Open(t.TempDir() + "/absent.json"); err == nil || errors.As(err, new(*UnsupportedError)) {
		t.Errorf("an absent file: %v", err)
	}
}
