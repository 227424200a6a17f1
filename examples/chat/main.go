// Command chat holds a conversation: a line from stdin, an answer to stdout, and so on. Ctrl-C
// stops an answer; Ctrl-D leaves.
//
//	go run ./examples/chat ~/.cache/npukit/models/SmolLM2-135M-Instruct-Q4_1.gguf
//
// A session keeps its KV cache: each turn passes the whole conversation, and only its new
// part costs time.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/npu/cpu"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: chat MODEL")
	}
	dev, err := cpu.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	// The device keeps its threads busy; leave a P for the rest.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), dev.Info().Threads+1))
	m, err := model.Open(context.Background(), dev, os.Args[1], nil)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s := m.NewSession()
	defer s.Close()

	var messages []chat.Message // a first one with Role "system" tells the model how to behave
	in := bufio.NewScanner(os.Stdin)
	for say("> "); in.Scan(); say("\n> ") {
		answer, err := reply(s, append(messages, chat.Message{Role: "user", Content: in.Text()}))
		if err != nil && !errors.Is(err, context.Canceled) {
			log.Print(err) // the conversation goes on without this turn
			continue
		}
		messages = append(messages, chat.Message{Role: "user", Content: in.Text()}, chat.Message{Role: "assistant",
			Content: answer})
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
	say("\n")
}

// reply streams the answer to a conversation and returns it, or what there was of it when Ctrl-C
// came.
func reply(s *model.Session, messages []chat.Message) (string, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var answer strings.Builder
	for tok, err := range s.Chat(ctx, messages, nil, &model.GenerateOptions{MaxTokens: 256}) {
		if err != nil {
			return answer.String(), err
		}
		say("%s", tok.Text)
		answer.WriteString(tok.Text)
	}
	return answer.String(), nil
}

// say prints, and ends the program where that fails: an answer that is lost on a full disk is no
// success.
func say(format string, args ...any) {
	if _, err := fmt.Printf(format, args...); err != nil {
		log.Fatal(err)
	}
}
