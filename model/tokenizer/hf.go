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

// HF is Hugging Face's own library (through github.com/daulet/tokenizers), which this package has
// under the build tag hftokenizers:
//
//	CGO_LDFLAGS=$(sh model/tokenizer/hftokenizers.sh) go build -tags hftokenizers ./...
//
// Use it for what [Open] refuses with an [UnsupportedError]: SentencePiece, WordPiece, Unigram and
// whatever else a tokenizer.json can say. For byte-level BPE use [Open]: it gives the same ids (a
// test under the tag holds the two together), needs neither cgo nor a library of 50 MB, streams
// text token by token, tells why it fails, and takes any text.
//
// The library is given and gives text as C strings, so no text with a NUL character passes. Some
// malformed files make it end the process instead of giving an error: open only files that you
// trust. An HF is safe for concurrent use.
type HF struct {
	mu    sync.RWMutex // held for writing by Close only
	lib   *tokenizers.Tokenizer
	probe []uint32              // ids of some text, see decode
	added map[uint32]addedToken // without those that are found in plain text too
}

// OpenHF reads a tokenizer.json of any kind, gzipped or not. Its truncation and padding are
// ignored, as [Open] ignores them. Close the result.
func OpenHF(path string) (*HF, error) { return openLibrary(path, nil) }

func openLibrary(path string, decoder []addedToken) (*HF, error) {
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
	h := &HF{lib: lib, probe: lib.EncodeWithOptions("a", false).IDs, added: map[uint32]addedToken{}}
	ids := map[string]int32{}
	for _, a := range added {
		ids[a.Content] = a.ID
		if a.Special || strings.TrimSpace(a.Content) != "" {
			h.added[uint32(a.ID)] = a
		}
	}
	for _, a := range decoder {
		// The library numbers by itself what is new to it.
		got := lib.EncodeWithOptions(a.Content, false).IDs
		if id := ids[a.Content]; !slices.Contains(got, uint32(id)) {
			err := fmt.Errorf("tokenizer: %s: tokenizer_config.json: added_tokens_decoder gives the token %q the "+
				"id %d, which Hugging Face's library does not", path, a.Content, id)
			return nil, errors.Join(err, lib.Close())
		}
	}
	return h, nil
}

// prepared is a tokenizer.json with the tokens of an added_tokens_decoder, and without truncation
// and padding, which the library would apply to every text. It also returns the added tokens.
func prepared(data []byte, decoder []addedToken) ([]byte, []addedToken, error) {
	s := &scanner{text: string(data)}
	var added []addedToken
	listed := -1 // where the list of added tokens ends
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
		return nil, nil, fmt.Errorf("this is no tokenizer.json: %w", err)
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
	done := 0 // what is before it is in out
	for _, e := range edits {
		out.WriteString(s.text[done:e.from])
		out.WriteString(e.text)
		done = e.to
	}
	out.WriteString(s.text[done:])
	return []byte(out.String()), added, nil
}

// modelVocab goes through the vocabulary of a model: an object of ids, or a list of pairs of a
// token and its score.
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

// Encode gives the ids of a text, as [Tokenizer.Encode] does. A text with a NUL character is an
// error, since the library would encode what stands before it only. Where the library itself fails
// it says nothing and gives no ids.
//
// The library cannot be kept from finding an added token in a part of a text, so one that overlaps
// a span of Plain is an error.
func (h *HF) Encode(text string, opts *EncodeOptions) ([]int32, error) {
	return h.EncodeContext(context.Background(), text, opts)
}

// EncodeContext is Encode, but returns ctx.Err() as soon as ctx has ended. The library goes on to
// the end of the text meanwhile.
func (h *HF) EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error) {
	return within(ctx, func() ([]int32, error) { return h.encode(text, opts) })
}

func (h *HF) encode(text string, opts *EncodeOptions) ([]int32, error) {
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
// token takes with it may be there.
func (h *HF) checkPlain(text string, plain []Span, e *tokenizers.Encoding) error {
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
		// What the model itself has no token for becomes its unknown token, which is often an added
		// one.
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

// Decode gives the text of ids, special tokens included, by the tokenizer's own decoder: one of
// SentencePiece takes the first space away. Ids without a token come out as nothing. A text with a
// NUL character is an error, since the library gives no part of it.
func (h *HF) Decode(ids []int32) (string, error) { return h.decode(ids, false) }

// Text gives the text of ids without special tokens, otherwise as Decode does.
func (h *HF) Text(ids []int32) (string, error) { return h.decode(ids, true) }

func (h *HF) decode(ids []int32, skipSpecial bool) (string, error) {
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
	// A text that is empty and one with a NUL look alike. With some text behind them they do not.
	if text == "" && len(list) > 0 && h.lib.Decode(append(list, h.probe...), skipSpecial) == "" &&
		h.lib.Decode(h.probe, skipSpecial) != "" {
		return "", errors.New("tokenizer: the text has a NUL character, which Hugging Face's library cannot give")
	}
	return text, nil
}

// Token gives the text of one token on its own.
func (h *HF) Token(id int32) (string, bool) {
	text, err := h.Decode([]int32{id})
	return text, err == nil && text != ""
}

// String describes the tokenizer in a few words.
func (h *HF) String() string { return "Hugging Face's library" }

// Stream starts decoding a text. What a token adds is the difference that it makes to the text of
// the tokens before it, of which the last few are looked at; text that ends inside a character is
// held back. Where the library fails nothing is added.
func (h *HF) Stream() *Stream {
	var before []int32 // tokens whose text has been given, then those whose text is held back
	given := 0         // how many of the first sort
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
			// Four tokens are context enough for every decoder, which look at their neighbours
			// only.
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

// Close frees the library's memory. It may be called twice; Encode and Decode give an error after
// it.
func (h *HF) Close() error {
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
func openOther(path string, decoder []addedToken, _ error) (Coder, error) {
	return openLibrary(path, decoder)
}
