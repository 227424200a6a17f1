package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// step is a normaliser, pre-tokeniser, post-processor or decoder: the fields of all that are
// supported.
type step struct {
	Type           string                   `json:"type"`
	Normalizers    stepList                 `json:"normalizers"`
	Pretokenizers  stepList                 `json:"pretokenizers"`
	Processors     stepList                 `json:"processors"`
	Pattern        *pattern                 `json:"pattern"`
	Behavior       string                   `json:"behavior"`
	Invert         bool                     `json:"invert"`
	AddPrefixSpace bool                     `json:"add_prefix_space"`
	UseRegex       *bool                    `json:"use_regex"`
	TrimOffsets    bool                     `json:"trim_offsets"` // moves offsets, which we do not have
	Individual     bool                     `json:"individual_digits"`
	Single         []templatePiece          `json:"single"`
	Pair           json.RawMessage          `json:"pair"` // for two texts at once, which we do not encode
	SpecialTokens  map[string]templateToken `json:"special_tokens"`
}

// stepList is the steps of a Sequence, not decoded yet.
type stepList []json.RawMessage

// maxSequence bounds the steps of a Sequence; those published have up to four. Every pre-tokeniser
// is a pass over the text.
const maxSequence = 16

// each decodes the steps of a Sequence, whose name is the list's, and calls f with them.
func (l stepList) each(name string, f func(*step) error) error {
	if len(l) > maxSequence {
		return &UnsupportedError{fmt.Sprintf("a Sequence of more than %d %s", maxSequence, name)}
	}
	for _, data := range l {
		var s step
		if err := strict(name, data, &s); err != nil {
			return err
		}
		if err := f(&s); err != nil {
			return err
		}
	}
	return nil
}

type templateToken struct {
	ID     string   `json:"id"`
	IDs    []int32  `json:"ids"`
	Tokens []string `json:"tokens"`
}

type pattern struct {
	Regex  *string
	String *string
}

type templatePiece struct {
	SpecialToken *templateID
	Sequence     *templateID
}

type templateID struct {
	ID     string `json:"id"`
	TypeID int    `json:"type_id"` // marks the first and second text, for models that we do not have
}

// steps reads what happens around the model. Truncation and padding are not a tokenizer's own: they
// are the last that its maker used, and Hugging Face's transformers ignores them too, where the
// caller asks for neither. A prompt that is silently shortened would be another one.
func (p *parts) steps(f *file) error {
	if f.Version != "" && f.Version != "1.0" {
		return &UnsupportedError{fmt.Sprintf("version %q of the format", f.Version)}
	}
	if f.Decoder == nil || f.Decoder.Type != "ByteLevel" {
		return &UnsupportedError{"a decoder other than ByteLevel"}
	}
	if err := p.normalizer(f.Normalizer); err != nil {
		return err
	}
	if err := p.preTokenizer(f.PreTokenizer); err != nil {
		return err
	}
	return p.postProcessor(f.PostProcessor)
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
		return s.Normalizers.each("normalizers", p.normalizer)
	}
	return &UnsupportedError{fmt.Sprintf("normalizer %q", s.Type)}
}

// preTokenizer reads Split by a regular expression, Digits, and ByteLevel at the end.
func (p *parts) preTokenizer(s *step) error {
	if s == nil {
		return &UnsupportedError{"a byte-level model without a pre-tokenizer"}
	}
	list := []*step{s}
	if s.Type == "Sequence" {
		list = nil
		err := s.Pretokenizers.each("pretokenizers", func(s *step) error {
			list = append(list, s)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i, s := range list {
		switch s.Type {
		case "Split":
			if s.Pattern == nil || s.Pattern.Regex == nil {
				return &UnsupportedError{"pre-tokenizer Split by a fixed string"}
			}
			if s.Behavior != "Isolated" || s.Invert {
				return &UnsupportedError{fmt.Sprintf("pre-tokenizer Split with behavior %q, invert %t", s.Behavior,
					s.Invert)}
			}
			split, err := splitterFor(*s.Pattern.Regex)
			if err != nil {
				return err
			}
			p.splits = append(p.splits, split)
		case "Digits":
			split := splitDigitRuns
			if s.Individual {
				split = splitDigits
			}
			p.splits = append(p.splits, split)
		case "ByteLevel":
			if i < len(list)-1 {
				return &UnsupportedError{fmt.Sprintf("pre-tokenizer %q after ByteLevel", list[i+1].Type)}
			}
			if s.AddPrefixSpace {
				p.splits = append(p.splits, prefixSpace)
			}
			if s.UseRegex == nil || *s.UseRegex {
				p.splits = append(p.splits, splitGPT2)
			}
			return nil
		default:
			return &UnsupportedError{fmt.Sprintf("pre-tokenizer %q", s.Type)}
		}
	}
	return &UnsupportedError{"a pre-tokenizer that does not end with ByteLevel"}
}

// postProcessor reads what is put around the text. ByteLevel only moves offsets.
func (p *parts) postProcessor(s *step) error {
	if s == nil || s.Type == "ByteLevel" {
		return nil
	}
	switch s.Type {
	case "Sequence":
		return s.Processors.each("processors", p.postProcessor)
	case "TemplateProcessing":
		return p.template(s)
	}
	return &UnsupportedError{fmt.Sprintf("post-processor %q", s.Type)}
}

func (p *parts) template(s *step) error {
	if p.prefix != nil || p.suffix != nil {
		// Hugging Face's library takes what the first one made for two texts, and puts the second
		// one's template for a pair around it.
		return &UnsupportedError{"one template after another"}
	}
	var before, after []int32
	seen := false
	for _, piece := range s.Single {
		switch {
		case piece.Sequence != nil:
			if seen {
				return &UnsupportedError{"a template that has the text twice"}
			}
			seen = true
		case piece.SpecialToken != nil:
			ids := s.SpecialTokens[piece.SpecialToken.ID].IDs
			if len(ids) == 0 {
				return fmt.Errorf("the template names %q, which its special_tokens do not have", piece.SpecialToken.ID)
			}
			if seen {
				after = append(after, ids...)
			} else {
				before = append(before, ids...)
			}
		}
	}
	if !seen {
		return errors.New("the template has no place for the text")
	}
	p.prefix, p.suffix = before, after
	return nil
}
