package model

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/tokenizer"
)

// Prompt is what a generation continues: plain text, token ids or a conversation. Text and ids that
// are empty, and so the zero value, stand for the model's BOS alone; without one they are an error.
type Prompt struct {
	kind     promptKind
	text     string
	ids      []int32
	messages []chat.Message
	options  *chat.Options
}

type promptKind uint8

const (
	ofIDs promptKind = iota
	ofText
	ofMessages
)

// Text is a prompt of plain text. The tokenizer's special tokens are put around it (a BOS for Llama),
// and those written in it are recognised. A text that begins with BOS itself gets no second one.
func Text(s string) Prompt { return Prompt{kind: ofText, text: s} }

// IDs is a prompt of token ids, used as they are.
func IDs(ids []int32) Prompt { return Prompt{kind: ofIDs, ids: ids} }

// Messages is a conversation, put into words by the model's chat template. The prompt for the
// assistant's answer follows, or with chat.Options.ContinueFinal the last message is continued. The
// options may be nil; AddGenerationPrompt, BOS and EOS are set by the model.
//
// The content of messages, tools and further variables is text and nothing else: where it holds the text
// of a special token, such as <|im_end|>, it becomes the ids of that text, so that it cannot end a turn or
// begin another. The ids of all other conversations are those of transformers. With
// chat.Options.AllowSpecial special tokens in content are recognised, as transformers does: then whoever
// writes a message controls the conversation.
//
// That holds for what a model has answered, too. Hand over its reasoning and its tool calls in the
// fields that [chat.Message] has for them, for the template to write their tokens.
func Messages(messages []chat.Message, opts *chat.Options) Prompt {
	return Prompt{kind: ofMessages, messages: messages, options: opts}
}

// ContextError is a prompt, or what is stepped or scored, that does not fit.
type ContextError struct {
	Prompt  int // tokens of the prompt; all that are to be in the session
	Context int // positions of the model, or of the plan

	text string // where it is no prompt
}

func (e *ContextError) Error() string {
	if e.text != "" {
		return e.text
	}
	return fmt.Sprintf("model: the prompt has %d tokens, the context is %d and one of them must be left for the answer: shorten the prompt",
		e.Prompt, e.Context)
}

// tooLong is the error of a prompt that does not fit.
func (m *Model) tooLong(tokens int) error {
	e := &ContextError{Prompt: tokens, Context: m.Context()}
	if declared := m.ck.Config().Context; declared > e.Context {
		e.text = fmt.Sprintf("%v, or raise the limit (OpenOptions.MaxContext, --ctx): the model declares %d positions",
			e, declared)
	}
	return e
}

// render returns the text of a conversation, with the prompt for an answer and the BOS and EOS of the
// model, which opts cannot change.
func (m *Model) render(ctx context.Context, messages []chat.Message, opts *chat.Options) (chat.Rendered, error) {
	if m.tmplErr != nil {
		return chat.Rendered{}, m.tmplErr
	}
	o := chat.Options{}
	if opts != nil {
		o = *opts
	}
	o.AddGenerationPrompt = !o.ContinueFinal
	o.BOS, o.EOS = SpecialTexts(m.ck, m.tok)
	return m.template.Render(ctx, messages, &o)
}

// encodeText encodes plain text. Where the tokenizer puts before it what it begins with itself, a BOS,
// one of the two is left out.
func (m *Model) encodeText(ctx context.Context, text string) ([]int32, error) {
	ids, err := m.tok.EncodeContext(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	if bos, _ := SpecialTexts(m.ck, m.tok); bos == "" || !strings.HasPrefix(text, bos) {
		return ids, nil
	}
	written, err := m.tok.EncodeContext(ctx, text, &tokenizer.EncodeOptions{NoSpecial: true})
	if err != nil {
		return nil, err
	}
	n := len(written)
	if n > 0 && len(ids) > n && ids[0] == written[0] && slices.Equal(ids[1:1+n], written) {
		return ids[1:], nil
	}
	return ids, nil
}

// encodeRendered encodes a rendered conversation. Templates write BOS themselves, so that nothing is put
// around the text. In content no token is recognised unless special is set.
func encodeRendered(ctx context.Context, tok tokenizer.Coder, r chat.Rendered, special bool) ([]int32, error) {
	opts := &tokenizer.EncodeOptions{NoSpecial: true}
	if !special {
		for _, s := range r.Content {
			opts.Plain = append(opts.Plain, tokenizer.Span(s))
		}
	}
	return tok.EncodeContext(ctx, r.Text, opts)
}

// SpecialTexts are the texts of BOS and EOS that templates may ask for: as tokenizer_config.json says, else those of the configuration's ids. The tokenizer may
// be nil.
func SpecialTexts(ck *checkpoint.Checkpoint, tok tokenizer.Coder) (bos, eos string) {
	if ck == nil {
		return "", ""
	}
	bos, eos = ck.SpecialTokens()
	c := ck.Config()
	if tok != nil {
		if bos == "" && len(c.BOS) > 0 {
			bos, _ = tok.Token(int32(c.BOS[0]))
		}
		if eos == "" && len(c.EOS) > 0 {
			eos, _ = tok.Token(int32(c.EOS[0]))
		}
	}
	return bos, eos
}

// Tokens gives the ids of a prompt, checked against vocabulary and context.
func (m *Model) Tokens(p Prompt) ([]int32, error) { return m.tokens(context.Background(), p) }

func (m *Model) tokens(ctx context.Context, p Prompt) ([]int32, error) {
	ids := p.ids
	switch p.kind {
	case ofText:
		if m.tokErr != nil {
			return nil, m.tokErr
		}
		var err error
		if ids, err = m.encodeText(ctx, p.text); err != nil {
			return nil, err
		}
	case ofMessages:
		if len(p.messages) == 0 {
			return nil, badOption("Prompt.Messages", "empty", "a conversation that begins with a message of role user")
		}
		rendered, err := m.render(ctx, p.messages, p.options)
		if err != nil {
			return nil, err
		}
		if m.tokErr != nil {
			return nil, m.tokErr
		}
		special := p.options != nil && p.options.AllowSpecial
		if ids, err = encodeRendered(ctx, m.tok, rendered, special); err != nil {
			return nil, err
		}
	}
	c := m.ck.Config()
	if len(ids) == 0 {
		if len(c.BOS) == 0 {
			return nil, badOption("Prompt", "empty", "some text: the model has no BOS token to begin with")
		}
		ids = []int32{int32(c.BOS[0])}
	}
	for i, id := range ids {
		if id >= 0 && int(id) < c.Vocab {
			continue
		}
		if p.kind == ofIDs {
			return nil, badOption(fmt.Sprintf("Prompt.IDs[%d]", i), id, fmt.Sprintf("an id from 0 to %d", c.Vocab-1))
		}
		return nil, fmt.Errorf("model: the tokenizer of %s gives id %d, the model's vocabulary has %d tokens",
			m.ck.Path(), id, c.Vocab)
	}
	if len(ids) >= m.Context() {
		return nil, m.tooLong(len(ids))
	}
	return ids, nil
}
