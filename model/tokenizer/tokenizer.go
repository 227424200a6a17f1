// Package tokenizer turns text into token ids and back, exactly as Hugging Face's tokenizers
// library does for byte-level BPE: the tokenizers of Llama 3, Qwen2, Qwen2.5, Qwen3, SmolLM2 and of
// other models built the same way.
//
//	t, err := tokenizer.Open("SmolLM2-135M-Instruct/tokenizer.json")
//	if err != nil { ... }
//	ids, err := t.Encode("What is gravity?", nil)     // [1780 314 9354 47]
//	text := t.Decode(ids)                             // "What is gravity?"
//
// # From text to ids
//
// The steps are those of a tokenizer.json, in files of their own: special and other added tokens
// are found in the text (added.go), what lies between is normalised (NFC, for Qwen: unicode.go,
// compose.go) and cut into words by a pattern (split.go), each byte of a word becomes a character
// of the byte-level alphabet (bytelevel.go), and learned merges join them (bpe.go). Tokens such as
// Llama's BOS are put around the result.
//
// In a text of which a part was written by users, [EncodeOptions].Plain says where: there no added
// token is found, so that what users write cannot forge one (plain.go).
//
// Bytes that are not valid UTF-8 are encoded as U+FFFD, one for each part that is malformed: a
// character cut short is one part.
//
// # Where a tokenizer comes from
//
// [Open] and [Parse] read tokenizer.json; [OpenFolder] reads it with the tokens that only
// tokenizer_config.json has. [FromVocab] takes the metadata of a GGUF file, where the name of the
// pre-tokeniser stands for its pattern. Whatever a tokenizer.json asks for and this package does
// not do is an [UnsupportedError] that names it. Only truncation and padding are ignored: they are
// settings that its maker last used, and not what a text's ids are. For other kinds of tokenizers
// (SentencePiece, WordPiece) there is OpenHF under the build tag hftokenizers, which links Hugging
// Face's library; [OpenCoder] takes whichever of the two reads a file.
package tokenizer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Tokenizer encodes and decodes. It does not change and is safe for concurrent use.
type Tokenizer struct {
	tokens  []string // bytes of each token by id
	known   []bool   // ids that have a token
	special []bool
	words   map[string]int32 // bytes of the vocabulary's tokens to id
	added   map[string]int32 // content of added tokens, and of the vocabulary's that are not in the byte-level alphabet
	bpe     *bpe
	split   splitter
	nfc     bool
	before  *matcher // added tokens found in the text as it is
	after   *matcher // added tokens found after normalisation
	prefix  []int32  // put before and after the text by post-processing
	suffix  []int32

	cache *wordCache
}

// EncodeOptions change how a text is encoded. Nil means the defaults.
type EncodeOptions struct {
	NoSpecial bool // put no tokens around the text; special tokens written in it are recognised all the same

	// Plain are parts of the text in which no added token is recognised, special or not: what users
	// have written, as opposed to what a chat template has. They must be sorted, disjoint and
	// within the text. A token is recognised only if none of its own bytes lie in a span; in a text
	// without such tokens the ids are the same as without spans. Tokens of white space alone that
	// are not special are ordinary text and recognised everywhere.
	Plain []Span
}

// UnsupportedError is a tokenizer that works in a way this package does not know.
type UnsupportedError struct {
	What string // such as `model "Unigram"`
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s is not supported: supported is byte-level BPE as in Llama 3, Qwen2, Qwen3 and SmolLM2 "+
		"(build with -tags hftokenizers for any tokenizer.json)", e.What)
}

// Encode gives the ids of a text. It takes time in proportion to the text's length, at most some
// microseconds a byte. Only a tokenizer.json with a pattern that no family has may take more: its
// error comes after ten seconds.
func (t *Tokenizer) Encode(text string, opts *EncodeOptions) ([]int32, error) {
	return t.EncodeContext(context.Background(), text, opts)
}

// EncodeContext is Encode, but returns ctx.Err() as soon as ctx has ended. The work is done by
// another goroutine, and where ctx ends before it does, that one ends a little later: with its
// text's next thousand words, or with a pattern's next match.
func (t *Tokenizer) EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error) {
	return within(ctx, func() ([]int32, error) { return t.encode(ctx, text, opts) })
}

// within waits for f no longer than ctx lasts.
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

func (t *Tokenizer) encode(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error) {
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

// maxText keeps positions within an int32, with room for normalisation to lengthen the text.
const maxText = 1 << 29

// Decode gives the text of ids, special tokens included. Bytes that are not valid UTF-8 come out as
// U+FFFD; ids without a token come out as nothing.
func (t *Tokenizer) Decode(ids []int32) string { return t.text(ids, true) }

// Text gives the text of ids without special tokens.
func (t *Tokenizer) Text(ids []int32) string { return t.text(ids, false) }

func (t *Tokenizer) text(ids []int32, special bool) string {
	s := t.Stream()
	s.Special = special
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(s.Next(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

// Token gives the bytes of a token, which need not be valid UTF-8 on their own.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || !t.known[id] {
		return "", false
	}
	return t.tokens[id], true
}

// ID gives the id of a token, written as the vocabulary writes it: "<|im_end|>", or "Ġgravity" for
// " gravity".
func (t *Tokenizer) ID(token string) (int32, bool) {
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

// IsSpecial reports whether id is a special token: one that is not part of the text.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// String describes the tokenizer in a few words.
func (t *Tokenizer) String() string { return fmt.Sprintf("byte-level BPE, %d tokens", t.Size()) }

// Size is one more than the largest id.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// Around gives the ids that Encode puts before and after a text.
func (t *Tokenizer) Around() (prefix, suffix []int32) {
	return slices.Clone(t.prefix), slices.Clone(t.suffix)
}
