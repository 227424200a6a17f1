package tokenizer

import (
	"context"
	"errors"
)

// Coder is the part of a tokenizer that running a model needs. [*Tokenizer] implements it. With the
// build tag hftokenizers, [OpenCoder] also returns other kinds.
type Coder interface {
	Encode(text string, opts *EncodeOptions) ([]int32, error)
	EncodeContext(ctx context.Context, text string, opts *EncodeOptions) ([]int32, error)
	Token(id int32) (string, bool)
	Stream() *Stream
	String() string // for people
}

// OpenCoder reads a tokenizer.json of any kind that this build supports: as [Open] does if it can,
// otherwise with Hugging Face's library. If the result is an io.Closer, the caller must close it.
func OpenCoder(path string) (Coder, error) { return openCoder(path, nil) }

// openCoder is OpenCoder with the tokens of an added_tokens_decoder.
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
