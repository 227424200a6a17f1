//go:build hftokenizers

package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/daulet/tokenizers"
)

// library is Hugging Face's own library (through github.com/daulet/tokenizers), under the build tag
// hftokenizers. It serves the files that [Open] does not support. For byte-level BPE [Tokenizer]
// returns the same ids (a test under the tag compares them) without cgo and a library of 50 MB.
//
// The library passes text as C strings, so no text can have a NUL character. Some malformed files
// crash the process: open only files that you trust. It is safe for concurrent use.
type library struct {
	mu    sync.RWMutex // held for writing by Close only
	lib   *tokenizers.Tokenizer
	probe []uint32              // ids of some text, for decode
	added map[uint32]addedToken // without those that count as ordinary text
}

// openLibrary reads a tokenizer.json of any kind, gzipped or not, with the tokens of an
// added_tokens_decoder. It ignores truncation and padding, as Open does.
func openLibrary(path string, decoder []addedToken) (*library, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	data, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	data, added, err := prepared(data, decoder)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	lib, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	h := &library{lib: lib, probe: lib.EncodeWithOptions("a", false).IDs, added: map[uint32]addedToken{}}
	ids := map[string]int32{}
	for _, a := range added {
		ids[a.Content] = a.ID
		if a.Special || strings.TrimSpace(a.Content) != "" {
			h.added[uint32(a.ID)] = a
		}
	}
	for _, a := range decoder {
		// The library numbers tokens that are new to it by itself.
		got := lib.EncodeWithOptions(a.Content, false).IDs
		if id := ids[a.Content]; !slices.Contains(got, uint32(id)) {
			err := fmt.Errorf("tokenizer: %s: tokenizer_config.json: added_tokens_decoder gives the token %q the "+
				"id %d, which Hugging Face's library does not", path, a.Content, id)
			return nil, errors.Join(err, lib.Close())
		}
	}
	return h, nil
}

// prepared returns a tokenizer.json with the tokens of an added_tokens_decoder, and without
// truncation and padding, which the library would apply to every text. It also returns the added
// tokens.
func prepared(data []byte, decoder []addedToken) ([]byte, []addedToken, error) {
	s := &scanner{text: string(data)}
	var added []addedToken
	listed := -1 // index of the edit of added_tokens
	vocab := func(yield func(string, int32)) {}
	type edit struct {
		from, to int
		text     string
	}
	var edits []edit
	err := s.object(func(key string) error {
		value, err := s.raw()
		if err != nil {
			return err
		}
		switch key {
		case "truncation", "padding":
			edits = append(edits, edit{s.at - len(value), s.at, "null"})
		case "added_tokens":
			listed = len(edits)
			edits = append(edits, edit{s.at - len(value), s.at, value})
			return json.Unmarshal([]byte(value), &added)
		case "model":
			vocab = modelVocab(value)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if len(decoder) > 0 {
		if listed < 0 {
			return nil, nil, errors.New("this tokenizer.json has no added_tokens, to which those of " +
				"tokenizer_config.json could be added")
		}
		if added, err = mergeAdded(added, decoder, vocab); err != nil {
			return nil, nil, err
		}
		list, err := json.Marshal(added)
		if err != nil {
			return nil, nil, err
		}
		edits[listed].text = string(list)
	}
	var out strings.Builder
	done := 0 // end of the text that is in out
	for _, e := range edits {
		out.WriteString(s.text[done:e.from])
		out.WriteString(e.text)
		done = e.to
	}
	out.WriteString(s.text[done:])
	return []byte(out.String()), added, nil
}

// modelVocab yields the vocabulary of a model: an object of ids, or a list of pairs of token and
// score.
func modelVocab(model string) func(yield func(string, int32)) {
	return func(yield func(string, int32)) {
		var m struct{ Vocab json.RawMessage }
		if json.Unmarshal([]byte(model), &m) != nil {
			return
		}
		var ids map[string]int32
		if json.Unmarshal(m.Vocab, &ids) == nil {
			for token, id := range ids {
				yield(token, id)
			}
			return
		}
		var list [][]any
		if json.Unmarshal(m.Vocab, &list) == nil {
			for id, pair := range list {
				if len(pair) == 0 {
					continue
				}
				if token, ok := pair[0].(string); ok {
					yield(token, int32(id))
				}
			}
		}
	}
}

var errClosed = errors.New("tokenizer: the tokenizer is closed")

// Encode returns the ids of a text, as [Tokenizer.Encode] does. A text with a NUL character is an
// error, because the library would ignore the rest of the text. If the library itself fails, it
// reports no error and returns no ids.
//
// The library cannot exclude parts of a text from the search for added tokens, so a token that
// overlaps a span of Plain is an error.
func (h *library) Encode(text string, opts *EncodeOptions) ([]int32, error) {
	return h.EncodeContext(context.Background(), text, opts)
}

// EncodeContext is like Encode, but returns ctx.Err() as soon as ctx ends. The library still
// finishes the text.
func (h *library) EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error) {
	return within(ctx, func() ([]int32, error) { return h.encode(text, opts) })
}

func (h *library) encode(text string, opts *EncodeOptions) ([]int32, error) {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("tokenizer: the text has a NUL character, at byte %d, which Hugging Face's library "+
			"cannot be given", i)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("tokenizer: the text has %d bytes, at most %d can be encoded at once", len(text),
			maxText)
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.lib == nil {
		return nil, errClosed
	}
	if opts == nil {
		opts = &EncodeOptions{}
	}
	plain, err := checkSpans(opts.Plain, len(text))
	if err != nil {
		return nil, err
	}
	var list []uint32
	if len(plain) == 0 {
		list = h.lib.EncodeWithOptions(text, !opts.NoSpecial).IDs
	} else {
		text, plain = lossyPlain(text, plain)
		e := h.lib.EncodeWithOptions(text, !opts.NoSpecial, tokenizers.WithReturnOffsets())
		if err := h.checkPlain(text, plain, &e); err != nil {
			return nil, err
		}
		list = e.IDs
	}
	ids := make([]int32, len(list))
	for i, id := range list {
		if id > math.MaxInt32 {
			return nil, fmt.Errorf("tokenizer: the id %d is out of range", id)
		}
		ids[i] = int32(id)
	}
	return ids, nil
}

// checkPlain returns an error if an added token was found in plain text. The white space that a
// token strips may be there.
func (h *library) checkPlain(text string, plain []Span, e *tokenizers.Encoding) error {
	if len(e.Offsets) != len(e.IDs) {
		return errors.New("tokenizer: Hugging Face's library does not tell where tokens are, so that content " +
			"could forge them")
	}
	for i, id := range e.IDs {
		a, ok := h.added[id]
		from, to := int(e.Offsets[i][0]), int(e.Offsets[i][1])
		if !ok || from >= to || to > len(text) {
			continue
		}
		own := text[from:to]
		if strings.TrimSpace(a.Content) != "" {
			own = strings.TrimLeftFunc(own, unicode.IsSpace)
			from = to - len(own)
			own = strings.TrimRightFunc(own, unicode.IsSpace)
		}
		// Text without a token becomes the unknown token, which is often an added one.
		if !a.Normalized && strings.TrimSpace(own) != strings.TrimSpace(a.Content) {
			continue
		}
		if len(clipSpans(plain, from, from+len(own))) > 0 {
			return fmt.Errorf("tokenizer: the message content has the text of the token %q at byte %d, which Hugging "+
				"Face's library would take for the token itself: take it out, or allow it (chat.Options.AllowSpecial)",
				a.Content, from)
		}
	}
	return nil
}

// decode returns the text of ids, with the tokenizer's own decoder: SentencePiece's removes the
// first space. Ids without a token are skipped. A text with a NUL character is an error, because
// the library returns none of it.
func (h *library) decode(ids []int32, skipSpecial bool) (string, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.lib == nil {
		return "", errClosed
	}
	list := make([]uint32, 0, len(ids)+len(h.probe))
	for _, id := range ids {
		if id >= 0 {
			list = append(list, uint32(id))
		}
	}
	text := h.lib.Decode(list, skipSpecial)
	// An empty text and one with a NUL look alike. If text follows, they differ.
	if text == "" && len(list) > 0 && h.lib.Decode(append(list, h.probe...), skipSpecial) == "" &&
		h.lib.Decode(h.probe, skipSpecial) != "" {
		return "", errors.New("tokenizer: the text has a NUL character, which Hugging Face's library cannot give")
	}
	return text, nil
}

// Decode returns the text of ids, including special tokens. If the library fails, it is empty.
func (h *library) Decode(ids []int32) string {
	text, err := h.decode(ids, false)
	if err != nil {
		return ""
	}
	return text
}

// Token returns the text of one token on its own.
func (h *library) Token(id int32) (string, bool) {
	text, err := h.decode([]int32{id}, false)
	return text, err == nil && text != ""
}

// String returns a short description for people.
func (h *library) String() string { return "Hugging Face's library" }

// Stream returns a decoder for a new text. The text of a token is the difference that it makes to
// the text of the last few tokens. A text that ends inside a character is held back. If the library
// fails, the text is empty.
func (h *library) Stream() *Stream {
	var before []int32 // tokens whose text was returned, then those whose text is held back
	given := 0         // number of the former
	adds := func(special bool) (all, added string, ok bool) {
		old, err1 := h.decode(before[:given], !special)
		all, err2 := h.decode(before, !special)
		return all, strings.TrimPrefix(all, old), err1 == nil && err2 == nil
	}
	return &Stream{
		adds: func(id int32, special bool) string {
			before = append(before, id)
			all, added, ok := adds(special)
			if !ok || strings.HasSuffix(all, "\uFFFD") && len(before)-given < 4 {
				return ""
			}
			// Four tokens are enough context: decoders only look at neighbours.
			before = slices.Clone(before[max(0, len(before)-4):])
			given = len(before)
			return added
		},
		rest: func(special bool) string {
			_, added, _ := adds(special)
			before, given = nil, 0
			return added
		},
	}
}

// Close frees the library's memory. It may be called twice. Other methods then return an error.
func (h *library) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lib == nil {
		return nil
	}
	err := h.lib.Close()
	h.lib = nil
	return err
}

// openOther opens a tokenizer.json that Open does not support.
func openOther(path string, decoder []addedToken, _ error) (Tokenizer, error) {
	return openLibrary(path, decoder)
}
