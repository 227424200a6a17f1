package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/npukit/npukit/internal/readfile"
)

// file is a tokenizer.json without the model and the added tokens.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`   // ignored, see steps
	Padding       json.RawMessage `json:"padding"`      // ignored
	AddedTokens   []struct{}      `json:"added_tokens"` // null; scanAdded reads lists
	Normalizer    *step           `json:"normalizer"`
	PreTokenizer  *step           `json:"pre_tokenizer"`
	PostProcessor *step           `json:"post_processor"`
	Decoder       *step           `json:"decoder"`
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

// bpeModel is the model without vocabulary and merges.
type bpeModel struct {
	Type                    string   `json:"type"`
	Dropout                 *float64 `json:"dropout"`
	UnkToken                *string  `json:"unk_token"`
	ContinuingSubwordPrefix string   `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string   `json:"end_of_word_suffix"`
	FuseUnk                 bool     `json:"fuse_unk"`
	ByteFallback            bool     `json:"byte_fallback"`
	IgnoreMerges            bool     `json:"ignore_merges"`
}

// maxFile bounds a tokenizer.json, also after unzipping. The largest published files have 35 MB.
const maxFile = 128 << 20

// maxSettings bounds the size in bytes of a tokenizer.json without vocabulary, merges and added
// tokens. Published files have 2 to 12 KB. A byte of JSON can take a hundred bytes of memory there.
const maxSettings = 1 << 20

// openByteLevel reads a tokenizer.json that this package supports.
func openByteLevel(path string) (*byteLevel, error) { return openFile(path, nil) }

func openFile(path string, decoder []addedToken) (*byteLevel, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	data, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	t, err := parse(data, decoder)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return t, nil
}

// Parse reads the content of a tokenizer.json that this package supports, gzipped or not.
func Parse(r io.Reader) (Tokenizer, error) {
	t, err := parseByteLevel(r)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func parseByteLevel(r io.Reader) (*byteLevel, error) {
	if r == nil {
		return nil, errors.New("tokenizer: the reader is nil")
	}
	data, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := parse(data, nil)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// read reads all of r and unzips it if necessary.
func read(r io.Reader) ([]byte, error) {
	data, err := readAll(r, maxFile)
	if err == nil {
		err = checkPointer(data)
	}
	if err != nil || !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if data, err = readAll(z, maxFile); err != nil {
		return nil, fmt.Errorf("unzipping: %w", err)
	}
	return data, nil
}

// checkPointer returns an error if data is a Git LFS pointer.
func checkPointer(data []byte) error {
	if err := readfile.CheckPointer(data); err != nil {
		return fmt.Errorf("this is %w", err)
	}
	return nil
}

func readAll(r io.Reader, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Size() <= limit {
			b.Grow(int(info.Size()) + bytes.MinRead)
		}
	}
	if _, err := b.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, fmt.Errorf("larger than %d MB: not a tokenizer.json", limit>>20)
	}
	return b.Bytes(), nil
}

// parse returns the tokenizer of a tokenizer.json with the tokens of an added_tokens_decoder. Its
// errors do not have the prefix of the package.
func parse(data []byte, decoder []addedToken) (*byteLevel, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not a tokenizer.json: it is not valid UTF-8")
	}
	var (
		s        = &scanner{text: string(data)}
		p        = &parts{}
		rest     = map[string]json.RawMessage{}
		model    map[string]json.RawMessage
		seenOnce = once{}
	)
	err := s.object(func(key string) error {
		if err := seenOnce.check(key); err != nil {
			return err
		}
		if key == "model" && s.peek() == '{' {
			var err error
			model, err = p.scanModel(s)
			return err
		}
		if key == "added_tokens" && s.peek() == '[' {
			return p.scanAdded(s)
		}
		value, err := s.raw()
		rest[key] = json.RawMessage(value)
		return err
	})
	if err == nil && s.peek() != 0 {
		err = s.wrong("the end")
	}
	if known := (*fieldError)(nil); errors.As(err, &known) {
		return nil, known.error
	}
	if err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if model == nil {
		return nil, errors.New("not a tokenizer.json: it has no model")
	}
	if err := p.model(model); err != nil {
		return nil, err
	}
	var f file
	if err := strictMembers(rest, &f); err != nil {
		return nil, err
	}
	if err := p.steps(&f); err != nil {
		return nil, err
	}
	if err := p.merge(decoder); err != nil {
		return nil, err
	}
	return p.build()
}

// once rejects repeated keys, because JSON readers differ in which value they use.
type once map[string]bool

func (o once) check(key string) error {
	if o[key] {
		return fmt.Errorf("%q is repeated", key)
	}
	if len(o) == maxMembers {
		return fmt.Errorf("an object has more than %d members", maxMembers)
	}
	o[key] = true
	return nil
}

// maxMembers bounds the members of an object that has a fixed set of them. The largest is the model
// of a SentencePiece tokenizer, with about ten.
const maxMembers = 100

// strictMembers decodes members into a struct, strictly.
func strictMembers(members map[string]json.RawMessage, into any) error {
	size := 0
	for _, value := range members {
		size += len(value)
	}
	if size > maxSettings {
		return &UnsupportedError{fmt.Sprintf("a tokenizer.json with more than %d KB outside vocabulary, merges and "+
			"added tokens", maxSettings>>10)}
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		var value json.RawMessage
		if err := json.Unmarshal(members[key], &value); err != nil { // a better error than Marshal's
			return fmt.Errorf("not a tokenizer.json: %q: %w", key, err)
		}
	}
	data, err := json.Marshal(members)
	if err != nil {
		return fmt.Errorf("not a tokenizer.json: %w", err)
	}
	return strict("", data, into)
}

// strict decodes an object into a struct. place is its path in the file. A member that the struct
// lacks is unsupported, because it may change the ids.
func strict(place string, data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("trailing data after a value")
		}
	}
	if err != nil {
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return &UnsupportedError{"the field " + field}
		}
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			return fmt.Errorf("not a tokenizer.json: %q is of the wrong type: %s",
				strings.Trim(place+"."+wrong.Field, "."), wrong.Value)
		}
		return fmt.Errorf("not a tokenizer.json: %w", err)
	}
	return nil
}

// fieldError is an error that parse returns without a prefix.
type fieldError struct{ error }

// scanAdded reads the added tokens one by one.
func (p *parts) scanAdded(s *scanner) error {
	return s.array(func() error {
		value, err := s.raw()
		if err != nil {
			return err
		}
		var a addedToken
		if err := strict("added_tokens", []byte(value), &a); err != nil {
			return &fieldError{err}
		}
		if a.Content == "" { // checked here, because a small file can have many
			return &fieldError{errEmpty(a.ID)}
		}
		p.added = append(p.added, a)
		return nil
	})
}

func errEmpty(id int32) error { return fmt.Errorf("the added token %d is empty", id) }

// scanModel reads vocabulary and merges, and returns the other members.
func (p *parts) scanModel(s *scanner) (map[string]json.RawMessage, error) {
	rest, seen := map[string]json.RawMessage{}, once{}
	return rest, s.object(func(key string) error {
		if err := seen.check(key); err != nil {
			return err
		}
		switch first := s.peek(); {
		case key == "vocab" && first == '{':
			return s.object(func(token string) error {
				id, err := s.id()
				p.vocab = append(p.vocab, entry{token, id})
				return err
			})
		case key == "merges" && first == '[':
			return s.array(func() error {
				m, err := scanMerge(s)
				p.merges = append(p.merges, m)
				return err
			})
		}
		value, err := s.raw()
		rest[key] = json.RawMessage(value)
		return err
	})
}

// scanMerge reads a merge, "a b" or ["a", "b"].
func scanMerge(s *scanner) (m [2]string, err error) {
	at := s.at
	if s.peek() == '"' {
		both, err := s.string()
		if err != nil {
			return m, err
		}
		left, right, err := cutMerge(both)
		if err != nil {
			return m, fmt.Errorf("byte %d: %w", at, err)
		}
		return [2]string{left, right}, nil
	}
	n := 0
	err = s.array(func() error {
		part, err := s.string()
		if n < 2 {
			m[n] = part
		}
		n++
		return err
	})
	if err == nil && n != 2 {
		err = fmt.Errorf("byte %d: a merge of %d tokens, want 2", at, n)
	}
	return m, err
}

// cutMerge splits "a b". Neither part can have a space, because the byte-level alphabet writes it
// as U+0120.
func cutMerge(s string) (left, right string, err error) {
	left, right, ok := strings.Cut(s, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return "", "", fmt.Errorf("merge %q is not two tokens with a space between", s)
	}
	return left, right, nil
}

// model checks the members of the model other than vocabulary and merges.
func (p *parts) model(members map[string]json.RawMessage) error {
	var kind string
	if raw, ok := members["type"]; ok {
		if err := json.Unmarshal(raw, &kind); err != nil {
			return fmt.Errorf("not a tokenizer.json: the type of the model: %w", err)
		}
	}
	if kind != "BPE" {
		return &UnsupportedError{fmt.Sprintf("model %q", kind)}
	}
	var m bpeModel
	if err := strictMembers(members, &m); err != nil {
		return err
	}
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return &UnsupportedError{"BPE dropout"}
	case m.ContinuingSubwordPrefix != "":
		return &UnsupportedError{"BPE with a continuing_subword_prefix"}
	case m.EndOfWordSuffix != "":
		return &UnsupportedError{"BPE with an end_of_word_suffix"}
	case m.ByteFallback:
		return &UnsupportedError{"BPE with byte_fallback (SentencePiece)"}
	}
	p.ignoreMerges = m.IgnoreMerges
	p.unknown = m.UnkToken != nil && *m.UnkToken != ""
	return nil
}
