package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// file is tokenizer.json.
type file struct {
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    *step        `json:"normalizer"`
	PreTokenizer  *step        `json:"pre_tokenizer"`
	PostProcessor *step        `json:"post_processor"`
	Decoder       *step        `json:"decoder"`
	Model         *bpeModel    `json:"model"`
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// step is a normaliser, pre-tokeniser, post-processor or decoder: the fields of all that are supported.
type step struct {
	Type           string          `json:"type"`
	Normalizers    []step          `json:"normalizers"`
	Pretokenizers  []step          `json:"pretokenizers"`
	Processors     []step          `json:"processors"`
	Pattern        *pattern        `json:"pattern"`
	Behavior       string          `json:"behavior"`
	Invert         bool            `json:"invert"`
	AddPrefixSpace *bool           `json:"add_prefix_space"`
	UseRegex       *bool           `json:"use_regex"`
	Individual     bool            `json:"individual_digits"`
	Single         []templatePiece `json:"single"`
	SpecialTokens  map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

type pattern struct {
	Regex  string
	String *string
}

type templatePiece struct {
	SpecialToken *struct {
		ID string `json:"id"`
	}
	Sequence *struct {
		ID string `json:"id"`
	}
}

// bpeModel has the fields of a BPE model. Of other kinds of models, whose vocabulary is no object, only the type matters.
type bpeModel struct {
	Type                    string    `json:"type"`
	Dropout                 *float64  `json:"dropout"`
	UnkToken                *string   `json:"unk_token"`
	ContinuingSubwordPrefix string    `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string    `json:"end_of_word_suffix"`
	ByteFallback            bool      `json:"byte_fallback"`
	IgnoreMerges            bool      `json:"ignore_merges"`
	Vocab                   vocabMap  `json:"vocab"`
	Merges                  mergeList `json:"merges"`
}

// maxFile bounds a tokenizer.json; the largest published ones have 35 MB.
const maxFile = 256 << 20

// Open reads a tokenizer.json, gzipped or not.
func Open(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	t, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, trim(err))
	}
	return t, nil
}

// trim takes our own prefix off, where a file's name comes before the text.
func trim(err error) error {
	var u *UnsupportedError
	if s, ok := strings.CutPrefix(err.Error(), "tokenizer: "); ok && !errors.As(err, &u) {
		return errors.New(s)
	}
	return err
}

// Parse reads a tokenizer.json, gzipped or not.
func Parse(r io.Reader) (*Tokenizer, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			data, err = io.ReadAll(io.LimitReader(z, maxFile+1))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("tokenizer: more than %d MB: this is no tokenizer.json", maxFile>>20)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: not a tokenizer.json: %w", err)
	}
	return f.tokenizer()
}

func (f *file) tokenizer() (*Tokenizer, error) {
	m := f.Model
	if m == nil {
		return nil, errors.New("tokenizer: there is no model: this is no tokenizer.json")
	}
	if m.Type != "BPE" {
		return nil, &UnsupportedError{fmt.Sprintf("model %q", m.Type)}
	}
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, &UnsupportedError{"BPE dropout"}
	case m.ContinuingSubwordPrefix != "" || m.EndOfWordSuffix != "":
		return nil, &UnsupportedError{"a subword prefix or word suffix"}
	case m.UnkToken != nil:
		return nil, &UnsupportedError{"a token for the unknown"}
	case m.ByteFallback:
		return nil, &UnsupportedError{"byte fallback (SentencePiece's BPE)"}
	}
	p := &parts{vocab: m.Vocab, merges: m.Merges, ignoreMerges: m.IgnoreMerges, added: f.AddedTokens}
	if err := p.normalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if err := p.preTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := p.postProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	if f.Decoder == nil || f.Decoder.Type != "ByteLevel" {
		return nil, &UnsupportedError{"a decoder other than ByteLevel"}
	}
	return p.build()
}

// normalizer reads NFC, alone or in a sequence.
func (p *parts) normalizer(s *step) error {
	if s == nil {
		return nil
	}
	switch s.Type {
	case "NFC":
		p.nfc = true
		return nil
	case "Sequence":
		for i := range s.Normalizers {
			if err := p.normalizer(&s.Normalizers[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return &UnsupportedError{fmt.Sprintf("normalizer %q", s.Type)}
}

// preTokenizer reads Split by a regular expression, Digits, and ByteLevel at the end.
func (p *parts) preTokenizer(s *step) error {
	if s == nil {
		return &UnsupportedError{"no pre-tokenizer"}
	}
	list := s.Pretokenizers
	if s.Type != "Sequence" {
		list = []step{*s}
	}
	if len(list) == 0 || list[len(list)-1].Type != "ByteLevel" {
		return &UnsupportedError{"a pre-tokenizer that does not end with ByteLevel"}
	}
	for _, s := range list {
		switch s.Type {
		case "Split":
			if s.Pattern == nil || s.Pattern.Regex == "" || s.Behavior != "Isolated" || s.Invert {
				return &UnsupportedError{"a Split other than by an isolated regular expression"}
			}
			split, err := splitterFor(s.Pattern.Regex)
			if err != nil {
				return fmt.Errorf("tokenizer: the pattern of Split: %w", err)
			}
			p.splits = append(p.splits, split)
		case "Digits":
			if !s.Individual {
				return &UnsupportedError{"Digits that keeps runs of digits together"}
			}
			p.splits = append(p.splits, splitDigits)
		case "ByteLevel":
			if s.AddPrefixSpace == nil || *s.AddPrefixSpace {
				return &UnsupportedError{"ByteLevel with add_prefix_space"}
			}
			if s.UseRegex == nil || *s.UseRegex {
				p.splits = append(p.splits, splitGPT2)
			}
		default:
			return &UnsupportedError{fmt.Sprintf("pre-tokenizer %q", s.Type)}
		}
	}
	return nil
}

// postProcessor reads what is put around the text. ByteLevel only moves offsets, which we do not have.
func (p *parts) postProcessor(s *step) error {
	if s == nil || s.Type == "ByteLevel" {
		return nil
	}
	switch s.Type {
	case "Sequence":
		for i := range s.Processors {
			if err := p.postProcessor(&s.Processors[i]); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		seen := false
		for _, piece := range s.Single {
			switch {
			case piece.Sequence != nil:
				seen = true
			case piece.SpecialToken != nil:
				ids := s.SpecialTokens[piece.SpecialToken.ID].IDs
				if len(ids) == 0 {
					return fmt.Errorf("tokenizer: the template names %q, which special_tokens does not have", piece.SpecialToken.ID)
				}
				if seen {
					p.suffix = append(p.suffix, ids...)
				} else {
					p.prefix = append(p.prefix, ids...)
				}
			}
		}
		if !seen {
			return errors.New("tokenizer: the template has no place for the text")
		}
		return nil
	}
	return &UnsupportedError{fmt.Sprintf("post-processor %q", s.Type)}
}
