// Package verifytext has the text that a model reads while it is verified.
package verifytext

import _ "embed"

// Text is plain English of some hundred tokens,
// written for this purpose, with names, figures, speech and code in it, so that both easy and
// surprising tokens come.
//
//go:embed text.txt
var Text string

// Prompts are short texts of different lengths for a model to continue.
var Prompts = [...]string{
	"The capital of France is",
	"Once upon a time there was a lighthouse keeper who",
	"To find the first wrong number in a long calculation, you",
}
