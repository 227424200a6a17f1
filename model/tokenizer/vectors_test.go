package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
)

// families are the published tokenizers, with the names of their vectors.
var families = []struct{ dir, rust, llama string }{
	{"llama-3", "llama3", "llama-bpe"},
	{"qwen2.5", "qwen2.5", "qwen2"},
	{"qwen3", "qwen3", ""},
	{"smollm2", "smollm2", "smollm"},
}

// opened caches the results of openPublished, which takes most of the time of these tests.
var opened sync.Map

func publishedPath(t testing.TB, dir string) string {
	t.Helper()
	return filepath.Join(testenv.Shared(t, "tokenizers/"+dir), "tokenizer.json.gz")
}

// openPublished opens a published tokenizer twice: from its tokenizer.json, and from the equivalent
// GGUF metadata.
func openPublished(t testing.TB, dir string) (fromJSON, vocabTok *byteLevel) {
	t.Helper()
	path := publishedPath(t, dir)
	if two, ok := opened.Load(dir); ok {
		return two.([2]*byteLevel)[0], two.([2]*byteLevel)[1]
	}
	fromJSON, err := openByteLevel(path)
	if err != nil {
		t.Fatal(err)
	}
	vocabTok, err = fromVocab(vocabOf(t, path, map[string]string{"llama-3": "llama-bpe", "qwen2.5": "qwen2",
		"qwen3": "qwen2", "smollm2": "smollm"}[dir]))
	if err != nil {
		t.Fatal(err)
	}
	opened.Store(dir, [2]*byteLevel{fromJSON, vocabTok})
	return fromJSON, vocabTok
}

// vocabOf converts a tokenizer.json to GGUF metadata, as converters do.
func vocabOf(t testing.TB, path, pre string) Vocab {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := read(f)
	if err != nil {
		t.Fatal(err)
	}
	var j struct {
		AddedTokens []addedToken `json:"added_tokens"`
		Model       struct {
			Vocab  map[string]int32
			Merges []json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &j); err != nil {
		t.Fatal(err)
	}
	size := int32(0)
	for _, id := range j.Model.Vocab {
		size = max(size, id+1)
	}
	for _, a := range j.AddedTokens {
		size = max(size, a.ID+1)
	}
	v := Vocab{Model: "gpt2", Pre: pre, Tokens: make([]string, size), Types: make([]int32, size), BOS: -1, EOS: -1}
	for token, id := range j.Model.Vocab {
		v.Tokens[id], v.Types[id] = token, 1
	}
	for _, a := range j.AddedTokens {
		v.Tokens[a.ID], v.Types[a.ID] = a.Content, typeUserDefined
		if a.Special {
			v.Types[a.ID] = typeControl
		}
	}
	for _, raw := range j.Model.Merges {
		var pair [2]string
		var both string
		if json.Unmarshal(raw, &both) != nil {
			if err := json.Unmarshal(raw, &pair); err != nil {
				t.Fatal(err)
			}
			both = pair[0] + " " + pair[1]
		}
		v.Merges = append(v.Merges, both)
	}
	if pre == "llama-bpe" {
		v.BOS, v.AddBOS = 128000, true
	}
	return v
}

// compare checks the ids of a text from both sources.
func compare(t *testing.T, a, b *byteLevel, text string, opts *EncodeOptions, want []int32) {
	t.Helper()
	for source, tok := range map[string]*byteLevel{"tokenizer.json": a, "GGUF": b} {
		got, err := tok.Encode(text, opts)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if !slices.Equal(got, want) {
			i := 0
			for i < len(got) && i < len(want) && got[i] == want[i] {
				i++
			}
			t.Errorf("%s: %.80q: ids differ from number %d on: %v, want %v", source, text, i,
				got[i:min(len(got), i+8)], want[i:min(len(want), i+8)])
		}
	}
}

var noSpecial = &EncodeOptions{NoSpecial: true}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// References by Hugging Face's own library, in Rust: 152 texts and three long ones for each family.
func TestRustVectors(t *testing.T) {
	for _, f := range families {
		t.Run(f.dir, func(t *testing.T) {
			a, b := openPublished(t, f.dir)
			var v struct {
				Cases []struct {
					Text string
					IDs  []int32
				}
				Long []struct {
					File       string
					CharOffset int `json:"char_offset"`
					Chars      int
					IDs        []int32
				}
			}
			readJSON(t, testenv.Shared(t, "tokenizer-vectors/hf_rust_goldens/"+f.rust+".json"), &v)
			if len(v.Cases) < 150 || len(v.Long) != 3 {
				t.Fatalf("%d texts and %d long ones", len(v.Cases), len(v.Long))
			}
			for _, c := range v.Cases {
				compare(t, a, b, c.Text, noSpecial, c.IDs)
			}
			for _, l := range v.Long {
				data, err := os.ReadFile(testenv.Shared(t, "text/"+l.File))
				if err != nil {
					t.Fatal(err)
				}
				text := string([]rune(string(data))[l.CharOffset:][:l.Chars])
				compare(t, a, b, text, noSpecial, l.IDs)
				if got := a.Decode(l.IDs); got != text && !a.nfc {
					t.Errorf("%s: decoding gives another text", l.File)
				}
			}
		})
	}
}

// llama.cpp's references: texts between separators, ids a line each.
func TestLlamaCppVectors(t *testing.T) {
	for _, f := range families {
		if f.llama == "" {
			continue
		}
		t.Run(f.llama, func(t *testing.T) {
			a, b := openPublished(t, f.dir)
			name := testenv.Shared(t, "tokenizer-vectors/llama.cpp/ggml-vocab-"+f.llama+".gguf.inp")
			in, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			out, err := os.ReadFile(strings.TrimSuffix(name, "inp") + "out")
			if err != nil {
				t.Fatal(err)
			}
			texts := strings.Split(string(in), "\n__ggml_vocab_test__\n")
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if len(lines) < 46 || len(texts) < len(lines) {
				t.Fatalf("%d texts, %d lines of ids", len(texts), len(lines))
			}
			for i, line := range lines {
				var want []int32
				for _, s := range strings.Fields(line) {
					id, err := strconv.Atoi(s)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, int32(id))
				}
				compare(t, a, b, texts[i], noSpecial, want)
			}
		})
	}
}

func TestOtherVectors(t *testing.T) {
	a, b := openPublished(t, "llama-3")
	for _, name := range []string{"hf_llama3", "tiktoken_from_hf_llama3"} {
		var cases []struct {
			Name, Text string
			TokenIDs   []int32 `json:"token_ids"`
		}
		readJSON(t, testenv.Shared(t, "tokenizer-vectors/tattletale/"+name+".json"), &cases)
		for _, c := range cases {
			compare(t, a, b, c.Text, noSpecial, c.TokenIDs)
		}
	}
	var long struct {
		Text        string
		BPETokens   []string `json:"bpe_tokens"`
		TokenIDs    []int32  `json:"token_ids"`
		DecodedText string   `json:"decoded_text"`
	}
	readJSON(t, testenv.Shared(t, "tokenizer-vectors/swift-transformers/llama_3.2_encoded.json"), &long)
	compare(t, a, b, long.Text, nil, long.TokenIDs) // BOS is part of these
	if got := a.Decode(long.TokenIDs); got != long.DecodedText {
		t.Errorf("decoded: %.80q, want %.80q", got, long.DecodedText)
	}
	for i, token := range long.BPETokens {
		if id, ok := a.ID(token); !ok || id != long.TokenIDs[i+1] {
			t.Errorf("token %q has id %d, want %d", token, id, long.TokenIDs[i+1])
		}
	}
	a, b = openPublished(t, "qwen2.5")
	var qwen []struct {
		Text string
		IDs  []int32
	}
	readJSON(t, testenv.Shared(t, "tokenizer-vectors/swift-transformers/qwen2.5_0.5b_baseline_subset.json"), &qwen)
	for _, c := range qwen {
		compare(t, a, b, c.Text, noSpecial, c.IDs)
	}
}

// The pieces of a stream form the decoded text.
func TestStreamPublished(t *testing.T) {
	for _, f := range families {
		a, _ := openPublished(t, f.dir)
		text := "naïve 日本語 🙂👩‍👩‍👧 Привет\n\tcode() { return \"½\"; }"
		ids, err := a.Encode(text, noSpecial)
		if err != nil {
			t.Fatal(err)
		}
		s := a.Stream()
		got := ""
		for _, id := range ids {
			piece := s.Next(id)
			if strings.ContainsRune(piece, '�') {
				t.Errorf("%s: a piece holds half a character: %q", f.dir, piece)
			}
			got += piece
		}
		if got += s.Flush(); got != text {
			t.Errorf("%s: streamed %q, want %q", f.dir, got, text)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, f := range families {
		for _, name := range []string{"war-and-peace.txt", "gutenberg-23950-romance-three-kingdoms-zh.txt"} {
			b.Run(fmt.Sprintf("%s/%.10s", f.dir, name), func(b *testing.B) {
				t, _ := openPublished(b, f.dir)
				data, err := os.ReadFile(testenv.Shared(b, "text/"+name))
				if err != nil {
					b.Fatal(err)
				}
				text := string(data[:min(len(data), 1<<20)])
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if _, err := t.Encode(text, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, f := range families {
		path := filepath.Join(testenv.Shared(b, "tokenizers/"+f.dir), "tokenizer.json.gz")
		b.Run(f.dir, func(b *testing.B) {
			for b.Loop() {
				if _, err := openByteLevel(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
