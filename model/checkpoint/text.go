package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// text is what a checkpoint says about turning text into ids and conversations into text.
type text struct {
	template    string
	hasTemplate bool
	tokenizer   string // path of tokenizer.json, or ""
	bos, eos    string
	vocab       *Vocab
}

// Vocab is the tokenizer of a GGUF file: the metadata as they are. tokenizer.Vocab has the same fields, and one converts to the other, so that neither package
// needs the other.
type Vocab struct {
	Model          string   // "gpt2" is byte-level BPE, "llama" SentencePiece
	Pre            string   // name of the pre-tokeniser, such as "llama-bpe" or "qwen2"
	Tokens         []string // by id
	Merges         []string // "left right", in order of rank
	Types          []int32  // by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; nil if the file has none
	BOS, EOS       int      // ids, -1 if absent
	AddBOS, AddEOS bool
}

// ChatTemplate is the Jinja template that turns a conversation into a prompt: chat_template.jinja, else chat_template of
// tokenizer_config.json (of several, the one named "default"), else tokenizer.chat_template of a GGUF file.
func (c *Checkpoint) ChatTemplate() (string, bool) { return c.text.template, c.text.hasTemplate }

// TokenizerFile is the path of the folder's tokenizer.json, if it has one.
func (c *Checkpoint) TokenizerFile() (string, bool) { return c.text.tokenizer, c.text.tokenizer != "" }

// Vocab is the tokenizer that a GGUF file carries, if it does. It stays valid after Close.
func (c *Checkpoint) Vocab() (Vocab, bool) {
	if c.text.vocab == nil {
		return Vocab{}, false
	}
	return *c.text.vocab, true
}

// SpecialTokens are the texts of the BOS and EOS tokens, which templates refer to; "" for what the checkpoint does not have.
func (c *Checkpoint) SpecialTokens() (bos, eos string) { return c.text.bos, c.text.eos }

// folderText reads what a Hugging Face folder has of a tokenizer. All of it is optional.
func folderText(dir string) (text, error) {
	var t text
	if path := filepath.Join(dir, "tokenizer.json"); isFile(path) {
		t.tokenizer = path
	}
	var h struct {
		Template chatTemplate `json:"chat_template"`
		BOS      tokenText    `json:"bos_token"`
		EOS      tokenText    `json:"eos_token"`
	}
	if err := readJSON(filepath.Join(dir, "tokenizer_config.json"), &h); err != nil && !errors.Is(err, os.ErrNotExist) {
		return text{}, err
	}
	t.bos, t.eos = string(h.BOS), string(h.EOS)
	t.template, t.hasTemplate = h.Template.text, h.Template.found
	b, err := readText(filepath.Join(dir, "chat_template.jinja"))
	switch {
	case err == nil:
		t.template, t.hasTemplate = string(b), true
	case !errors.Is(err, os.ErrNotExist):
		return text{}, err
	}
	return t, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// chatTemplate is a template, or a list of named ones.
type chatTemplate struct {
	text  string
	found bool
}

func (t *chatTemplate) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if b[0] != '[' {
		t.found = true
		return json.Unmarshal(b, &t.text)
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(b, &named); err != nil {
		return err
	}
	for _, n := range named {
		if n.Name == "default" {
			t.text, t.found = n.Template, true
		}
	}
	return nil
}

// tokenText is a token's text, written as a string or as an object with its properties.
type tokenText string

func (t *tokenText) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		return json.Unmarshal(b, (*string)(t)) // null leaves ""
	}
	var added struct{ Content string }
	if err := json.Unmarshal(b, &added); err != nil {
		return err
	}
	*t = tokenText(added.Content)
	return nil
}
