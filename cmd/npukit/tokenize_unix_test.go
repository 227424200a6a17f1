//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A tokenizer can be a pipe, as from a shell's <(...): it is read once.
func TestTokenizerFromAPipe(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(chatty(t), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(pipe, data, 0o600) // blocks until the command reads; the command reports errors
	if out := succeed(t, "", "tokenize", pipe, "Hi", "--json"); out != "[256,72,105]\n" {
		t.Errorf("the ids are %s", out)
	}
}
