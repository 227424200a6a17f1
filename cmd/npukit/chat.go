package main

import (
	"context"
	"errors"
	"fmt"
	"github.com/npukit/npukit/model/checkpoint"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/chat"
)

func chatCommand(a *app) *cobra.Command {
	c := &chatter{app: a}
	cmd := &cobra.Command{
		Use:   "chat MODEL",
		Short: "Have a conversation",
		Long: `Chat holds a conversation with a model that has a chat template.

` + chatHelp + `
Ctrl-C stops an answer; the part that was printed stays in the conversation. At the
prompt, Ctrl-C clears the line, or quits if it is empty. In a pipe each line is a
message, and only the answers are printed.`,
		Example: `  npukit chat SmolLM2-135M-Instruct-Q4_1
  npukit chat ./Qwen3-0.6B --system "You answer in one sentence." --temp 0.7
  printf 'Hello\nAnd in French?\n' | npukit chat ./Qwen3-0.6B --temp 0`,
		Args: arguments("MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.started = true
			return c.run(cmd, args[0])
		},
	}
	c.model.add(cmd)
	c.generate.add(cmd)
	c.template.add(cmd)
	c.template.addSpecial(cmd)
	cmd.Flags().StringVar(&c.system, "system", "", "system message `TEXT`")
	return cmd
}

const chatHelp = `  /clear          begin a new conversation
  /system TEXT    set the system message (without TEXT: remove it); the conversation goes on
  /help           show this
  /exit           leave, as Ctrl-D does
  \ at the end    of a line: the message goes on in the next one
`

// chatter is one execution of `npukit chat`.
type chatter struct {
	app      *app
	cmd      *cobra.Command
	model    modelFlags
	generate generateFlags
	template templateFlags
	system   string

	m        *opened
	session  *model.Session
	messages []chat.Message // without the system message
	failed   int            // messages without an answer
	talking  bool           // stdin and stdout are terminals
}

func (c *chatter) run(cmd *cobra.Command, arg string) (err error) {
	c.cmd = cmd
	if err := c.generate.check(cmd); err != nil {
		return err
	}
	if err := checkText("--system", c.system); err != nil {
		return usageError{err}
	}
	if err := c.template.check(cmd); err != nil {
		return err
	}
	c.model.chatTemplate = c.template.source
	c.talking = terminal.Is(c.app.in) && terminal.Is(c.app.out)
	m, err := await(func(ctx context.Context) (*opened, error) { return c.model.open(ctx, c.app, arg) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	c.m = m
	if _, err := m.Template(); err != nil {
		return err
	}
	if _, err := m.Tokenizer(); err != nil {
		return err
	}
	c.template.warn(c.app, m.Model)
	c.session = m.NewSession()
	defer func() { err = errors.Join(err, c.session.Close()) }()

	var in terminal.Lines
	switch {
	case !c.talking:
		in = terminal.ReadPiped(c.app.in, nil)
	case terminal.IsDumb():
		in = terminal.ReadPiped(c.app.in, c.app.out)
	default:
		in = terminal.ReadTyped(c.app.in.(*os.File), c.app.out.(*os.File))
	}
	if c.talking {
		c.note("%s on %s, loaded in %s. /help lists the commands.", checkpoint.Name(m.Checkpoint().Path()),
			m.dev.Info().Name, output.Seconds(m.load))
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	for {
		line, err := await(func(context.Context) (string, error) { return in.Next() })
		if err == io.EOF {
			break
		}
		if err == nil {
			err = c.turn(line)
		}
		if err == errLeave {
			break
		}
		if err != nil {
			return err
		}
	}
	if c.failed > 0 && !c.talking {
		return fmt.Errorf("%s had no answer", output.Count(c.failed, "message"))
	}
	return nil
}

// errLeave is the result of /exit.
var errLeave = errors.New("leave")

// await runs work that returns a value under interruptible.
func await[T any](work func(ctx context.Context) (T, error)) (T, error) {
	results := make(chan T, 1)
	err := interruptible(func(ctx context.Context) error {
		v, err := work(ctx)
		if err == nil {
			results <- v
		}
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-results, nil
}

// note prints a line for the user if there is a terminal.
func (c *chatter) note(format string, args ...any) {
	if c.talking {
		fmt.Fprintln(c.app.err, terminal.Styled(c.app.err, terminal.Dim, fmt.Sprintf(format, args...)))
	}
}

// complain prints the error of a message. The conversation continues without it.
func (c *chatter) complain(err error) {
	c.failed++
	fmt.Fprintf(c.app.err, "%s: %s\n", c.cmd.CommandPath(), terminal.Printable(c.app.err, flagError(err).Error()))
}

// turn executes a command or answers a message. It returns an error only if the conversation must
// end.
func (c *chatter) turn(line string) error {
	text := strings.TrimSpace(line)
	if text == "" {
		return nil
	}
	if err := checkText("the message", line); err != nil {
		c.complain(err)
		return nil
	}
	word, rest, _ := strings.Cut(text, " ")
	switch {
	case word == "/exit" || word == "/quit":
		return errLeave
	case word == "/help":
		fmt.Fprint(c.app.err, chatHelp)
	case word == "/clear":
		c.messages = nil
		if err := c.session.Forget(); err != nil {
			return err
		}
		c.note("a new conversation")
	case word == "/system":
		if c.system = strings.TrimSpace(rest); c.system == "" {
			c.note("no system message")
		} else {
			c.note("system message set")
		}
	case isCommand(word):
		c.complain(fmt.Errorf("unknown command %s; /help lists the commands", word))
	default:
		return c.reply(line)
	}
	return nil
}

// isCommand reports whether word looks like a command, perhaps a mistyped one, and not like a
// message that starts with a slash, such as a path.
func isCommand(word string) bool {
	return len(word) > 1 && word[0] == '/' && strings.Trim(word[1:], "abcdefghijklmnopqrstuvwxyz") == ""
}

// reply answers a message. If the answer is interrupted, the conversation keeps the part that was
// printed.
func (c *chatter) reply(text string) error {
	messages := append(slices.Clone(c.messages), chat.Message{Role: "user", Content: text})
	var stats model.Stats
	opts := c.generate.options(c.cmd, c.m.Model, &stats)
	var answer strings.Builder
	ended := make(chan struct{})
	err := interruptible(func(ctx context.Context) error {
		defer close(ended)
		reading := c.app.progress("reading")
		defer reading()
		for tok, err := range c.session.Chat(ctx, conversation(c.system, messages...), c.template.options(), opts) {
			reading()
			if err != nil {
				return err
			}
			answer.WriteString(tok.Text)
			if _, err := io.WriteString(c.app.out, terminal.Printable(c.app.out, tok.Text)); err != nil {
				return &writeError{err}
			}
		}
		return nil
	})
	var stop *interrupted
	if errors.As(err, &stop) {
		if stop.signal != os.Interrupt {
			return err
		}
		<-ended // wait until the session is idle; a second Ctrl-C here ends the program
	}
	if answer.Len() > 0 || err == nil {
		if _, err := fmt.Fprintln(c.app.out); err != nil {
			return err
		}
		c.messages = append(messages, chat.Message{Role: "assistant", Content: answer.String()})
	}
	var broken *writeError
	var long *model.ContextError
	switch {
	case stop != nil && !c.talking:
		return err // with stdin not a terminal, nobody can continue
	case stop != nil:
		c.note("stopped")
	case errors.As(err, &broken):
		return broken.error
	case errors.As(err, &long):
		c.complain(fmt.Errorf("the conversation has %d tokens, the context %d: /clear starts a new "+
			"conversation",
			long.Prompt, long.Context))
	case err != nil:
		c.complain(err)
	case stats.Reason == model.StopContext:
		c.note("%s\nThe context of %d positions is full: /clear starts a new conversation.", c.m.figures(0, stats),
			c.m.Context())
	default:
		c.note("%s", c.m.figures(0, stats))
	}
	return nil
}

// writeError is an error of stdout, as opposed to one of the model.
type writeError struct{ error }
