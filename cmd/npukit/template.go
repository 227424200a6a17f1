package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/npukit/npukit/internal/localmodel"
	"github.com/npukit/npukit/internal/readfile"
	"github.com/npukit/npukit/internal/terminal"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/checkpoint"
)

func templateCommand(a *app) *cobra.Command {
	var flags templateFlags
	var name string
	cmd := &cobra.Command{
		Use:   "template MODEL|template.jinja",
		Short: "Render a conversation with the model's chat template",
		Long: `Template reads a conversation as JSON on stdin and prints the text that the chat template
renders, byte for byte and without a newline of its own.

  {"messages": [{"role": "user", "content": "Hello"}], "tools": [...],
   "add_generation_prompt": true, "enable_thinking": false,
   "bos_token": "...", "eos_token": "...", "date_string": "26 Jul 2024"}

Only messages is required. Other fields become variables of the template; date_string
also fixes the result of strftime_now. With MODEL, bos_token and eos_token default to the
model's. Of a model's named templates, a conversation with tools gets tool_use and any
other one gets default, unless --name chooses (npukit info lists the names).`,
		Example: `  echo '{"messages": [{"role": "user", "content": "Hello"}]}' | npukit template ./Qwen3-0.6B
  npukit template ./Qwen3-0.6B --no-think --template-var 'today="Monday"' < conversation.json`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd); err != nil {
				return err
			}
			t, defaults, err := openTemplate(args[0], name, &flags)
			if err != nil {
				return err
			}
			text, err := a.render(ctx, t, defaults, &flags)
			if err != nil {
				return err
			}
			_, err = io.WriteString(a.out, text)
			return err
		}),
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&name, "name", "", "use the template called `NAME`")
	cmd.MarkFlagsMutuallyExclusive("name", "chat-template")
	return cmd
}

func (a *app) render(ctx context.Context, t *chat.Template, defaults map[string]string,
	flags *templateFlags) (string, error) {
	if terminal.Is(a.in) {
		return "", usagef("the conversation is read from stdin as JSON; see --help")
	}
	conversation, err := readStdin(a.in)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(conversation) {
		return "", checkText("the conversation", string(conversation))
	}
	if conversation, err = withFields(conversation, defaults, flags.variables()); err != nil {
		return "", err
	}
	rendered, err := t.RenderJSON(ctx, conversation)
	return rendered.Text, err
}

// openTemplate opens a template file, or a model's template and its special tokens.
func openTemplate(arg, name string, flags *templateFlags) (t *chat.Template, special map[string]string, err error) {
	if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() && !localmodel.IsGGUF(arg) {
		if name != "" || flags.file != "" {
			return nil, nil, usagef("%s is a template file: --name and --chat-template need a MODEL", arg)
		}
		source, err := readTemplate(arg)
		if err != nil {
			return nil, nil, err
		}
		t, err := chat.Parse(source)
		return t, nil, err
	}
	path, err := findModel(arg)
	if err != nil {
		return nil, nil, err
	}
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	tok, _ := model.OpenTokenizer(ck) // without a tokenizer, tokenizer_config.json has the tokens
	if c, ok := tok.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	bos, eos := model.SpecialTexts(ck, tok)
	special = map[string]string{"bos_token": bos, "eos_token": eos}
	switch {
	case flags.file != "":
		t, err = chat.Parse(flags.source)
	case name != "":
		source, ok := ck.Text().Templates[name]
		if !ok {
			return nil, nil, usagef("unknown template --name %q: the model has %s", name,
				namesOf(ck.Text().Templates))
		}
		t, err = chat.Parse(source)
	default:
		t, err = model.OpenTemplate(ck)
	}
	return t, special, err
}

func namesOf(templates map[string]string) string {
	if len(templates) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(templates)), ", ")
}

// maxTemplate limits a template file. The largest published templates have about 20 KB.
const maxTemplate = 1 << 20

// readTemplate reads a template file.
func readTemplate(path string) (string, error) {
	source, err := readfile.Regular(path, maxTemplate)
	if err != nil {
		return "", err
	}
	if err := readfile.CheckPointer(source); err != nil {
		return "", fmt.Errorf("%s is %w", path, err)
	}
	return string(source), checkText(path, string(source))
}

// withFields adds fields at the end of a JSON object, so that byte positions in errors match the
// input. A default is added only if the object lacks the field. A variable that the object already
// has is an error. Other JSON values are returned unchanged, and rendering rejects them.
func withFields(object []byte, defaults map[string]string, variables []chat.Variable) ([]byte, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(object, &has); err != nil || len(has) == 0 {
		return object, nil
	}
	out := bytes.TrimSuffix(bytes.TrimRight(object, " \t\r\n"), []byte("}"))
	out = slices.Clip(out)
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		value := defaults[name]
		if _, given := has[name]; given || value == "" {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(out, ", %q: %s", name, text)
	}
	for _, v := range variables {
		if _, given := has[v.Name]; given {
			return nil, usagef("the conversation already has %q: omit the flag or the field", v.Name)
		}
		out = fmt.Appendf(out, ", %q: %s", v.Name, v.Value)
	}
	return append(out, '}'), nil
}

// templateFlags select how a conversation becomes a prompt.
type templateFlags struct {
	file           string
	think, noThink bool
	vars           []string
	special        bool // only with addSpecial

	source string          // contents of file
	extra  []chat.Variable // parsed vars
}

func (f *templateFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, "chat-template", "", "use the chat template in `FILE` instead of the model's")
	flags.BoolVar(&f.think, "think", false, "have a model that can choose think before it answers "+
		"(enable_thinking is true)")
	flags.BoolVar(&f.noThink, "no-think", false, "answer without thinking first (sets enable_thinking to false)")
	flags.StringArrayVar(&f.vars, "template-var", nil, "define a variable of the chat template, `NAME=JSON`; may "+
		"be given again")
	cmd.MarkFlagsMutuallyExclusive("think", "no-think")
}

// addSpecial adds the flag for commands that encode the rendered text.
func (f *templateFlags) addSpecial(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.special, "allow-special", false, "recognise special tokens that are written in "+
		"messages, which can end a turn and begin another")
}

// templateFlagNames are the flags that apply only to a conversation.
var templateFlagNames = []string{"chat-template", "think", "no-think", "template-var", "allow-special"}

// setByUs are the variables that every conversation sets.
var setByUs = []string{"messages", "add_generation_prompt"}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// check reads the template file and the variables. Its errors are usage errors.
func (f *templateFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("chat-template") {
		if f.file == "" {
			return usagef("--chat-template is empty: want the path of a template")
		}
		source, err := readTemplate(f.file)
		if err == nil && strings.TrimSpace(source) == "" {
			err = fmt.Errorf("%s is empty", f.file)
		}
		if err == nil {
			_, err = chat.Parse(source)
		}
		if err != nil {
			return usagef("--chat-template: %w", err)
		}
		f.source = source
	}
	f.extra = nil
	for _, text := range f.vars {
		name, value, ok := strings.Cut(text, "=")
		switch {
		case !ok:
			return usagef("--template-var is %q, want NAME=JSON", text)
		case !variableName.MatchString(name):
			return usagef("--template-var: %q is not the name of a variable", name)
		case slices.Contains(setByUs, name):
			return usagef("--template-var: %s is set from the conversation", name)
		case name == "enable_thinking" && (f.think || f.noThink):
			return usagef("--template-var: enable_thinking is set by --think and --no-think: use one of " +
				"these")
		case slices.ContainsFunc(f.extra, func(v chat.Variable) bool { return v.Name == name }):
			return usagef("--template-var: %s is given twice", name)
		case !json.Valid([]byte(value)):
			return usagef("--template-var: the value of %s is not JSON: %s (quote a text: '%s=\"...\"')",
				name, value, name)
		}
		f.extra = append(f.extra, chat.Variable{Name: name, Value: json.RawMessage(value)})
	}
	return nil
}

// given reports whether a flag needs a chat template.
func (f *templateFlags) given() bool { return f.file != "" || f.think || f.noThink || len(f.vars) > 0 }

// variables returns the variables that the flags set.
func (f *templateFlags) variables() []chat.Variable {
	list := slices.Clone(f.extra)
	if f.think || f.noThink {
		list = append(list, chat.Variable{Name: "enable_thinking", Value: fmt.Append(nil, f.think)})
	}
	return list
}

// options returns the options for package chat.
func (f *templateFlags) options() *chat.Options {
	o := &chat.Options{Extra: f.extra, AllowSpecial: f.special}
	if f.think || f.noThink {
		o.EnableThinking = &f.think
	}
	return o
}

// warn reports variables that the model's chat template does not use.
func (f *templateFlags) warn(a *app, m *model.Model) {
	if !terminal.Is(a.err) {
		return
	}
	sources := m.Checkpoint().Text().Templates
	if f.file != "" {
		sources = map[string]string{f.file: f.source}
	}
	all := strings.Join(slices.Collect(maps.Values(sources)), "\n")
	for _, v := range f.variables() {
		if !strings.Contains(all, v.Name) {
			fmt.Fprintf(a.err, "the chat template does not use %s, so the flag has no effect\n", v.Name)
		}
	}
}
