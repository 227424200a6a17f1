package tokenizer

import (
	"context"
	"errors"
)

// Coder is what running a model takes of a tokenizer. A [*Tokenizer] is one; under the build tag
// hftokenizers, HF is another, for the kinds that Tokenizer is not.
type Coder interface {
	Encode(text string, opts *EncodeOptions) ([]int32, error)
	EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error)
	Token(id int32) (string, bool)
	Stream() *Stream
	String() string // what it is, for people
}

// OpenCoder reads a tokenizer.json of any kind that this build has: our own where it can, otherwise
// Hugging Face's library. If the result is an io.Closer, close it.
func OpenCoder(path string) (Coder, error) { return openCoder(path, nil) }

// openCoder is OpenCoder with tokens of an added_tokens_decoder.
func openCoder(path string, decoder []addedToken) (Coder, error) {
	t, err := openFile(path, decoder)
	if err == nil {
		return t, nil
	}
	if unsupported := (*UnsupportedError)(nil); errors.As(err, &unsupported) {
		return openOther(path, decoder, err)
	}
	return nil, err
}
