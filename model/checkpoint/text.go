package checkpoint

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// text is what a checkpoint says about turning text into ids and conversations into text.
type text struct {
	templates map[string]string
	tokenizer string // path of tokenizer.json, or ""
	bos, eos  string
	vocab     *Vocab
}

// Vocab is the tokenizer of a GGUF file: the metadata as they are. tokenizer.Vocab has the same
// fields, and one converts to the other, so that neither package needs the other.
type Vocab struct {
	Model  string   // "gpt2" is byte-level BPE, "llama" SentencePiece
	Pre    string   // name of the pre-tokeniser, such as "llama-bpe" or "qwen2"
	Tokens []string // by id
	Merges []string // "left right", in order of rank
	// By id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; nil if the file has
	// none.
	Types          []int32
	BOS, EOS       int // ids, -1 if absent
	AddBOS, AddEOS bool
}

// DefaultTemplate is the name of the chat template that is used where no other is asked for.
const DefaultTemplate = "default"

// ChatTemplates returns the Jinja templates that turn a conversation into a prompt, by name. A
// single one is named [DefaultTemplate]. It may be empty.
//
// A folder has them in chat_template.jinja and additional_chat_templates/NAME.jinja. Those of
// tokenizer_config.json (chat_template: a text, or a list with names) count where there is no
// chat_template.jinja. A GGUF file has tokenizer.chat_template and tokenizer.chat_template.NAME.
func (c *Checkpoint) ChatTemplates() map[string]string { return maps.Clone(c.text.templates) }

// TokenizerFile is the path of the folder's tokenizer.json, if it has one.
func (c *Checkpoint) TokenizerFile() (string, bool) { return c.text.tokenizer, c.text.tokenizer != "" }

// Vocab is the tokenizer that a GGUF file carries, if it does. It stays valid after Close.
func (c *Checkpoint) Vocab() (Vocab, bool) {
	if c.text.vocab == nil {
		return Vocab{}, false
	}
	return *c.text.vocab, true
}

// SpecialTokens are the texts of the BOS and EOS tokens, which templates refer to; "" for what the
// checkpoint does not have.
func (c *Checkpoint) SpecialTokens() (bos, eos string) { return c.text.bos, c.text.eos }

// folderText reads what a Hugging Face folder has of a tokenizer. All of it is optional.
func folderText(dir string) (text, error) {
	var t text
	if path := filepath.Join(dir, "tokenizer.json"); isFile(path) {
		t.tokenizer = path
	}
	var h struct {
		Templates templates `json:"chat_template"`
		BOS       tokenText `json:"bos_token"`
		EOS       tokenText `json:"eos_token"`
	}
	if err := readJSON(filepath.Join(dir, "tokenizer_config.json"), &h); err != nil && !errors.Is(err, os.ErrNotExist) {
		return text{}, err
	}
	t.bos, t.eos = string(h.BOS), string(h.EOS)
	t.templates = h.Templates
	b, err := readText(filepath.Join(dir, "chat_template.jinja"))
	switch {
	case err == nil:
		t.templates = templates{DefaultTemplate: string(b)}
	case !errors.Is(err, os.ErrNotExist):
		return text{}, err
	}
	more, err := additionalTemplates(filepath.Join(dir, "additional_chat_templates"))
	if err != nil {
		return text{}, err
	}
	for name, source := range more {
		if t.templates == nil {
			t.templates = templates{}
		}
		t.templates[name] = source
	}
	return t, nil
}

// maxTemplates bounds the templates of a folder; published ones have up to three.
const maxTemplates = 100

// additionalTemplates reads the NAME.jinja of a folder that need not be there.
func additionalTemplates(dir string) (templates, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FileError{File: dir, Problem: "cannot be read", Err: err}
	}
	all := templates{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".jinja")
		if !ok {
			continue
		}
		if len(all) == maxTemplates {
			return nil, fileErrorf(dir, "has more than %d templates", maxTemplates)
		}
		b, err := readText(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all[name] = string(b)
	}
	return all, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// templates are chat templates by name. In JSON they are one template, or a list of named ones.
type templates map[string]string

func (t *templates) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	*t = templates{}
	if b[0] != '[' {
		var one string
		err := json.Unmarshal(b, &one)
		(*t)[DefaultTemplate] = one
		return err
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(b, &named); err != nil {
		return err
	}
	for _, n := range named {
		(*t)[n.Name] = n.Template
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
