//go:build !hftokenizers

package tokenizer

// openOther has nothing to offer for a tokenizer.json that Open does not support, and gives Open's
// reason.
func openOther(_ string, _ []addedToken, reason error) (Coder, error) { return nil, reason }
