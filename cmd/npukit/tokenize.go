package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/localmodel"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/tokenizer"
)

func tokenizeCommand(a *app) *cobra.Command {
	var asJSON, noSpecial bool
	cmd := &cobra.Command{
		Use:   "tokenize MODEL|tokenizer.json [TEXT|-]",
		Short: "Show the tokens of a text",
		Long: `Tokenize prints the token ids of a text, one per line, each with its token.

The text is the argument, or stdin if the argument is - or is left out in a pipe; stdin
is taken as it is, including a newline at the end. With --json a text gives an array of
ids; with -, stdin is a JSON array of strings and the result an array of arrays of ids.

The tokenizer is that of a model, a folder that has tokenizer.json, or the file itself,
which may be compressed (.gz). Tokens that only tokenizer_config.json lists belong to the
folder, not to the file.`,
		Example: `  npukit tokenize ./Qwen3-0.6B "Hello, world"
  npukit tokenize tokenizer.json --json "Hello"
  echo '["Hello", "world"]' | npukit tokenize model.gguf - --json --no-special`,
		Args: arguments("MODEL", "[TEXT]"),
		RunE: a.action(func(_ context.Context, _ *cobra.Command, args []string) error {
			if len(args) == 1 && terminal.Is(a.in) {
				return usagef("TEXT is missing: use - to read it from stdin")
			}
			stdin := len(args) == 1 || args[1] == "-"
			t, err := openTokenizer(args[0])
			if err != nil {
				return err
			}
			e := &encoder{t: t, noSpecial: noSpecial}
			if !stdin {
				return e.text(a.out, args[1], asJSON)
			}
			data, err := readStdin(a.in)
			if err != nil {
				return err
			}
			if asJSON {
				return e.list(a.out, data)
			}
			return e.text(a.out, string(data), false)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print ids as JSON; with -, read a JSON array of strings")
	cmd.Flags().BoolVar(&noSpecial, "no-special", false, "add no special tokens around the text (those written in "+
		"it are recognised)")
	return cmd
}

// openTokenizer opens a model's tokenizer without opening its weights.
func openTokenizer(arg string) (tokenizer.Tokenizer, error) {
	path, err := findModel(arg)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if !localmodel.Exists(filepath.Join(path, "tokenizer.json")) &&
			!localmodel.Exists(filepath.Join(path, "tokenizer.json.gz")) {
			return nil, fmt.Errorf("%w: %s has no tokenizer.json", model.ErrNoTokenizer, path)
		}
		return tokenizer.OpenFolder(path)
	}
	if !localmodel.IsGGUF(path) {
		return tokenizer.Open(path)
	}
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		return nil, err
	}
	t, err := model.OpenTokenizer(ck)
	return t, errors.Join(err, ck.Close())
}

// encoder tokenizes text and prints the result.
type encoder struct {
	t         tokenizer.Tokenizer
	noSpecial bool
}

func (e *encoder) encode(text string) ([]int32, error) {
	ids, err := e.t.Encode(text, &tokenizer.EncodeOptions{NoSpecial: e.noSpecial})
	if ids == nil {
		ids = []int32{} // [] and not null in JSON
	}
	return ids, err
}

// text prints the tokens of one text.
func (e *encoder) text(w io.Writer, text string, asJSON bool) error {
	if err := checkText("the text", text); err != nil {
		return err
	}
	ids, err := e.encode(text)
	if err != nil {
		return err
	}
	if asJSON {
		return output.Line(w, ids)
	}
	var b strings.Builder
	for _, id := range ids {
		bytes, _ := e.t.Token(id)
		// bytes that are not valid UTF-8 alone are printed as \x..
		fmt.Fprintf(&b, "%7d  %s\n", id, strconv.Quote(bytes))
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// list prints the ids of each string in a JSON array.
func (e *encoder) list(w io.Writer, data []byte) error {
	if !utf8.Valid(data) {
		return checkText("stdin", string(data))
	}
	var texts []*string
	err := json.Unmarshal(data, &texts)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("stdin must be a JSON array of strings: the value that ends at byte %d is of "+
			"kind %s", wrong.Offset,
			wrong.Value)
	}
	if err != nil || texts == nil {
		return fmt.Errorf("stdin must be a JSON array of strings: %w", orNull(err))
	}
	all := make([][]int32, len(texts))
	for i, text := range texts {
		if text == nil {
			return fmt.Errorf("stdin must be a JSON array of strings: element %d is null", i)
		}
		var err error
		if all[i], err = e.encode(*text); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return output.Line(w, all)
}

func orNull(err error) error {
	if err == nil {
		err = errors.New("it is null")
	}
	return err
}
