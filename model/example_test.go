package model_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/npu/cpu"
)

// guide writes a tiny model that has learned three sentences, in the layout of a Hugging Face
// folder, and returns its path. The examples use it, because no real model fits into a repository.
func guide() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "npukit")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, "guide")
	err = ckptgen.Chain{
		Control: []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
		Words: []string{
			" there", " was", " a", " lighthouse", "The", " capital", " of", " France", " is", " Paris", " It", " has",
			" bridges",
		},
		Says: [][]string{
			{"e", ",", " there", " was", " a", " lighthouse", "<|endoftext|>"},
			{"\n", "The", " capital", " of", " France", " is", " Paris", ".", "<|im_end|>"},
			{"?", " It", " has", " bridges", "<|im_end|>"},
		},
		TokenizerConfig: map[string]any{
			"eos_token": "<|im_end|>",
			"chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" +
				"<|im_end|>\n{% endfor %}" +
				"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
		},
	}.Write(path)
	if err != nil {
		log.Fatal(err)
	}
	return path, func() { os.RemoveAll(dir) }
}

// A device must outlive the models that are opened on it.
func ExampleOpen() {
	path, remove := guide()
	defer remove()

	dev, err := cpu.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open(context.Background(), dev, path, &model.OpenOptions{MaxContext: 1024})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	fmt.Println(m.Checkpoint().Config().Family, m.Context())
	tok, err := m.Tokenizer()
	if err != nil {
		log.Fatal(err)
	}
	for _, end := range model.EndTokens(m.Checkpoint(), tok) {
		fmt.Println(end.ID, end.Text, end.Origins)
	}
	// Output:
	// llama 1024
	// 2 <|im_end|> [tokenizer_config.json token text]
	// 0 <|endoftext|> [token text]
}

// open opens the model of the examples.
func open() (*model.Model, func()) {
	path, remove := guide()
	dev, err := cpu.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	m, err := model.Open(context.Background(), dev, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	return m, func() {
		m.Close()
		dev.Close()
		remove()
	}
}

// Tokens are yielded as they are generated.
func ExampleModel_Generate() {
	m, done := open()
	defer done()

	var stats model.Stats
	opts := &model.GenerateOptions{MaxTokens: 64, Stats: &stats}
	for tok, err := range m.Generate(context.Background(), model.Text("Once upon a time"), opts) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
	}
	fmt.Printf("\n%d tokens, ended by %s\n", stats.Tokens, stats.Reason)
	// Output:
	// , there was a lighthouse
	// 6 tokens, ended by eos
}

// Complete returns a whole answer, here with a stop string.
func ExampleModel_Complete() {
	m, done := open()
	defer done()

	opts := &model.GenerateOptions{Stop: []string{" light"}}
	answer, err := m.Complete(context.Background(), model.Text("Once upon a time"), opts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, ended by %s\n", answer.Text, answer.Stats.Reason)
	// Output:
	// ", there was a", ended by stop
}

// A session answers a conversation. Pass the whole conversation each time; only its new part is
// computed.
func ExampleSession_Chat() {
	m, done := open()
	defer done()

	s := m.NewSession()
	defer s.Close()
	messages := []chat.Message{{Role: "user", Content: "What is the capital of France?"}}
	for tok, err := range s.Chat(context.Background(), messages, nil, nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
	}
	fmt.Println()
	// Output:
	// The capital of France is Paris.
}

// A session reuses its KV cache: the second prompt starts like the first, so only the rest of it is
// computed.
func ExampleSession() {
	m, done := open()
	defer done()

	s := m.NewSession()
	defer s.Close()
	ctx := context.Background()
	const prompt = "I am going to spend a week in Paris. Which sights does the city have?"
	first, err := s.Complete(ctx, model.Text(prompt), nil)
	if err != nil {
		log.Fatal(err)
	}
	second, err := s.Complete(ctx, model.Text(prompt+" And which ones does Rome have?"), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, reused %v\n", first.Text, first.Stats.CachedTokens > 0)
	fmt.Printf("%q, reused %v\n", second.Text, second.Stats.CachedTokens > 0)
	// Output:
	// " It has bridges", reused false
	// " It has bridges", reused true
}

// A server distinguishes a caller's mistakes from its own faults.
func ExampleOptionError() {
	m, done := open()
	defer done()

	_, err := m.Complete(context.Background(), model.Text("Hello"), &model.GenerateOptions{MaxTokens: -1})
	var bad *model.OptionError
	if errors.As(err, &bad) {
		fmt.Println("400:", bad.Field)
	}
	fmt.Println(err)
	// Output:
	// 400: GenerateOptions.MaxTokens
	// model: GenerateOptions.MaxTokens is -1, want 0 (no limit) or more
}
