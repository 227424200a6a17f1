// Package tokenizer turns text into token ids and back, exactly as Hugging Face's tokenizers
// library does for byte-level BPE: the tokenizers of Llama 3, Qwen2, Qwen2.5, Qwen3, SmolLM2 and
// models built the same way.
//
//	t, err := tokenizer.Open("SmolLM2-135M-Instruct/tokenizer.json")
//	if err != nil { ... }
//	ids, err := t.Encode("What is gravity?", nil)     // [1780 314 9354 47]
//	text := t.Decode(ids)                             // "What is gravity?"
//
// # From text to ids
//
// Encode runs the steps of a tokenizer.json, each in its own file. It finds special and other added
// tokens in the text (added.go), normalizes the text between them (NFC, for Qwen: unicode.go,
// compose.go), splits it into words by a pattern (split.go), maps each byte of a word to a
// character of the byte-level alphabet (bytelevel.go), and applies the learned merges (bpe.go).
// Then it adds tokens such as Llama's BOS at the start and end.
//
// [EncodeOptions].Plain marks the parts of a text that users wrote. No added token is found there,
// so users cannot forge one (plain.go).
//
// Bytes that are not valid UTF-8 are encoded as U+FFFD, one for each malformed part; a truncated
// character is one part.
//
// # Opening a tokenizer
//
// [Open] and [Parse] read a tokenizer.json. [OpenFolder] also reads the tokens that only
// tokenizer_config.json has. [FromVocab] uses the metadata of a GGUF file, where the name of the
// pre-tokenizer stands for its pattern. If a tokenizer.json uses a feature that this package lacks,
// the error is an [UnsupportedError] that names it. Truncation and padding are ignored: they are
// settings of a training run, not part of the tokenizer.
//
// Other kinds of tokenizers (SentencePiece, WordPiece, Unigram) need the build tag hftokenizers,
// which links Hugging Face's library. Then [Open] and [OpenFolder] use that library for every
// file that Open does not support:
//
//	CGO_LDFLAGS=$(sh model/tokenizer/hftokenizers.sh) go build -tags hftokenizers ./...
package tokenizer

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"
)

// byteLevel is a byte-level BPE tokenizer. It is immutable and safe for concurrent use.
type byteLevel struct {
	tokens  []string // bytes of each token by id
	known   []bool   // the id has a token
	special []bool
	words   map[string]int32 // id of a vocabulary token by its bytes
	added   map[string]int32 // content of added tokens, and of tokens outside the byte-level alphabet
	bpe     *bpe
	split   splitter
	nfc     bool
	before  *matcher // added tokens to find before normalization
	after   *matcher // added tokens to find after normalization
	prefix  []int32  // post-processing adds these before and after the text
	suffix  []int32

	cache *wordCache
}

// EncodeOptions are the options of an encoding. Nil means the defaults.
type EncodeOptions struct {
	NoSpecial bool // do not add BOS or EOS; special tokens in the text are still recognized

	// Plain are the spans of the text in which no added token is recognized, special or not: for
	// example the content of messages, as opposed to the text of a chat template. They must be
	// sorted, disjoint and within the text. A token is recognized only if none of its bytes is in a
	// span. Tokens of white space alone that are not special count as ordinary text and are
	// recognized everywhere.
	Plain []Span
}

// UnsupportedError is returned if a tokenizer uses a feature that this package does not support.
type UnsupportedError struct {
	Feature string // for example `model "Unigram"`
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s is not supported: supported is byte-level BPE as in Llama 3, Qwen2, Qwen3 and SmolLM2 "+
		"(build with -tags hftokenizers for any tokenizer.json)", e.Feature)
}

// Encode returns the ids of a text. Its time is proportional to the length of the text, at most
// some microseconds per byte. Only a tokenizer.json with an unknown pattern may take longer; then
// Encode fails after about ten seconds.
func (t *byteLevel) Encode(text string, opts *EncodeOptions) ([]int32, error) {
	return t.EncodeContext(context.Background(), text, opts)
}

// EncodeContext is like Encode, but returns ctx.Err() as soon as ctx ends. A goroutine does the
// work; it notices the end of ctx within a thousand words, or at the next match of a pattern.
func (t *byteLevel) EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error) {
	return within(ctx, func() ([]int32, error) { return t.encode(ctx, text, opts) })
}

// within returns the result of f, or ctx.Err() as soon as ctx ends.
func within(ctx context.Context, f func() ([]int32, error)) ([]int32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		ids []int32
		err error
	}
	done := make(chan result, 1)
	go func() {
		ids, err := f()
		done <- result{ids, err}
	}()
	select {
	case r := <-done:
		return r.ids, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *byteLevel) encode(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("tokenizer: the text has %d bytes, at most %d can be encoded at once", len(text),
			maxText)
	}
	if opts == nil {
		opts = &EncodeOptions{}
	}
	plain, err := checkSpans(opts.Plain, len(text))
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(text) {
		text, plain = lossyPlain(text, plain)
	}
	around := !opts.NoSpecial
	ids := make([]int32, 0, len(text)/3+len(t.prefix)+len(t.suffix))
	if around {
		ids = append(ids, t.prefix...)
	}
	var failed error
	in := newBudget(ctx, text)
	words := 0
	word := func(word string) {
		if words++; words%1024 == 0 && failed == nil {
			failed = ctx.Err()
		}
		if failed == nil {
			ids = t.cache.encode(ids, word, t.bpe)
		}
	}
	t.before.cut(text, plain, func(piece string, at int, id int32) {
		if failed != nil {
			return
		}
		if id >= 0 {
			ids = append(ids, id)
			return
		}
		var inside []Span
		if len(t.after.tokens) > 0 {
			inside = clipSpans(plain, at, at+len(piece))
		}
		if t.nfc {
			piece, inside = nfcPlain(piece, inside)
		}
		t.after.cut(piece, inside, func(piece string, _ int, id int32) {
			switch {
			case failed != nil:
			case id >= 0:
				ids = append(ids, id)
			default:
				if err := t.split(in, piece, word); failed == nil {
					failed = err
				}
			}
		})
	})
	if failed != nil {
		return nil, failed
	}
	if around {
		ids = append(ids, t.suffix...)
	}
	return ids, nil
}

// maxText keeps positions within an int32, even if normalization lengthens the text.
const maxText = 1 << 29

// Decode returns the text of ids, including special tokens. Invalid UTF-8 becomes U+FFFD. Ids
// without a token are skipped.
func (t *byteLevel) Decode(ids []int32) string { return t.text(ids, true) }

// Text returns the text of ids without special tokens.
func (t *byteLevel) Text(ids []int32) string { return t.text(ids, false) }

func (t *byteLevel) text(ids []int32, special bool) string {
	s := t.Stream()
	s.Special = special
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(s.Next(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

// Token returns the bytes of a token, which may not be valid UTF-8 on their own.
func (t *byteLevel) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || !t.known[id] {
		return "", false
	}
	return t.tokens[id], true
}

// ID returns the id of a token as the vocabulary writes it: "<|im_end|>", or "Ġgravity" for "
// gravity".
func (t *byteLevel) ID(token string) (int32, bool) {
	if id, ok := t.added[token]; ok {
		return id, true
	}
	bytes, ok := decodeBytes(token)
	if !ok {
		return 0, false
	}
	id, ok := t.words[bytes]
	return id, ok
}

// IsSpecial reports whether id is a special token, which is not part of the text.
func (t *byteLevel) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// String returns a short description for people.
func (t *byteLevel) String() string { return fmt.Sprintf("byte-level BPE, %d tokens", t.Size()) }

// Size returns the largest id plus one.
func (t *byteLevel) Size() int { return len(t.tokens) }
