package main

import _ "embed"

// verifyText is what a model reads while it is verified: plain English of some hundred tokens,
// written for this purpose, with names, figures, speech and code in it, so that both easy and
// surprising tokens come.
//
//go:embed verify_text.txt
var verifyText string

// verifyPrompts are what a model continues; short ones, so that little lies in the cache, of
// different lengths.
var verifyPrompts = [...]string{
	"The capital of France is",
	"Once upon a time there was a lighthouse keeper who",
	"To find the first wrong number in a long calculation, you",
}
