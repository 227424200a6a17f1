package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/checkpoint"
)

func (a *app) templateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "template MODEL|template.jinja",
		Short: "Turn a conversation into the text that the model reads",
		Long: `Template reads a conversation as JSON on stdin and prints what the chat template makes of it, byte for byte and without a newline of its own.

  {"messages": [{"role": "user", "content": "Hello"}], "tools": [...], "add_generation_prompt": true, "enable_thinking": false,
   "bos_token": "...", "eos_token": "...", "date_string": "26 Jul 2024"}

Only messages is needed. Fields of other names are passed to the template as variables; date_string also fixes what strftime_now returns.
With MODEL, bos_token and eos_token are the model's unless given.`,
		Example: `  echo '{"messages": [{"role": "user", "content": "Hello"}], "add_generation_prompt": true}' | npukit template ./Qwen3-0.6B`,
		Args:    arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			text, err := a.render(ctx, args[0])
			if err != nil {
				return err
			}
			_, err = io.WriteString(a.out, text)
			return err
		}),
	}
}

func (a *app) render(ctx context.Context, arg string) (string, error) {
	t, defaults, err := openTemplate(arg)
	if err != nil {
		return "", err
	}
	if isTerminal(a.in) {
		return "", usagef("the conversation is read from stdin as JSON; see --help")
	}
	conversation, err := readStdin(a.in)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(conversation) {
		return "", checkText("the conversation", string(conversation))
	}
	r, err := t.RenderJSON(ctx, withDefaults(conversation, defaults))
	return r.Text, err
}

// openTemplate opens a template file, or the template of a model together with the model's special tokens.
func openTemplate(arg string) (t *chat.Template, special map[string]string, err error) {
	if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() && !isGGUF(arg) {
		source, err := os.ReadFile(arg)
		if err != nil {
			return nil, nil, err
		}
		if !utf8.Valid(source) {
			return nil, nil, checkText(arg, string(source))
		}
		t, err := chat.Parse(string(source))
		return t, nil, err
	}
	path, err := findModel(arg)
	if err != nil {
		return nil, nil, err
	}
	ck, err := checkpoint.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	tok, _ := model.OpenTokenizer(ck) // without one, the texts that tokenizer_config.json gives have to do
	bos, eos := model.SpecialTexts(ck, tok)
	t, err = model.OpenTemplate(ck)
	return t, map[string]string{"bos_token": bos, "eos_token": eos}, err
}

// withDefaults puts fields that a JSON object lacks at its end, so that what is said of a byte of it is true of what a person wrote. What is no object stays as it is, for
// the template to refuse.
func withDefaults(object []byte, fields map[string]string) []byte {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(object, &has); err != nil || len(has) == 0 {
		return object
	}
	out := bytes.TrimSuffix(bytes.TrimRight(object, " \t\r\n"), []byte("}"))
	out = slices.Clip(out)
	for name, value := range fields {
		if _, given := has[name]; given || value == "" {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			continue // a string always has a JSON form
		}
		out = fmt.Appendf(out, ", %q: %s", name, text)
	}
	return append(out, '}')
}
