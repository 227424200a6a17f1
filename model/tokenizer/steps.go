package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// step is a normalizer, pre-tokenizer, post-processor or decoder. It has the fields of all
// supported types.
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
	TrimOffsets    bool                     `json:"trim_offsets"` // changes offsets, which are not computed
	Individual     bool                     `json:"individual_digits"`
	Single         []templatePiece          `json:"single"`
	Pair           json.RawMessage          `json:"pair"` // for pairs of texts, which are not supported
	SpecialTokens  map[string]templateToken `json:"special_tokens"`
}

// stepList is the steps of a Sequence, not decoded yet.
type stepList []json.RawMessage

// maxSequence bounds the steps of a Sequence. Published files have up to four. Each pre-tokenizer
// is a pass over the text.
const maxSequence = 16

// each decodes the steps of a Sequence and calls f for each. name is the field of the list.
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
	TypeID int    `json:"type_id"` // of the first and second text, for other kinds of models
}

// steps reads the steps around the model. It ignores truncation and padding, as transformers does
// unless the caller asks for them: silently shortening a prompt would change it.
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

// postProcessor reads the tokens that are added around the text. ByteLevel only changes offsets.
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
		// Hugging Face's library combines templates in a way that no published tokenizer uses.
		return &UnsupportedError{"one template after another"}
	}
	var before, after []int32
	seen := false
	for _, piece := range s.Single {
		switch {
		case piece.Sequence != nil:
			if seen {
				return &UnsupportedError{"a template with the text twice"}
			}
			seen = true
		case piece.SpecialToken != nil:
			ids := s.SpecialTokens[piece.SpecialToken.ID].IDs
			if len(ids) == 0 {
				return fmt.Errorf("post_processor: token %q of the template is missing in special_tokens",
					piece.SpecialToken.ID)
			}
			if seen {
				after = append(after, ids...)
			} else {
				before = append(before, ids...)
			}
		}
	}
	if !seen {
		return errors.New("post_processor: the template has no Sequence for the text")
	}
	p.prefix, p.suffix = before, after
	return nil
}
