package main

import (
	"context"
	"errors"
	"fmt"
	"github.com/npukit/npukit/model/checkpoint"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/internal/trace"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/npu"
)

func runCommand(a *app) *cobra.Command {
	r := &runner{app: a}
	cmd := &cobra.Command{
		Use:   "run MODEL [PROMPT]",
		Short: "Answer one prompt",
		Long: `Run answers one prompt and streams the answer to stdout, with a newline at the end.

The prompt is the argument, or stdin if the argument is - or is left out in a pipe; one
newline at the end of stdin is ignored. If the model has a chat template, the prompt
becomes a user message, and special tokens in it are plain text unless --allow-special is
given. --raw continues the prompt as it is.

On a terminal a line of figures follows: load time, time to first token (TTFT), tokens,
total time, and decode speed, (tokens-1)/(total-TTFT), with its reciprocal. --json prints
the same and more as one object when the answer is complete.`,
		Example: `  npukit run SmolLM2-135M-Instruct-Q4_1 "What is the capital of France?"
  npukit run ./Llama-3.2-1B --raw --temp 0.8 --max-tokens 100 "Once upon a time"
  git diff | npukit run Qwen3-0.6B --system "Summarise this diff in a sentence."
  npukit run model.gguf --json --temp 0 "Hello" | jq .tokens_per_s
  npukit run ./Qwen3-0.6B --no-think "What is the capital of France?"
  npukit run model.gguf --trace trace.json "Hello"   # open it at ui.perfetto.dev`,
		Args: arguments("MODEL", "[PROMPT]"),
		RunE: a.action(r.run),
	}
	r.model.add(cmd)
	r.generate.add(cmd)
	r.template.add(cmd)
	r.template.addSpecial(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&r.raw, "raw", false, "continue the prompt as it is, without the chat template")
	flags.StringVar(&r.system, "system", "", "system message `TEXT`")
	flags.IntSliceVar(&r.ids, "ids", nil, "token ids as the prompt, `1,2,3`; a model without a tokenizer "+
		"answers with ids")
	flags.BoolVar(&r.json, "json", false, "print one JSON object")
	flags.IntVar(&r.logprobs, "logprobs", 0, "in --json, log probabilities of the tokens and of the `N` most "+
		"likely ones at each place")
	flags.StringVar(&r.trace, "trace", "", "write a Chrome/Perfetto trace to `FILE`")
	cmd.MarkFlagsMutuallyExclusive("raw", "system")
	cmd.MarkFlagsMutuallyExclusive("ids", "system")
	for _, name := range templateFlagNames {
		cmd.MarkFlagsMutuallyExclusive("raw", name)
		cmd.MarkFlagsMutuallyExclusive("ids", name)
	}
	return cmd
}

// runner is one execution of `npukit run`.
type runner struct {
	app      *app
	model    modelFlags
	generate generateFlags
	template templateFlags
	raw      bool
	system   string
	ids      []int
	json     bool
	logprobs int
	trace    string
}

func (r *runner) run(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
	if err := r.check(cmd, args); err != nil {
		return err
	}
	var tracer *trace.Tracer
	if r.trace != "" {
		if err := output.CanWrite(r.trace); err != nil {
			return fmt.Errorf("--trace: %w", err)
		}
		tracer = trace.New()
		ctx = npu.WithTracer(ctx, tracer.Add)
	}
	text := ""
	if !cmd.Flags().Changed("ids") {
		if text, err = r.prompt(args[1:]); err != nil {
			return err
		}
	}
	started := time.Now()
	m, err := r.model.open(ctx, r.app, args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if tracer != nil {
		tracer.Add(npu.Span{Name: "load", Category: "host", Start: started, Duration: time.Since(started)})
	}
	var p model.Prompt
	if cmd.Flags().Changed("ids") {
		ids := make([]int32, len(r.ids))
		for i, id := range r.ids {
			ids[i] = int32(id) // in range, see above
		}
		p = model.IDs(ids)
	} else if p, err = r.asPrompt(m.Model, text); err != nil {
		return err
	}
	if err := r.answer(ctx, cmd, m, p); err != nil {
		return err
	}
	if tracer != nil {
		return tracer.Write(r.trace)
	}
	return nil
}

func (r *runner) check(cmd *cobra.Command, args []string) error {
	switch {
	case cmd.Flags().Changed("ids") && len(args) > 1:
		return usagef("give either a PROMPT or --ids, not both")
	case slices.ContainsFunc(r.ids, func(id int) bool { return id < 0 || id > math.MaxInt32 }):
		return usagef("--ids takes token ids, numbers from 0 to %d", math.MaxInt32)
	case r.logprobs < 0:
		return usagef("--logprobs is %d, want 0 or more", r.logprobs)
	case cmd.Flags().Changed("logprobs") && !r.json:
		return usagef("--logprobs needs --json")
	}
	if err := checkText("--system", r.system); err != nil {
		return usageError{err}
	}
	if err := r.template.check(cmd); err != nil {
		return err
	}
	r.model.chatTemplate = r.template.source
	return r.generate.check(cmd)
}

// prompt returns the prompt from the argument or from stdin.
func (r *runner) prompt(args []string) (string, error) {
	text := ""
	switch {
	case len(args) == 1 && args[0] != "-":
		text = args[0]
	case len(args) == 0 && terminal.Is(r.app.in):
		return "", usagef("PROMPT is missing: use - to read it from stdin, or npukit chat for a " +
			"conversation")
	default:
		var err error
		if text, err = readText(r.app.in); err != nil {
			return "", err
		}
	}
	return text, checkText("the prompt", text)
}

// maxStdin limits stdin. It is larger than any context, and small enough that an endless stream
// fails before memory runs out.
const maxStdin = 256 << 20

// readStdin reads all of in. It returns an error if in exceeds maxStdin.
func readStdin(in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxStdin+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading stdin: %w", err)
	case len(data) > maxStdin:
		return nil, fmt.Errorf("stdin has more than %d MB: split the input", maxStdin>>20)
	}
	return data, nil
}

// readText reads all of in as text. It drops one trailing newline, which comes from echo or an
// editor.
func readText(in io.Reader) (string, error) {
	data, err := readStdin(in)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}

// checkText returns an error with the position if text is not valid UTF-8.
func checkText(what, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	at := 0
	for at < len(text) {
		c, n := utf8.DecodeRuneInString(text[at:])
		if c == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return fmt.Errorf("%s is not valid UTF-8: byte %d is 0x%02x; convert it first (iconv -t UTF-8)", what, at, text[at])
}

// asPrompt returns the text as a user message, or as plain text if the model has no chat template.
func (r *runner) asPrompt(m *model.Model, text string) (model.Prompt, error) {
	_, err := m.Template()
	if r.raw || err != nil && r.system == "" && !r.template.given() && noTemplateAtAll(m) {
		return model.Text(text), nil
	}
	if err != nil {
		return model.Prompt{}, err
	}
	if strings.TrimSpace(text) == "" {
		return model.Prompt{}, errors.New("the prompt is empty: give a text, or use --raw to generate from " +
			"nothing")
	}
	r.template.warn(r.app, m)
	return model.Messages(conversation(r.system, chat.Message{Role: "user", Content: text}), r.template.options()), nil
}

// noTemplateAtAll reports whether the model is a base model without a template. A template that
// cannot be used is different: ignoring it silently would give a wrong prompt.
func noTemplateAtAll(m *model.Model) bool {
	return len(m.Checkpoint().Text().Templates) == 0
}

// conversation returns the messages, after a system message if system is not empty.
func conversation(system string, messages ...chat.Message) []chat.Message {
	if system == "" {
		return messages
	}
	return append([]chat.Message{{Role: "system", Content: system}}, messages...)
}

// answer generates and prints.
func (r *runner) answer(ctx context.Context, cmd *cobra.Command, m *opened, p model.Prompt) error {
	var stats model.Stats
	opts := r.generate.options(cmd, m.Model, &stats)
	if cmd.Flags().Changed("logprobs") {
		opts.Logprobs, opts.TopTokens = true, r.logprobs
	}
	_, noTokenizer := m.Tokenizer()
	if noTokenizer != nil && len(opts.Stop) > 0 {
		return fmt.Errorf("--stop needs a tokenizer: %w", noTokenizer)
	}
	out := runResult{Model: checkpoint.Name(m.Checkpoint().Path()), Device: m.dev.Info().Name, Tokens: []int32{}}
	var text strings.Builder
	reading := r.app.progress("reading the prompt")
	defer reading()
	for tok, err := range m.Generate(ctx, p, opts) {
		reading()
		if err != nil {
			if text.Len() > 0 && !r.json {
				fmt.Fprintln(r.app.out)
			}
			return err
		}
		piece := tok.Text
		if noTokenizer != nil && !r.json {
			if piece = fmt.Sprint(tok.ID); len(out.Tokens) > 0 {
				piece = "," + piece
			}
		}
		out.Tokens = append(out.Tokens, tok.ID)
		text.WriteString(piece)
		if opts.Logprobs {
			out.Logprobs = append(out.Logprobs, logprobsOf(tok))
		}
		if r.json {
			continue
		}
		if _, err := io.WriteString(r.app.out, terminal.Printable(r.app.out, piece)); err != nil {
			return err
		}
	}
	if r.json {
		out.Text = text.String()
		out.fill(m.load, stats)
		out.predict(m.dev, stats)
		return output.Line(r.app.out, out)
	}
	if _, err := fmt.Fprintln(r.app.out); err != nil {
		return err
	}
	if terminal.Is(r.app.out) && terminal.Is(r.app.err) {
		line := m.figures(m.load, stats)
		if opts.Sampling.Temperature > 0 {
			line += fmt.Sprintf(" · seed %d", stats.Seed)
		}
		fmt.Fprintf(r.app.err, "\n%s\n", terminal.Styled(r.app.err, terminal.Dim, line))
	}
	return nil
}

// runResult is the object that --json prints.
type runResult struct {
	Model        string           `json:"model"`
	Device       string           `json:"device"`
	Text         string           `json:"text"`
	Tokens       []int32          `json:"tokens"` // generated ids with the end token
	PromptTokens int              `json:"prompt_tokens"`
	StopReason   model.StopReason `json:"stop_reason"`
	Seed         uint64           `json:"seed"`
	LoadS        float64          `json:"load_s"`
	TTFTS        float64          `json:"ttft_s"`
	TotalS       float64          `json:"total_s"`
	TokensPerS   float64          `json:"tokens_per_s"`
	PerTokenS    float64          `json:"time_per_token_s"`
	// If Predicted, the times are the virtual device's predictions for an NPU. WallS is always
	// measured.
	Predicted bool            `json:"predicted,omitempty"`
	WallS     float64         `json:"wall_s,omitempty"`
	Logprobs  []tokenLogprobs `json:"logprobs,omitempty"`
}

// tokenLogprobs is a generated token with its log probability and the most likely tokens at its
// position.
type tokenLogprobs struct {
	ID      int32          `json:"id"`
	Logprob float64        `json:"logprob"`
	Top     []tokenLogprob `json:"top,omitempty"`
}

type tokenLogprob struct {
	ID      int32   `json:"id"`
	Logprob float64 `json:"logprob"`
}

func logprobsOf(tok model.Token) tokenLogprobs {
	t := tokenLogprobs{ID: tok.ID, Logprob: tok.Logprob}
	for _, alt := range tok.Top {
		t.Top = append(t.Top, tokenLogprob{alt.ID, alt.Logprob})
	}
	return t
}

func (o *runResult) fill(load time.Duration, s model.Stats) {
	o.PromptTokens, o.StopReason, o.Seed = s.PromptTokens, s.Reason, s.Seed
	o.LoadS, o.TTFTS, o.TotalS, o.TokensPerS = load.Seconds(), s.TTFT.Seconds(), s.Total.Seconds(), s.TokensPerSecond()
	if o.TokensPerS > 0 {
		o.PerTokenS = 1 / o.TokensPerS
	}
}

// predict replaces measured times by a virtual device's predictions.
func (o *runResult) predict(dev npu.Device, s model.Stats) {
	if p, ok := predictedBy(dev, s); ok {
		o.Predicted, o.WallS = true, s.Total.Seconds()
		o.fill(time.Duration(o.LoadS*float64(time.Second)), p)
	}
}

// predictedBy returns a virtual device's prediction of the generation. It returns false for other
// devices.
func predictedBy(dev npu.Device, s model.Stats) (model.Stats, bool) {
	if dev.Info().Kind != "sim" {
		return s, false
	}
	return s.Predicted()
}

// figures returns the line below an answer. A virtual device's times are marked as predictions.
func (o *opened) figures(load time.Duration, s model.Stats) string {
	p, ok := predictedBy(o.dev, s)
	if !ok {
		return figures(load, s)
	}
	return fmt.Sprintf("predicted for an XDNA 2, not measured: %s · computed here in %s", figures(0, p),
		output.Seconds(s.Total))
}

// figures returns the times in one line. It omits load if it is 0.
func figures(load time.Duration, s model.Stats) string {
	var parts []string
	if load > 0 {
		parts = append(parts, "load "+output.Seconds(load))
	}
	prompt := output.Count(s.PromptTokens, "prompt token")
	if s.CachedTokens > 0 {
		prompt += fmt.Sprintf(", %d known", s.CachedTokens)
	}
	parts = append(parts,
		fmt.Sprintf("first token %s (%s)", output.Seconds(s.TTFT), prompt),
		fmt.Sprintf("%s in %s", output.Count(s.Tokens, "token"), output.Seconds(s.Total)))
	if v := s.TokensPerSecond(); v > 0 {
		parts = append(parts, fmt.Sprintf("%s tokens/s, %s each", output.Digits(v),
			output.Seconds(time.Duration(float64(time.Second)/v))))
	}
	switch s.Reason {
	case model.StopLength:
		parts = append(parts, "ended by --max-tokens")
	case model.StopContext:
		parts = append(parts, "ended by the context's end")
	}
	return strings.Join(parts, " · ")
}
