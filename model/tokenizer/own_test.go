package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// own are the tokenizers of testdata, all with the same small vocabulary, with the name of the
// equivalent GGUF pre-tokenizer. Those without one use features that GGUF cannot express.
var own = []struct{ name, pre string }{
	{"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"gpt2", "gpt-2"}, {"smollm2", "smollm"}, {"options", ""},
	{"o200k", ""},
}

func ownPath(name string) string { return filepath.Join("testdata", name+".json") }

func openOwn(t testing.TB, name string) *byteLevel {
	t.Helper()
	tok, err := openByteLevel(ownPath(name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// ownVectors are references by Hugging Face's library: see testdata/make.py.
type ownVectors struct {
	Cases []struct {
		Text    string
		IDs     []int32
		Decoded *string // without special tokens, where it differs from Text
	}
	IDs []struct {
		IDs       []int32
		All, Text string // with and without special tokens
	}
	Long []struct {
		Unit   string
		Times  int
		Count  int
		SHA256 string // of the ids, int32 little-endian
	}
}

func readOwnVectors(t *testing.T, name string) (v ownVectors) {
	t.Helper()
	readJSON(t, filepath.Join("testdata", name+".vectors.json"), &v)
	if len(v.Cases) < 200 || len(v.IDs) < 50 || len(v.Long) < 9 {
		t.Fatalf("%s: %d texts, %d lists of ids, %d long texts", name, len(v.Cases), len(v.IDs), len(v.Long))
	}
	return v
}

// Ids and decoded text agree with Hugging Face's library, from tokenizer.json and from GGUF
// metadata.
func TestOwnVectors(t *testing.T) {
	for _, o := range own {
		t.Run(o.name, func(t *testing.T) {
			v := readOwnVectors(t, o.name)
			fromJSON := openOwn(t, o.name)
			vocabTok := fromJSON
			if o.pre != "" {
				vocab := vocabOf(t, ownPath(o.name), o.pre)
				if o.pre == "llama-bpe" {
					vocab.BOS, vocab.AddBOS = slices.Index(vocab.Tokens, "<bos>"), true
				}
				var err error
				if vocabTok, err = fromVocab(vocab); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range v.Cases {
				compare(t, fromJSON, vocabTok, c.Text, nil, c.IDs)
				want := c.Text
				if c.Decoded != nil {
					want = *c.Decoded
				}
				if got := fromJSON.Text(c.IDs); got != want {
					t.Errorf("%+q decodes to %+q, want %+q", c.Text, got, want)
				}
			}
			for _, c := range v.IDs {
				for _, tok := range []*byteLevel{fromJSON, vocabTok} {
					if got := tok.Decode(c.IDs); got != c.All {
						t.Errorf("Decode(%v) = %+q, want %+q", c.IDs, got, c.All)
					}
					if got := tok.Text(c.IDs); got != c.Text {
						t.Errorf("Text(%v) = %+q, want %+q", c.IDs, got, c.Text)
					}
				}
			}
			for _, c := range v.Long {
				ids, err := fromJSON.Encode(strings.Repeat(c.Unit, c.Times), nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := digest(ids); len(ids) != c.Count || got != c.SHA256 {
					t.Errorf("%d times %q: %d ids with the digest %s, want %d with %s", c.Times, c.Unit, len(ids), got,
						c.Count, c.SHA256)
				}
			}
		})
	}
}

func digest(ids []int32) string {
	var data []byte
	for _, id := range ids {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Invalid UTF-8 is encoded as U+FFFD.
func TestInvalidUTF8(t *testing.T) {
	var cases [][2]string // bytes in hexadecimal, text by Python's bytes.decode(errors="replace")
	readJSON(t, filepath.Join("testdata", "lossy.json"), &cases)
	if len(cases) < 300 {
		t.Fatalf("%d cases", len(cases))
	}
	tok := openOwn(t, "llama3")
	for _, c := range cases {
		bytes, err := hex.DecodeString(c[0])
		if err != nil {
			t.Fatal(err)
		}
		want, err := tok.Encode(c[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, tok, tok, string(bytes), nil, want)
		if got := lossy(bytes); got != c[1] {
			t.Errorf("lossy(% x) = %+q, want %+q", bytes, got, c[1])
		}
		// The same if each byte is a token of its own.
		var ids []int32
		for _, b := range bytes {
			ids = append(ids, tok.bpe.bytes[b])
		}
		if got := tok.Decode(ids); got != c[1] {
			t.Errorf("the bytes % x as tokens decode to %+q, want %+q", bytes, got, c[1])
		}
		s := tok.Stream()
		got := ""
		for _, id := range ids {
			got += s.Next(id)
		}
		if got += s.Flush(); got != c[1] {
			t.Errorf("the bytes % x are streamed as %+q, want %+q", bytes, got, c[1])
		}
	}
}
