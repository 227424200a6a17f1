// Package chat turns a conversation into the text that a model was trained on, with the chat
// template of its checkpoint.
//
// A chat template is a program in Jinja2. [Parse] parses it once and [Template.Render] executes it
// for a conversation. The result is equal to that of transformers' apply_chat_template byte for
// byte: it uses the same variables, whitespace rules and JSON. If a template uses a construct that
// is not supported, or exceeds a limit, the error has the line; there is no approximation.
//
//	t, err := chat.Parse(source) // chat_template.jinja, or GGUF's tokenizer.chat_template
//	r, err := t.Render(ctx, []chat.Message{{Role: "user", Content: "Hello"}},
//		&chat.Options{AddGenerationPrompt: true})
//
// [Rendered] also has the spans that come from message content, so that a tokenizer can encode a
// special token written by a user as plain text.
package chat

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// Template is a chat template, or a set of named templates. It is immutable and safe for concurrent
// use.
type Template struct{ named map[string]parsed }

type parsed struct {
	source   string
	template *jinja.Template
	err      error
}

const defaultName = "default"

// Parse parses a template. The error wraps [ErrTemplate] if the template is invalid or not supported.
func Parse(source string) (*Template, error) {
	return ParseNamed(map[string]string{defaultName: source})
}

// ParseNamed parses a set of templates by name, for example "default", "tool_use" and "rag". As in
// transformers, "tool_use" renders conversations with tools if it exists, and "default" renders all
// others. If there is no default, [Options].Template must name a template.
//
// ParseNamed returns an error if the default or the only template is invalid. Another invalid
// template returns its error when a conversation uses it.
func ParseNamed(sources map[string]string) (*Template, error) {
	if len(sources) == 0 {
		return nil, inputf("no chat template to parse")
	}
	t := &Template{map[string]parsed{}}
	for name, source := range sources {
		p := parsed{source: source}
		var err error
		if p.template, err = jinja.Parse(source); err != nil {
			p.err = wrap(err, name)
		}
		t.named[name] = p
	}
	for name, p := range t.named {
		if p.err != nil && (name == defaultName || len(t.named) == 1) {
			return nil, p.err
		}
	}
	return t, nil
}

// Names returns the sorted names of the templates. A template from [Parse] is named "default".
func (t *Template) Names() []string { return slices.Sorted(maps.Keys(t.named)) }

// choose returns the template to use and its name.
func (t *Template) choose(name string, tools bool) (parsed, string, error) {
	asked := name
	if name == "" {
		name = defaultName
		if _, ok := t.named["tool_use"]; ok && tools {
			name = "tool_use"
		}
	}
	p, ok := t.named[name]
	if !ok {
		return p, name, unknownName(asked, t.Names())
	}
	return p, name, p.err
}

// Span is the byte range [Start, End) of a rendered text.
type Span struct{ Start, End int }

// Rendered is the text of a conversation with the spans that come from message content.
//
// Content covers the bytes that come from strings in messages, tools, documents and
// [Options].Extra, even if the template trims, splits or joins them, changes their case or encodes
// them as JSON. Text of the template is not content, and neither are BOS, EOS, dates, and the roles
// of published templates, because some templates build special tokens from roles. Any other role is
// content. If a template splits content at a special token and joins the parts with the token's
// text, that token is the template's.
type Rendered struct {
	Text    string
	Content []Span // sorted, disjoint, not empty
}

// conversation is the input of a rendering as values of the engine.
type conversation struct {
	template string // name, or empty to choose by tools
	vars     *jinja.Dict
	size     int // approximate size of vars in bytes
	date     string
	now      func() time.Time
	prefill  bool // continue the final message
}

func (t *Template) render(ctx context.Context, c *conversation) (Rendered, error) {
	if t == nil || ctx == nil {
		return Rendered{}, inputf("the template or the context is nil")
	}
	tools, _ := c.vars.Get("tools")
	p, name, err := t.choose(c.template, tools != nil)
	if err != nil {
		return Rendered{}, err
	}
	var final string
	if c.prefill {
		if final, err = c.openFinal(p.source); err != nil {
			return Rendered{}, err
		}
	}
	env := jinja.Environment{Strftime: c.strftime, Size: c.size}
	text, content, err := p.template.Render(ctx, c.vars, env)
	if err != nil {
		return Rendered{}, wrap(err, name)
	}
	if c.prefill {
		text, err = cutFinal(text, final)
	}
	out := Rendered{Text: text}
	for _, s := range content {
		if s.End = min(s.End, len(text)); s.Start < s.End {
			out.Content = append(out.Content, Span(s))
		}
	}
	return out, err
}

func (c *conversation) strftime(format string) (string, error) {
	if c.date != "" {
		return c.date, nil
	}
	if c.now == nil {
		c.now = time.Now
	}
	return jinja.Strftime(c.now(), format)
}
