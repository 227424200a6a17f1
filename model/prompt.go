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

// Prompt is the start of a text to continue: plain text, token ids or a conversation. An empty text
// or list of ids, like the zero value, stands for the model's BOS token; if the model has none, it
// is an error.
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

// Text returns a prompt of plain text. The tokenizer adds its special tokens, such as BOS for
// Llama, and recognizes those in the text. If the text starts with BOS, no second one is added.
func Text(s string) Prompt { return Prompt{kind: ofText, text: s} }

// IDs returns a prompt of token ids, which are used unchanged.
func IDs(ids []int32) Prompt { return Prompt{kind: ofIDs, ids: ids} }

// Messages returns the prompt of a conversation, rendered with the model's chat template. It ends
// with the prompt for the assistant's answer or, with chat.Options.ContinueFinal, with the last
// message, which the answer continues. opts may be nil. The model sets AddGenerationPrompt, BOS and
// EOS.
//
// The content of messages, tools and other variables is plain text: if it contains the text of a
// special token, such as <|im_end|>, that is encoded as ordinary text, so content cannot end a
// message or start another. All other conversations have the same ids as in transformers. With
// chat.Options.AllowSpecial special tokens in content are recognized, as in transformers; the
// author of a message then controls the conversation.
//
// The same holds for answers of the model. Pass reasoning and tool calls in the fields of
// [chat.Message], so that the template writes their tokens.
func Messages(messages []chat.Message, opts *chat.Options) Prompt {
	return Prompt{kind: ofMessages, messages: messages, options: opts}
}

// ContextError reports a prompt, or ids to append or score, that do not fit into the context.
type ContextError struct {
	Prompt  int // tokens of the prompt, or that the session would have
	Context int // most positions of a session

	text string // the error's text, if the tokens are not a prompt
}

func (e *ContextError) Error() string {
	if e.text != "" {
		return e.text
	}
	return fmt.Sprintf("model: the prompt has %d tokens, the context is %d and must have room for an answer: "+
		"shorten the prompt", e.Prompt, e.Context)
}

// tooLong returns the error of a prompt with too many tokens.
func (m *Model) tooLong(tokens int) error {
	e := &ContextError{Prompt: tokens, Context: m.Context()}
	if declared := m.ck.Config().Context; declared > e.Context {
		e.text = fmt.Sprintf("%v, or raise the limit (OpenOptions.MaxContext, --ctx): "+
			"the model declares %d positions",
			e, declared)
	}
	return e
}

// render returns the text of a conversation, including the prompt for an answer. opts cannot change
// the model's BOS and EOS.
func (m *Model) render(ctx context.Context, messages []chat.Message, opts *chat.Options) (
	chat.Rendered, error,
) {
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

// encodeText encodes plain text. If the text starts with the BOS that the tokenizer adds, BOS
// appears once.
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

// encodeRendered encodes a rendered conversation. Templates write BOS themselves, so nothing is
// added. Special tokens in content are recognized only if special is set.
func encodeRendered(ctx context.Context, tok tokenizer.Tokenizer, r chat.Rendered, special bool) (
	[]int32, error,
) {
	opts := &tokenizer.EncodeOptions{NoSpecial: true}
	if !special {
		for _, s := range r.Content {
			opts.Plain = append(opts.Plain, tokenizer.Span(s))
		}
	}
	return tok.EncodeContext(ctx, r.Text, opts)
}

// SpecialTexts returns the texts of BOS and EOS for templates: those of tokenizer_config.json, or
// else of the configuration's ids. tok may be nil.
func SpecialTexts(ck *checkpoint.Checkpoint, tok tokenizer.Tokenizer) (bos, eos string) {
	if ck == nil {
		return "", ""
	}
	bos, eos = ck.Text().BOS, ck.Text().EOS
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

// Tokens returns the ids of a prompt. It returns an error if they do not fit the vocabulary or the
// context.
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
			return nil, badOption("Prompt.Messages", "empty",
				"a conversation that starts with a message of role user")
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
	if p.kind == ofIDs {
		if err := m.checkIDs("Prompt.IDs", ids); err != nil {
			return nil, err
		}
	} else if i := slices.IndexFunc(ids, func(id int32) bool { return !m.hasID(id) }); i >= 0 {
		return nil, fmt.Errorf("model: the tokenizer of %s gives id %d, the model's vocabulary has %d tokens",
			m.ck.Path(), ids[i], c.Vocab)
	}
	if len(ids) >= m.Context() {
		return nil, m.tooLong(len(ids))
	}
	return ids, nil
}
