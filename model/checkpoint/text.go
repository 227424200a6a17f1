package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Text is the text side of a checkpoint: tokenizer, chat templates and special tokens. All of it is
// optional.
type Text struct {
	TokenizerFile string // path of the folder's tokenizer.json, or empty
	Vocab         *Vocab // tokenizer of a GGUF file, or nil

	// Templates are the Jinja templates that turn a conversation into a prompt, by name. A single
	// template is named "default".
	//
	// In a folder they are chat_template.jinja and additional_chat_templates/NAME.jinja. The
	// chat_template of tokenizer_config.json, a text or a list with names, is used if there is no
	// chat_template.jinja. In a GGUF file they are tokenizer.chat_template and
	// tokenizer.chat_template.NAME.
	Templates map[string]string

	BOS, EOS string // texts of the BOS and EOS tokens, for templates; empty if absent

	// Ends is the union of the end tokens that files name by id: those of generation_config.json,
	// then config.json's; or the eos, eot and eom keys of a GGUF file. tokenizer_config.json names
	// its eos_token by text: see EOS.
	Ends []EndID
}

// EndID is a token id that a file of the checkpoint names as the end of a text, a turn or a
// message.
type EndID struct {
	ID int
	// Origins are the files or GGUF metadata keys that name it, such as "generation_config.json" or
	// "tokenizer.ggml.eot_token_id".
	Origins []string
}

// Text returns the tokenizer, chat templates and special tokens. The caller must not modify its
// maps and slices. They stay valid after Close.
func (c *Checkpoint) Text() Text { return c.text }

// Vocab is the tokenizer of a GGUF file, from its metadata. tokenizer.Vocab has the same fields, so
// that one converts to the other and neither package imports the other.
type Vocab struct {
	Model  string   // "gpt2" is byte-level BPE, "llama" SentencePiece
	Pre    string   // name of the pre-tokenizer, such as "llama-bpe" or "qwen2"
	Tokens []string // by id
	Merges []string // "left right", in order of rank
	// By id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Nil if the file has
	// none.
	Types          []int32
	BOS, EOS       int // ids, -1 if absent
	AddBOS, AddEOS bool
}

// defaultTemplate is the name of the chat template that is used unless another one is requested.
const defaultTemplate = "default"

// readFolder reads the text side of a Hugging Face folder, except the end tokens.
func (t *Text) readFolder(dir string) error {
	if path := filepath.Join(dir, "tokenizer.json"); isFile(path) {
		t.TokenizerFile = path
	}
	var h struct {
		Templates templates `json:"chat_template"`
		BOS       tokenText `json:"bos_token"`
		EOS       tokenText `json:"eos_token"`
	}
	if err := readJSON(filepath.Join(dir, "tokenizer_config.json"), &h); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	t.BOS, t.EOS = string(h.BOS), string(h.EOS)
	all := h.Templates
	b, err := readText(filepath.Join(dir, "chat_template.jinja"))
	switch {
	case err == nil:
		all = templates{defaultTemplate: string(b)}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	more, err := additionalTemplates(filepath.Join(dir, "additional_chat_templates"))
	if err != nil {
		return err
	}
	for name, source := range more {
		if all == nil {
			all = templates{}
		}
		all[name] = source
	}
	t.Templates = all
	return nil
}

// maxTemplates bounds the templates of a folder. Published models have up to three.
const maxTemplates = 100

// additionalTemplates reads the NAME.jinja files of a folder, which may be missing.
func additionalTemplates(dir string) (templates, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &Error{File: dir, Problem: "cannot be read", Err: err}
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
		(*t)[defaultTemplate] = one
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

// tokenText is the text of a token, from a string or an object.
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
