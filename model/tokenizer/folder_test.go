package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeFolder writes a folder with the tokenizer "options" and a tokenizer_config.json.
func writeFolder(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(ownPath("options"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"tokenizer.json": string(data), "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Tokens of added_tokens_decoder are added, or change those of tokenizer.json. The ids are those of
// transformers 5.24.0 with tokenizers 0.23.3.
func TestOpenFolder(t *testing.T) {
	const flags = `"lstrip": false, "rstrip": false, "normalized": false, "single_word": false`
	for _, tc := range []struct {
		name, config, text string
		want               []int32
		special            []int32 // ids that are special
	}{
		{"none", `{}`, "a<tool>b", []int32{284, 27, 83, 78, 78, 75, 29, 65}, nil},
		{"new", `{"added_tokens_decoder": {"712": {"content": "<tool>", "special": true, ` + flags + `}}}`,
			"a<tool>b", []int32{284, 712, 218, 65}, []int32{712}},
		{"two", `{"added_tokens_decoder": {"713": {"content": "<two>", "special": true, ` + flags + `},
			"712": {"content": "<one>", ` + flags + `}}}`,
			"a<two>b<one>", []int32{284, 713, 218, 65, 712}, []int32{713}},
		{"named by eos_token", `{"eos_token": {"content": "<eosx>"}, "added_tokens_decoder": {"712": ` +
			`{"content": "<eosx>"}}}`,
			"a<eosx>b", []int32{284, 712, 218, 65}, []int32{712}},
		{"settings replaced", `{"added_tokens_decoder": {"695": {"content": "<bos>", "special": true, ` +
			`"lstrip": true, "rstrip": true}}}`,
			"a <bos> b", []int32{284, 695, 218, 65}, []int32{695}},
		{"settings replaced, the other way", `{"added_tokens_decoder": {"705": {"content": "<left>", ` +
			`"special": true, ` + flags + `}}}`,
			"a <left> b", []int32{284, 218, 705, 218, 65}, []int32{705}},
		{"id of tokenizer.json", `{"added_tokens_decoder": {"713": {"content": "<bos>", "special": true}}}`,
			"a<bos>b", []int32{284, 695, 218, 65}, []int32{695}},
		{"of the vocabulary", `{"added_tokens_decoder": {"300": {"content": "ee", "special": true}}}`,
			"aeeb", []int32{284, 300, 218, 65}, []int32{300}},
		{"of the vocabulary, with another id", `{"added_tokens_decoder": {"301": {"content": "ee", "special": true}}}`,
			"aeeb", []int32{284, 300, 218, 65}, []int32{300}},
		{"empty", `{"added_tokens_decoder": {"712": {"content": ""}}}`, "ab", []int32{284, 65}, nil},
		{"null", "\uFEFF" + `{"added_tokens_decoder": null, "eos_token": null}`, "ab", []int32{284, 65}, nil},
	} {
		c, err := OpenFolder(writeFolder(t, tc.config))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		ids, err := c.Encode(tc.text, noSpecial)
		if err != nil || !slices.Equal(ids, tc.want) {
			t.Errorf("%s: %q is %v, %v; want %v", tc.name, tc.text, ids, err, tc.want)
		}
		for _, id := range tc.special {
			if !c.(*byteLevel).IsSpecial(id) {
				t.Errorf("%s: %d is not special", tc.name, id)
			}
		}
	}
	// transformers renumbers these tokens against its own file; here they keep their ids.
	c, err := OpenFolder(writeFolder(t, `{"added_tokens_decoder": {"720": {"content": "<tool>"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := c.Encode("<tool>", noSpecial); err != nil || !slices.Equal(ids, []int32{720}) {
		t.Errorf("ids %v, %v; want 720", ids, err)
	}
}

// If tokenizer_config.json is invalid or contradicts tokenizer.json, the error names it.
func TestOpenFolderErrors(t *testing.T) {
	for config, want := range map[string]string{
		`{"added_tokens_decoder": {"695": {"content": "<tool>"}}}`:      `has the id 695 of "<bos>"`,
		`{"added_tokens_decoder": {"0": {"content": "<tool>"}}}`:        `"<tool>" has the id 0 of`,
		`{"added_tokens_decoder": {"99999999": {"content": "<tool>"}}}`: "out of range",
		`{"added_tokens_decoder": {"x": {"content": "<tool>"}}}`:        `key "x" is not a token id`,
		`{"added_tokens_decoder": {"-1": {"content": "<tool>"}}}`:       `key "-1" is not a token id`,
		`{"added_tokens_decoder": {"712": {"special": true}}}`:          "token 712 has no content",
		`{"added_tokens_decoder": {"712": {"content": 1}}}`:             "wrong type",
		`{"added_tokens_decoder": [1]}`:                                 `"added_tokens_decoder" is of the wrong type`,

		`{"added_tokens_decoder": {"712": {"content": "<a>"}, "0712": {"content": "<b>"}}}`: "the id 712",
		`{`: "unexpected end",
		"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n": "is a Git LFS pointer",
	} {
		_, err := OpenFolder(writeFolder(t, config))
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
	dir := writeFolder(t, `{}`)
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n"
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(pointer), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := OpenFolder(dir)
	if err == nil || !strings.Contains(err.Error(), "tokenizer.json: this is a Git LFS pointer") ||
		!strings.Contains(err.Error(), "git lfs pull") {
		t.Errorf("a Git LFS pointer: %v", err)
	}
}

// The tokenizer_config.json of published models do not change their tokenizers, which already have
// all tokens.
func TestOpenFolderPublished(t *testing.T) {
	for _, family := range families {
		want, _ := openPublished(t, family.dir)
		dir := filepath.Dir(publishedPath(t, family.dir))
		c, err := OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := c.(*byteLevel)
		if !slices.Equal(got.before.tokens, want.before.tokens) || !slices.Equal(got.after.tokens, want.after.tokens) {
			t.Errorf("%s: other added tokens than those of tokenizer.json", family.dir)
		}
	}
}
