//go:build hftokenizers

package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/daulet/tokenizers"
)

// HF is Hugging Face's own library (through github.com/daulet/tokenizers), which this package has under the build tag hftokenizers:
//
//	CGO_LDFLAGS=$(sh model/tokenizer/hftokenizers.sh) go build -tags hftokenizers ./...
//
// Use it for what [Open] refuses with an [UnsupportedError]: SentencePiece, WordPiece, Unigram and whatever else a tokenizer.json can say.
// For byte-level BPE use [Open]: it gives the same ids (a test under the tag holds the two together), needs neither cgo nor
// a library of 50 MB, streams text token by token, tells why it fails, and takes any text.
//
// The library is given and gives text as C strings, so no text with a NUL character passes. Some malformed files make it end the
// process instead of giving an error: open only files that you trust. An HF is safe for concurrent use.
type HF struct {
	mu    sync.RWMutex // held for writing by Close only
	lib   *tokenizers.Tokenizer
	probe []uint32 // ids of some text, see decode
}

// OpenHF reads a tokenizer.json of any kind, gzipped or not. Its truncation and padding are ignored, as [Open] ignores them. Close the result.
func OpenHF(path string) (*HF, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	data, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	if data, err = untruncated(data); err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	lib, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return &HF{lib: lib, probe: lib.EncodeWithOptions("a", false).IDs}, nil
}

// untruncated is a tokenizer.json without truncation and padding, which the library would apply to every text.
func untruncated(data []byte) ([]byte, error) {
	s := &scanner{text: string(data)}
	var out strings.Builder
	done := 0 // what is before it is in out
	err := s.object(func(key string) error {
		value, err := s.raw()
		if err == nil && (key == "truncation" || key == "padding") {
			out.WriteString(s.text[done : s.at-len(value)])
			out.WriteString("null")
			done = s.at
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("this is no tokenizer.json: %w", err)
	}
	out.WriteString(s.text[done:])
	return []byte(out.String()), nil
}

var errClosed = errors.New("tokenizer: the tokenizer is closed")

// Encode gives the ids of a text, as [Tokenizer.Encode] does. A text with a NUL character is an error, since the library would encode what
// stands before it only. Where the library itself fails it says nothing and gives no ids.
func (h *HF) Encode(text string, opts *EncodeOptions) ([]int32, error) {
	return h.EncodeContext(context.Background(), text, opts)
}

// EncodeContext is Encode, but returns ctx.Err() as soon as ctx has ended. The library goes on to the end of the text meanwhile.
func (h *HF) EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error) {
	return within(ctx, func() ([]int32, error) { return h.encode(text, opts) })
}

func (h *HF) encode(text string, opts *EncodeOptions) ([]int32, error) {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("tokenizer: the text has a NUL character, at byte %d, which Hugging Face's library cannot be given", i)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("tokenizer: the text has %d bytes, at most %d can be encoded at once", len(text), maxText)
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.lib == nil {
		return nil, errClosed
	}
	around := opts == nil || !opts.NoSpecial
	list := h.lib.EncodeWithOptions(text, around).IDs
	ids := make([]int32, len(list))
	for i, id := range list {
		if id > math.MaxInt32 {
			return nil, fmt.Errorf("tokenizer: the id %d is out of range", id)
		}
		ids[i] = int32(id)
	}
	return ids, nil
}

// Decode gives the text of ids, special tokens included, by the tokenizer's own decoder: one of SentencePiece takes the first space away. Ids
// without a token come out as nothing. A text with a NUL character is an error, since the library gives no part of it.
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
	if text == "" && len(list) > 0 && h.lib.Decode(append(list, h.probe...), skipSpecial) == "" && h.lib.Decode(h.probe, skipSpecial) != "" {
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

// Stream starts decoding a text. What a token adds is the difference that it makes to the text of the tokens before it, of which the last
// few are looked at; text that ends inside a character is held back. Where the library fails nothing is added.
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
			// Four tokens are context enough for every decoder, which look at their neighbours only.
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

// Close frees the library's memory. It may be called twice; Encode and Decode give an error after it.
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
func openOther(path string, _ error) (Coder, error) { return OpenHF(path) }
