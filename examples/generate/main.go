// Command generate continues a prompt and prints the text as it comes. It is the smallest useful
// program with npukit.
//
//	go run ./examples/generate ~/.cache/npukit/models/SmolLM2-135M-Instruct-Q4_1.gguf "Once upon a time"
//
// The model is a Hugging Face folder or a .gguf file. For a model that follows instructions, see
// examples/chat.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu/cpu"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: generate MODEL PROMPT")
	}
	ctx := context.Background()
	dev, err := cpu.Open(nil) // all cores, the fastest kernels
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open(ctx, dev, os.Args[1], nil)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for tok, err := range m.Generate(ctx, model.Text(os.Args[2]), &model.GenerateOptions{MaxTokens: 64}) {
		if err != nil {
			log.Fatal(err)
		}
		say("%s", tok.Text)
	}
	say("\n")
}

// say prints, and ends the program where that fails: an answer that is lost on a full disk is no
// success.
func say(format string, args ...any) {
	if _, err := fmt.Printf(format, args...); err != nil {
		log.Fatal(err)
	}
}
