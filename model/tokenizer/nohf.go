//go:build !hftokenizers

package tokenizer

// openOther returns the reason why Open does not support a file. In a build with the tag
// hftokenizers it opens the file with Hugging Face's library.
func openOther(_ string, _ []addedToken, reason error) (Tokenizer, error) { return nil, reason }
