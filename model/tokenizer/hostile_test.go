package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// object is a JSON object, or a part of one.
type object = map[string]any

// base reads a tokenizer.json of testdata, for a test to modify.
func base(t testing.TB, name string) object {
	t.Helper()
	data, err := os.ReadFile(ownPath(name))
	if err != nil {
		t.Fatal(err)
	}
	return decodeJSON(t, data)
}

func decodeJSON(t testing.TB, data []byte) (j object) {
	t.Helper()
	if err := json.Unmarshal(data, &j); err != nil {
		t.Fatal(err)
	}
	return j
}

func encodeJSON(t testing.TB, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// refused checks that Parse and Open return an error with all of the words that names the package,
// and the file if there is one.
func refused(t *testing.T, what string, data []byte, words ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "some.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, parseErr := parseByteLevel(bytes.NewReader(data))
	_, openErr := openByteLevel(path)
	for prefix, err := range map[string]error{"tokenizer: ": parseErr, "tokenizer: " + path + ": ": openErr} {
		if err == nil {
			t.Errorf("%s: no error, want one with %q", what, words)
			return
		}
		text, ok := strings.CutPrefix(err.Error(), prefix)
		if !ok {
			t.Errorf("%s: %q does not begin with %q", what, err, prefix)
		}
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q does not say %q", what, err, word)
			}
		}
	}
}

// Unsupported features of a tokenizer.json are an UnsupportedError that names them.
func TestUnsupported(t *testing.T) {
	splitStep := func(change object) object {
		split := object{"type": "Split", "pattern": object{"Regex": "x"}, "behavior": "Isolated", "invert": false}
		maps.Copy(split, change)
		return object{"type": "Sequence", "pretokenizers": []any{split,
			object{"type": "ByteLevel", "use_regex": false}}}
	}
	bos := object{"type": "TemplateProcessing", "single": []any{object{"SpecialToken": object{"id": "x"}},
		object{"Sequence": object{"id": "A"}}},
		"special_tokens": object{"x": object{"id": "x", "ids": []any{0}, "tokens": []any{"!"}}}}
	for _, tc := range []struct {
		key   string // at the top, or after a dot in the model
		value any
		says  string
	}{
		{"model.type", "Unigram", `model "Unigram"`},
		{"model.type", "WordPiece", `model "WordPiece"`},
		{"model.type", nil, `model ""`},
		{"model.dropout", 0.1, "BPE dropout"},
		{"model.continuing_subword_prefix", "##", "continuing_subword_prefix"},
		{"model.end_of_word_suffix", "</w>", "end_of_word_suffix"},
		{"model.byte_fallback", true, "byte_fallback"},
		{"model.surprise", 1, `the field "surprise"`},
		{"surprise", object{}, `the field "surprise"`},
		{"version", "2.0", `version "2.0"`},
		{"surplus", strings.Repeat("x", 1<<20), "more than 1024 KB outside vocabulary"},
		{"model.surplus", strings.Repeat("x", 1<<20), "more than 1024 KB outside vocabulary"},
		{"normalizer", object{"type": "NFKC"}, `normalizer "NFKC"`},
		{"normalizer", object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"},
			object{"type": "Lowercase"}}}, `normalizer "Lowercase"`},
		{"normalizer", object{"type": "Prepend", "prepend": "▁"}, `the field "prepend"`},
		{"pre_tokenizer", nil, "without a pre-tokenizer"},
		{"pre_tokenizer", object{"type": "Metaspace"}, `pre-tokenizer "Metaspace"`},
		{"pre_tokenizer", object{"type": "Digits"}, "does not end with ByteLevel"},
		{"pre_tokenizer", object{"type": "Sequence", "pretokenizers": []any{}}, "does not end with ByteLevel"},
		{"pre_tokenizer", object{"type": "Sequence", "pretokenizers": []any{object{"type": "ByteLevel"},
			object{"type": "Digits"}}}, `"Digits" after ByteLevel`},
		{"pre_tokenizer", object{"type": "Sequence", "pretokenizers": []any{object{"type": "Sequence"}}},
			`pre-tokenizer "Sequence"`},
		{"pre_tokenizer", splitStep(object{"pattern": object{"String": " "}}), "Split by a fixed string"},
		{"pre_tokenizer", splitStep(object{"pattern": nil}), "Split by a fixed string"},
		{"pre_tokenizer", splitStep(object{"behavior": "Removed"}), `behavior "Removed"`},
		{"pre_tokenizer", splitStep(object{"invert": true}), "invert true"},
		{"pre_tokenizer", splitStep(object{"pattern": object{"Regex": strings.Repeat("a", 9000)}}),
			"a pattern of more than 8192 bytes"},
		{"normalizer", object{"type": "Sequence", "normalizers": slices.Repeat([]any{object{"type": "NFC"}}, 17)},
			"more than 16 normalizers"},
		{"pre_tokenizer", object{"type": "Sequence", "pretokenizers": slices.Repeat([]any{object{"type": "Digits"}},
			17)}, "more than 16 pretokenizers"},
		{"post_processor", object{"type": "Sequence", "processors": slices.Repeat([]any{object{"type": "ByteLevel"}},
			17)}, "more than 16 processors"},
		{"post_processor", object{"type": "BertProcessing"}, `post-processor "BertProcessing"`},
		{"post_processor", object{"type": "Sequence", "processors": []any{object{"type": "RobertaProcessing"}}},
			`"RobertaProcessing"`},
		{"post_processor", object{"type": "TemplateProcessing", "single": []any{
			object{"Sequence": object{"id": "A"}}, object{"Sequence": object{"id": "A"}}}}, "the text twice"},
		{"post_processor", object{"type": "Sequence", "processors": []any{bos, bos}}, "one template after another"},
		{"decoder", nil, "a decoder other than ByteLevel"},
		{"decoder", object{"type": "WordPiece"}, "a decoder other than ByteLevel"},
		{"decoder", object{"type": "Sequence", "decoders": []any{}}, `the field "decoders"`},
	} {
		j := base(t, "gpt2")
		if key, ok := strings.CutPrefix(tc.key, "model."); ok {
			j["model"].(object)[key] = tc.value
		} else {
			j[tc.key] = tc.value
		}
		data := encodeJSON(t, j)
		what := fmt.Sprintf("%s = %v", tc.key, tc.value)
		refused(t, what, data, tc.says, "supported is byte-level BPE", "hftokenizers")
		var unsupported *UnsupportedError
		if _, err := parseByteLevel(bytes.NewReader(data)); !errors.As(err, &unsupported) {
			t.Errorf("%s: %v is no UnsupportedError", what, err)
		}
	}
	// An unknown token matters only if a byte can be unknown.
	j := base(t, "options")
	j["model"].(object)["unk_token"] = "<bos>"
	refused(t, "unk_token", encodeJSON(t, j), "an unk_token with a vocabulary that lacks some bytes")
	j = base(t, "gpt2")
	j["added_tokens"] = append(j["added_tokens"].([]any), object{"id": 800, "content": strings.Repeat("x", 1025)})
	refused(t, "a long added token", encodeJSON(t, j),
		"an added token of more than 1 KB, or 4 MB of them, is not supported")
	j = base(t, "gpt2")
	j["model"].(object)["unk_token"] = "<bos>"
	if _, err := parseByteLevel(bytes.NewReader(encodeJSON(t, j))); err != nil {
		t.Errorf("an unk_token that is never needed: %v", err)
	}
}

// Contradictions are errors that name their cause.
func TestContradictions(t *testing.T) {
	vocab := func(j object) object { return j["model"].(object)["vocab"].(object) }
	addToken := func(j object, token object) { j["added_tokens"] = append(j["added_tokens"].([]any), token) }
	for _, tc := range []struct {
		name  string
		spoil func(j object)
		says  []string
	}{
		{"two tokens with one id", func(j object) { vocab(j)["zebra"] = 5 }, []string{`"zebra"`, "the same id 5"}},
		{"negative id", func(j object) { vocab(j)["zebra"] = -1 }, []string{"byte ", "an id, a non-negative integer"}},
		{"huge id", func(j object) { vocab(j)["zebra"] = 1 << 30 }, []string{`"zebra"`, "1073741824", "out of range"}},
		{"id beyond 32 bits", func(j object) { vocab(j)["zebra"] = 1 << 40 },
			[]string{"byte ", "an id, a non-negative integer"}},
		{"fractional id", func(j object) { vocab(j)["zebra"] = 700.5 },
			[]string{"byte ", "700.5", "a non-negative integer"}},
		{"id as text", func(j object) { vocab(j)["zebra"] = "700" }, []string{"byte ", "a non-negative integer"}},
		{"merge of an absent token", func(j object) { j["model"].(object)["merges"] = []any{"Q zzz"} },
			[]string{"merge 0", `"Q"`, `"zzz"`}},
		{"merge to an absent token", func(j object) { j["model"].(object)["merges"] = []any{"Q Q"} },
			[]string{"merge 0", `"QQ"`}},
		{"merge of one", func(j object) { j["model"].(object)["merges"] = []any{"Q"} },
			[]string{`merge "Q"`, "two tokens"}},
		{"merge of three", func(j object) { j["model"].(object)["merges"] = []any{"a b c"} },
			[]string{`merge "a b c"`, "two tokens"}},
		{"merge of a list of three", func(j object) { j["model"].(object)["merges"] = []any{[]any{"a", "b", "c"}} },
			[]string{"a merge of 3 tokens"}},
		{"merge of an empty list", func(j object) { j["model"].(object)["merges"] = []any{[]any{}} },
			[]string{"a merge of 0 tokens"}},
		{"merge of a number", func(j object) { j["model"].(object)["merges"] = []any{5} },
			[]string{"expected an array"}},
		{"merge outside the alphabet", func(j object) { j["model"].(object)["merges"] = []any{[]any{"日", "本"}} },
			[]string{"merge 0", `"日"`}},
		{"empty added token", func(j object) { addToken(j, object{"id": 800, "content": ""}) },
			[]string{"the added token 800 is empty"}},
		{"added token without content", func(j object) { addToken(j, object{"id": 800}) },
			[]string{"the added token 800 is empty"}},
		{"added token with a used id", func(j object) { addToken(j, object{"id": 40, "content": "<new>"}) },
			[]string{`"<new>"`, "id 40"}},
		{"added token twice", func(j object) { addToken(j, object{"id": 800, "content": "<bos>"}) },
			[]string{`"<bos>"`, "two ids", "800"}},
		{"added token with another id than in the vocabulary",
			func(j object) { addToken(j, object{"id": 800, "content": "a"}) }, []string{`"a"`, "800"}},
		{"added token with a huge id", func(j object) { addToken(j, object{"id": 1 << 30, "content": "<new>"}) },
			[]string{`"<new>"`, "out of range"}},
		{"added token with a negative id", func(j object) { addToken(j, object{"id": -7, "content": "<new>"}) },
			[]string{`"<new>"`, "-7", "out of range"}},
		{"added token beyond 32 bits", func(j object) { addToken(j, object{"id": 1 << 40, "content": "<new>"}) },
			[]string{"added_tokens", "1099511627776"}},
		{"template without the text", func(j object) {
			j["post_processor"] = object{"type": "TemplateProcessing", "single": []any{}}
		}, []string{"no Sequence for the text"}},
		{"template with a token that it does not explain", func(j object) {
			j["post_processor"] = object{"type": "TemplateProcessing",
				"single": []any{object{"SpecialToken": object{"id": "<x>"}}}}
		}, []string{`"<x>"`, "special_tokens"}},
		{"template with an absent id", func(j object) {
			j["post_processor"] = object{"type": "TemplateProcessing", "single": []any{
				object{"SpecialToken": object{"id": "<x>"}}, object{"Sequence": object{"id": "A"}}},
				"special_tokens": object{"<x>": object{"id": "<x>", "ids": []any{-3}, "tokens": []any{"<x>"}}}}
		}, []string{"id -3", "post-processor adds"}},
		{"pattern that is none", func(j object) {
			j["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{
				object{"type": "Split", "pattern": object{"Regex": "(a"}, "behavior": "Isolated"}}}
		}, []string{"invalid Split pattern", "(a"}},
		{"no model", func(j object) { delete(j, "model") }, []string{"it has no model"}},
	} {
		j := base(t, "gpt2")
		tc.spoil(j)
		refused(t, tc.name, encodeJSON(t, j), tc.says...)
	}
}

// A value of the wrong type, at any place, is an error that names the place.
func TestWrongTypes(t *testing.T) {
	wrong := []any{"text", 7.0, true, []any{"x"}, object{"x": 1.0}}
	var walk func(whole object, value any, key string, set func(any), path string)
	tried := 0
	walk = func(whole object, value any, key string, set func(any), path string) {
		for _, w := range wrong {
			if reflect.TypeOf(w) == reflect.TypeOf(value) || path == "model.unk_token" && w == wrong[0] {
				continue
			}
			set(w)
			tried++
			says := key
			if _, ok := w.(object); ok && (path == "normalizer" || path == "post_processor") {
				says = `"x"` // these may be objects, but not of this member
			}
			refused(t, fmt.Sprintf("%s = %v", path, w), encodeJSON(t, whole), says)
			set(value)
		}
		switch value := value.(type) {
		case object:
			for i, k := range slices.Sorted(maps.Keys(value)) {
				// Not checked: the template for two texts; truncation and padding; the names of
				// parts of a vocabulary beyond the first two.
				if k == "pair" || key == "vocab" && i > 1 {
					continue
				}
				name := k
				switch key {
				case "vocab":
					name = "an id"
				case "special_tokens":
					name = key
				}
				walk(whole, value[k], name, func(v any) { value[k] = v }, path+"."+k)
			}
		case []any:
			for i := range value[:min(len(value), 1)] {
				if key == "merges" {
					key = ""
				}
				walk(whole, value[i], key, func(v any) { value[i] = v }, fmt.Sprintf("%s[%d]", path, i))
			}
		}
	}
	for _, name := range []string{"llama3", "options"} {
		j := base(t, name)
		for _, k := range slices.Sorted(maps.Keys(j)) {
			if k == "truncation" || k == "padding" {
				continue
			}
			walk(j, j[k], k, func(v any) { j[k] = v }, k)
		}
	}
	if tried < 180 {
		t.Errorf("only %d values tried", tried)
	}
}

// Truncation and padding do not change ids.
func TestTruncationAndPaddingAreIgnored(t *testing.T) {
	j := base(t, "gpt2")
	plain, err := parseByteLevel(bytes.NewReader(encodeJSON(t, j)))
	if err != nil {
		t.Fatal(err)
	}
	j["truncation"] = object{"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
	j["padding"] = object{"strategy": object{"Fixed": 500}, "direction": "Right", "pad_id": 0, "pad_token": "!"}
	tok, err := parseByteLevel(bytes.NewReader(encodeJSON(t, j)))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("gravity ", 20)
	want, _ := plain.Encode(text, nil)
	if got, err := tok.Encode(text, nil); err != nil || len(want) < 20 || !slices.Equal(got, want) {
		t.Errorf("%d ids, %v, want %d", len(got), err, len(want))
	}
}

// A file takes a few times its own size in memory, even if it repeats members.
func TestRepetitionsTakeLittleMemory(t *testing.T) {
	const n = 500_000
	for name, tc := range map[string]struct{ key, open, unit, close string }{
		"steps":               {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[`, `{}`, `]}`},
		"steps that split":    {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[`, `{"type":"Digits"}`, `]}`},
		"normalizers":         {"normalizer", `{"type":"Sequence","normalizers":[`, `{}`, `]}`},
		"processors":          {"post_processor", `{"type":"Sequence","processors":[`, `{}`, `]}`},
		"pieces":              {"post_processor", `{"type":"TemplateProcessing","single":[`, `{}`, `]}`},
		"added tokens":        {"added_tokens", `[`, `{}`, `]`},
		"values of no member": {"surprise", `[`, `[]`, `]`},
	} {
		j := base(t, "gpt2")
		j[tc.key] = "HERE"
		data := string(encodeJSON(t, j))
		data = strings.Replace(data, `"HERE"`, tc.open+strings.Repeat(tc.unit+",", n)+tc.unit+tc.close, 1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseByteLevel(strings.NewReader(data))
		runtime.ReadMemStats(&after)
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: %.500v, want a short error", name, err)
		}
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(data)); times > 10 {
			t.Errorf("%s: %d KB of JSON took %.0f times as much memory", name, len(data)>>10, times)
		}
	}
	var members strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&members, `"%d":0,`, i)
	}
	refused(t, "many members", []byte("{"+members.String()+`"a":0}`), "more than 100 members")
}

// A truncated file is an error, for every length.
func TestTruncated(t *testing.T) {
	for _, name := range []string{"llama3", "options"} {
		data, err := os.ReadFile(ownPath(name))
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.TrimSpace(data)
		for n := 0; n < len(data); n += 1 + n/500 { // closely where the small things are
			if _, err := parseByteLevel(bytes.NewReader(data[:n])); err == nil || !strings.HasPrefix(err.Error(),
				"tokenizer: not a tokenizer.json: ") {
				t.Fatalf("%s: %d of %d bytes: %v", name, n, len(data), err)
			}
		}
		for n := range 300 {
			if _, err := parseByteLevel(bytes.NewReader(data[:len(data)-n-1])); err == nil ||
				!strings.Contains(err.Error(),
					"not a tokenizer.json: ") {
				t.Fatalf("%s: all but %d bytes: %v", name, n+1, err)
			}
		}
		if _, err := parseByteLevel(bytes.NewReader(append(data, '}'))); err == nil || !strings.Contains(err.Error(),
			"expected the end") {
			t.Errorf("%s: trailing data: %v", name, err)
		}
		zipped := gzipped(t, data)
		if _, err := parseByteLevel(bytes.NewReader(zipped)); err != nil {
			t.Errorf("%s: gzipped: %v", name, err)
		}
		for n := 2; n < len(zipped); n += 97 {
			if _, err := parseByteLevel(bytes.NewReader(zipped[:n])); err == nil ||
				!errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%s: %d of %d gzipped bytes: %v", name, n, len(zipped), err)
			}
		}
	}
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Invalid JSON, and JSON that readers interpret differently.
func TestNoTokenizer(t *testing.T) {
	for _, tc := range []struct{ name, data, says string }{
		{"empty", "", "the file ends after 0 bytes"},
		{"white space", " \n ", "the file ends after 3 bytes"},
		{"null", "null", "expected an object"},
		{"a list", "[]", "expected an object"},
		{"an empty object", "{}", "it has no model"},
		{"not valid UTF-8", "{\"version\":\"\xff\"}", "not valid UTF-8"},
		{"a model that is none", `{"model":5}`, "it has no model"},
		{"a key twice", `{"version":"1.0","version":"1.0"}`, `"version" is repeated`},
		{"a key of the model twice", `{"model":{"type":"BPE","type":"BPE"}}`, `"type" is repeated`},
		{"two models", `{"model":{"type":"BPE"},"model":{"type":"BPE"}}`, `"model" is repeated`},
		{"a token twice", `{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]},
			"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel"}}`, `"a" has two ids, 0 and 1`},
		{"deep nesting", `{"normalizer":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
			"levels of nesting"},
		{"deep nesting without end", `{"x":` + strings.Repeat(`{"a":`, 100000), "levels of nesting"},
		{"a bracket too many", `{"x":]}`, "expected a value"},
		{"no colon", `{"x" 1}`, "expected a colon"},
		{"no comma", `{"model":{"vocab":{"a":0 "b":1}}}`, "expected a comma or }"},
		{"a comma too many", `{"model":{"vocab":{"a":0,}}}`, "expected a string"},
		{"a bad escape", `{"model":{"vocab":{"\x":0}}}`, "invalid character 'x'"},
		{"a line break in a string", "{\"a\nb\":1}", "expected a character of a string"},
		{"no word of JSON", `{"model":{"type":"BPE","vocab":{},"merges":[]},"version":tru}`,
			`not a tokenizer.json: "version": invalid character`},
		{"no object of JSON", `{"model":{"type":"BPE","vocab":{},"merges":[]},"decoder":{("type":"ByteLevel"}}`,
			`not a tokenizer.json: "decoder": invalid character '('`},
	} {
		refused(t, tc.name, []byte(tc.data), tc.says)
	}
	if _, err := openByteLevel(filepath.Join(t.TempDir(), "absent.json")); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "tokenizer: open ") {
		t.Errorf("an absent file: %v", err)
	}
	if _, err := openByteLevel(t.TempDir()); err == nil {
		t.Error("a folder was opened")
	}
}

// Reading a small file that unzips to a large one stops at the limit.
func TestUnzipLimit(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 16 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := readAll(r, 2<<20); err == nil || !strings.Contains(err.Error(), "larger than 2 MB") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if r.Close() != nil || b.Len() == 0 {
		t.Error("all was read, though the limit was an eighth of it")
	}
}

// A later merge of the same tokens replaces the earlier one, as in Hugging Face's library: ids by
// tokenizers 0.22.1.
func TestDuplicateMerges(t *testing.T) {
	for _, tc := range []struct {
		merges []any
		want   []string
	}{
		{[]any{"Q Z", "Z X"}, []string{"QZ", "X"}},
		{[]any{"Q Z", "Z X", "Q Z"}, []string{"Q", "ZX"}},
		{[]any{"Z X", "Q Z", "Z X"}, []string{"QZ", "X"}},
	} {
		j := base(t, "gpt2")
		model := j["model"].(object)
		model["vocab"].(object)["QZ"], model["vocab"].(object)["ZX"] = 800, 801
		model["merges"] = tc.merges
		tok, err := parseByteLevel(bytes.NewReader(encodeJSON(t, j)))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode("QZX", nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, id := range ids {
			token, _ := tok.Token(id)
			got = append(got, token)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("merges %v: %q, want %q", tc.merges, got, tc.want)
		}
	}
}

// Invalid GGUF metadata is an error that names the cause.
func TestHostileVocab(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(v *Vocab)
		says  []string
	}{
		{"SentencePiece", func(v *Vocab) { v.Model = "llama" }, []string{`"llama" (SentencePiece)`, "hftokenizers"}},
		{"WordPiece", func(v *Vocab) { v.Model = "bert" }, []string{`"bert" (WordPiece)`}},
		{"no model", func(v *Vocab) { v.Model = "" }, []string{`the GGUF tokenizer ""`}},
		{"unknown pre-tokenizer", func(v *Vocab) { v.Pre = "tekken" }, []string{`the GGUF pre-tokenizer "tekken"`}},
		{"no tokens", func(v *Vocab) { *v = Vocab{Model: "gpt2", Pre: "gpt-2", Merges: []string{"a b"}} },
			[]string{"merge 0", "vocabulary"}},
		{"too few types", func(v *Vocab) { v.Types = v.Types[1:] }, []string{"712 tokens and 711 token types"}},
		{"a token twice", func(v *Vocab) { v.Tokens[300] = v.Tokens[301] }, []string{"two ids, 300 and 301"}},
		{"a special token twice", func(v *Vocab) { v.Tokens[703] = v.Tokens[702] }, []string{`"<bos>" has two ids`}},
		{"an empty special token", func(v *Vocab) { v.Tokens[702] = "" }, []string{"the added token 702 is empty"}},
		{"merge of one", func(v *Vocab) { v.Merges[7] = "ab" }, []string{"merge 7", `"ab" is not two tokens`}},
		{"merge of nothing", func(v *Vocab) { v.Merges[7] = "" }, []string{"merge 7", "is not two tokens"}},
		{"merge with two spaces", func(v *Vocab) { v.Merges[7] = "a  b" }, []string{"merge 7", "is not two tokens"}},
		{"merge of an absent token", func(v *Vocab) { v.Merges[7] = "Q zzz" }, []string{"merge 7", `"zzz"`,
			"vocabulary"}},
		{"BOS out of range", func(v *Vocab) { v.BOS, v.AddBOS = 712, true }, []string{"BOS is 712", "712 tokens"}},
		{"BOS beyond 32 bits", func(v *Vocab) { v.BOS, v.AddBOS = 1<<32+702, true }, []string{"BOS is 4294967998"}},
		{"EOS out of range", func(v *Vocab) { v.EOS, v.AddEOS = 1<<40, true }, []string{"EOS is 1099511627776"}},
	} {
		v := vocabOf(t, ownPath("gpt2"), "gpt-2")
		if len(v.Tokens) != 712 || v.Tokens[702] != "<bos>" {
			t.Fatalf("%d tokens, number 702 is %q", len(v.Tokens), v.Tokens[702])
		}
		tc.spoil(&v)
		tok, err := fromVocab(v)
		if err == nil {
			t.Errorf("%s: no error, %d tokens", tc.name, tok.Size())
			continue
		}
		if !strings.HasPrefix(err.Error(), "tokenizer: ") {
			t.Errorf("%s: %q does not name the package", tc.name, err)
		}
		for _, word := range tc.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", tc.name, err, word)
			}
		}
	}
}
