// Package bench measures how fast a model reads prompts and decodes, and compares that with the
// memory bandwidth and arithmetic peak of the machine.
//
// A [Bench] runs a [Test] and returns a [Result]. The tests are those of llama-bench: ppN reads a
// prompt of N tokens, tgN decodes N tokens, and N@D starts after D tokens of context.
package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

// Bench measures one model on one device.
type Bench struct {
	Model  *model.Model
	Device npu.Device
	Reps   int        // measured repetitions of each test, after one warm-up
	Meter  *cpu.Meter // measures the machine around each repetition; nil for devices other than cpu

	// Progress reports the current step and returns a function that ends the report.
	Progress func(what string) (done func())

	// If Turns is not nil, each repetition waits for a line from it and prints a line to Out when it
	// is done, so that two programs can take turns. A turn lasts at least MinTurn.
	Turns   *bufio.Reader
	Out     io.Writer
	MinTurn time.Duration
}

// Test is a prefill of that many tokens, or that many decode steps, after Depth tokens of context.
type Test struct {
	Decode        bool
	Tokens, Depth int
}

// ParseTests parses tests of the form N or N@D. It leaves out tests of 0 tokens. Prefill tests come
// first.
func ParseTests(prefill, decode []string) ([]Test, error) {
	var tests []Test
	for i, texts := range [][]string{prefill, decode} {
		for _, text := range texts {
			t, err := parseTest(text)
			if err != nil {
				return nil, err
			}
			if t.Decode = i == 1; t.Tokens > 0 {
				tests = append(tests, t)
			}
		}
	}
	return tests, nil
}

func parseTest(text string) (t Test, err error) {
	tokens, depth, deep := strings.Cut(text, "@")
	if t.Tokens, err = strconv.Atoi(tokens); err == nil && deep {
		t.Depth, err = strconv.Atoi(depth)
	}
	if err != nil || t.Tokens < 0 || t.Depth < 0 {
		return Test{}, fmt.Errorf("--pp and --tg take token counts such as 512 or 512@1024, not %q", text)
	}
	return t, nil
}

// String returns the name of the test, such as pp512 or tg64@1024.
func (t Test) String() string {
	name := "pp"
	if t.Decode {
		name = "tg"
	}
	name += strconv.Itoa(t.Tokens)
	if t.Depth > 0 {
		name += "@" + strconv.Itoa(t.Depth)
	}
	return name
}

// checkContext returns an error if the test does not fit in the model's context.
func (b *Bench) checkContext(t Test) error {
	if need := t.Depth + t.Tokens + 1; need > b.Model.Context() {
		return fmt.Errorf("the test needs %d positions, the context has %d", need, b.Model.Context())
	}
	return nil
}

// Run runs t in one session. The prompt is random ids. Each repetition changes the ids after the
// first t.Depth, so the session reuses exactly t.Depth tokens of its KV cache.
func (b *Bench) Run(ctx context.Context, t Test) (Result, error) {
	r := b.result(t.String(), t, 1)
	if err := b.checkContext(t); err != nil {
		return r, err
	}
	prompt, generate := t.Tokens, 1
	if t.Decode { // a one-token prompt and n decode steps; the last step yields token n
		prompt, generate = 1, t.Tokens
	}
	ids := make([]int32, t.Depth+prompt)
	rng := rand.New(rand.NewPCG(1, 2)) // fixed seed, so that runs are comparable
	vocab := int32(b.Model.Checkpoint().Config().Vocab)
	fill := func(ids []int32) {
		for i := range ids {
			ids[i] = rng.Int32N(vocab)
		}
	}
	fill(ids[:t.Depth])
	s := b.Model.NewSession()
	defer s.Close()
	for i := range b.Reps + 1 { // repetition 0 is the warm-up and fills the context
		what := fmt.Sprintf("%s, %d of %d", t, i, b.Reps)
		err := b.repeat(ctx, what, &r, i > 0, func() (time.Duration, error) {
			next := (ids[t.Depth] + 1) % vocab // differs from the previous repetition
			fill(ids[t.Depth:])
			ids[t.Depth] = next
			if t.Depth == 0 {
				if err := s.Forget(); err != nil {
					return 0, err
				}
			}
			return b.generate(ctx, s, ids, generate)
		})
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// generate decodes n tokens after the prompt ids and returns the time, as a virtual device predicts
// it.
func (b *Bench) generate(ctx context.Context, s *model.Session, ids []int32, n int) (time.Duration, error) {
	var stats model.Stats
	for _, err := range s.Generate(ctx, model.IDs(ids), &model.GenerateOptions{MaxTokens: n,
		IgnoreEOS: true, Sampling: &model.Sampling{}, Stats: &stats}) {
		if err != nil {
			return 0, err
		}
	}
	if b.virtual() {
		if p, ok := stats.Predicted(); ok {
			stats = p
		}
	}
	return stats.Total, nil
}

// virtual reports whether the device predicts its times.
func (b *Bench) virtual() bool { return b.Device.Info().Kind == "sim" }
