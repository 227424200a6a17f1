package tokenizer

import (
	"context"
	"errors"
)

// Tokenizer turns text into ids and back. It is immutable and safe for concurrent use.
type Tokenizer interface {
	// Encode returns the ids of a text. Special tokens are found in it unless opts.Plain marks the
	// text as a user's.
	Encode(text string, opts *EncodeOptions) ([]int32, error)
	// EncodeContext is Encode until ctx is done.
	EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error)
	// Decode returns the text of ids, with special tokens. Ids without a token are left out.
	Decode(ids []int32) string
	// Token returns the text of one token, and false if there is none.
	Token(id int32) (string, bool)
	// Stream returns a decoder for ids that come one by one.
	Stream() *Stream
	// String describes the tokenizer for people.
	String() string
}

// Open reads a tokenizer.json, gzipped or not. With the build tag hftokenizers, it opens kinds that
// this package does not support with Hugging Face's library. If the result is an io.Closer, the caller
// must close it. Open reads no other file: see [OpenFolder].
func Open(path string) (Tokenizer, error) { return openCoder(path, nil) }

// openCoder is Open with the tokens of an added_tokens_decoder.
func openCoder(path string, decoder []addedToken) (Tokenizer, error) {
	t, err := openFile(path, decoder)
	if err == nil {
		return t, nil
	}
	if unsupported := (*UnsupportedError)(nil); errors.As(err, &unsupported) {
		return openOther(path, decoder, err)
	}
	return nil, err
}
