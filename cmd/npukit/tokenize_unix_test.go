//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A tokenizer comes through a pipe too, as from a shell's <(...): it is read once.
func TestTokenizerFromAPipe(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(chatty(t), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(pipe, data, 0o600) // waits for a reader; what goes wrong here the command says
	if out := succeed(t, "", "tokenize", pipe, "Hi", "--json"); out != "[256,72,105]\n" {
		t.Errorf("the ids are %s", out)
	}
}
