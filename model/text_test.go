package model

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/model/tokenizer"
)

// say returns the text of a generation.
func say(t *testing.T, s *Session, p Prompt, opts GenerateOptions) (text string, stats Stats) {
	t.Helper()
	_, text, stats = sayTokens(t, s, p, opts)
	return text, stats
}

// sayTokens is say with the tokens.
func sayTokens(t *testing.T, s *Session, p Prompt, opts GenerateOptions) (ids []int32, text string, stats Stats) {
	t.Helper()
	opts.Stats = &stats
	for tok, err := range s.Generate(context.Background(), p, &opts) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, tok.ID)
		text += tok.Text
	}
	return ids, text, stats
}

// stalled is a tokenizer that never returns.
type stalled struct{ tokenizer.Tokenizer }

func (stalled) EncodeContext(ctx context.Context, _ string, _ *tokenizer.EncodeOptions) ([]int32, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (stalled) Token(int32) (string, bool) { return "", false }

// A generation can be cancelled before it reaches the device: in the template and in the tokenizer.
func TestCancelText(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	m.tok, m.tokErr = stalled{}, nil
	endless, err := chat.Parse(
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	m.template, m.tmplErr = endless, nil
	for name, p := range map[string]Prompt{"tokenizer": Text("Once"), "template": Messages(userMessage("Hello"), nil)} {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		for _, err := range m.Generate(ctx, p, nil) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want the context's error", name, err)
			}
		}
	}
}

// The next message of a conversation costs only its new part, and the answer equals that of a
// session that computes the whole conversation.
//
// The latter computes in one pass the positions that the former generated one by one. Sums are in
// another order there, and the cache has BF16, so between almost equally likely tokens either may
// win. The gate of greedy decoding calls a smaller gap a tie, too.
func TestConversation(t *testing.T) {
	const tie = 0.15 // nats
	m := open(t, testenv.DemoModel(t), "", nil)
	same := 0 // tokens of second answers
	for _, turns := range [][2]string{
		{"Name a colour.", "Why that one?"},
		{"What is gravity?", "Who found it?"},
		{"What is the capital of France?", "And of Italy?"},
		{"Count from one to ten.", "Go on to fifteen."},
		{"Say hello in French.", "And in Spanish?"},
	} {
		greedy := GenerateOptions{MaxTokens: 24, Sampling: &Sampling{}}
		s, fresh := m.NewSession(), m.NewSession()
		defer s.Close()
		defer fresh.Close()
		messages := userMessage(turns[0])
		first, stats := say(t, s, Messages(messages, nil), greedy)
		if first == "" || stats.CachedTokens != 0 {
			t.Fatalf("first answer %q, %+v", first, stats)
		}
		messages = append(messages, chat.Message{Role: "assistant", Content: first},
			chat.Message{Role: "user", Content: turns[1]})
		second, text, again := sayTokens(t, s, Messages(messages, nil), greedy)
		if again.CachedTokens < stats.PromptTokens {
			t.Errorf("the second turn took %d tokens from the cache, the first had %d",
				again.CachedTokens, stats.PromptTokens)
		}
		greedy.TopTokens = 2
		said, parted := 0, false
		for tok, err := range fresh.Generate(context.Background(), Messages(messages, nil), &greedy) {
			if err != nil {
				t.Fatal(err)
			}
			if said == len(second) || second[said] != tok.ID {
				gap := tok.Top[0].Logprob - tok.Top[1].Logprob
				if t.Logf("the answers part behind %d tokens, by %.3f nats", said, gap); gap > tie {
					t.Errorf(
						"second answer %q; a fresh session goes on behind %d tokens of it with %q",
						text, said, tok.Text)
				}
				parted = true
				break
			}
			said++
			same++
		}
		if !parted && said != len(second) {
			t.Errorf("second answer %q, a fresh session ends behind %d tokens of it", text, said)
		}
	}
	if t.Logf("%d tokens are the same", same); same < 24 {
		t.Errorf("only %d tokens of second answers are the same", same)
	}
}

// An answer ends before a stop string, wherever the tokens split it.
func TestStopStrings(t *testing.T) {
	m := open(t, testenv.DemoModel(t), "", nil)
	s := m.NewSession()
	defer s.Close()
	prompt := Messages(userMessage("What is gravity?"), nil)
	all, _ := say(t, s, prompt, GenerateOptions{MaxTokens: 40, Sampling: &Sampling{}})
	for _, stop := range []string{" fundamental", "ndament", "y", all[10:17]} {
		text, stats := say(
			t,
			s,
			prompt,
			GenerateOptions{
				MaxTokens: 40,
				Sampling:  &Sampling{},
				Stop:      []string{"never to be found", stop},
			},
		)
		if want, _, _ := strings.Cut(all, stop); text != want || stats.Reason != StopString {
			t.Errorf("stop %q: %q (%s), want %q", stop, text, stats.Reason, want)
		}
	}
}

// All kinds of prompts cause an answer, or an error with advice.
func TestOddPrompts(t *testing.T) {
	m := open(t, testenv.DemoModel(t), "", &plan.Options{SeqLen: 256})
	s := m.NewSession()
	defer s.Close()
	for name, p := range map[string]Prompt{
		"empty text":         Text(""), // SmolLM2 starts with BOS, whose id is in the file
		"invalid UTF-8":      Text("\xff\xfe broken"),
		"NUL":                Text("a\x00b"),
		"empty user message": Messages(userMessage(""), nil),
	} {
		text, stats := say(t, s, p, GenerateOptions{MaxTokens: 3, Sampling: &Sampling{}})
		if stats.Tokens == 0 {
			t.Errorf("%s: no answer (%q, %+v)", name, text, stats)
		}
	}
	for _, err := range s.Generate(context.Background(), Text(strings.Repeat("gravity ", 1000)), nil) {
		if err == nil || !strings.Contains(err.Error(), "tokens, the context is 256") {
			t.Errorf("a prompt that is too long: %v, want both lengths", err)
		}
	}
}
