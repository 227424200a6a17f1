// Package chat turns a conversation into the text that a model was trained on, with the chat
// template of its checkpoint.
//
// A chat template is a program in Jinja2. [Parse] reads it once and [Template.Render] runs it over
// messages. The result is byte for byte that of transformers' apply_chat_template: the same
// variables, whitespace rules and JSON. What is not supported is an error that names the line, and
// so is a template that does not end; nothing is guessed.
//
//	t, err := chat.Parse(source) // chat_template.jinja, or GGUF's tokenizer.chat_template
//	r, err := t.Render(ctx, []chat.Message{{Role: "user", Content: "Hello"}},
//		&chat.Options{AddGenerationPrompt: true})
//
// [Rendered] also says which bytes came from message content, so that a tokenizer can encode
// special tokens that a user writes as plain text.
package chat

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// Template is a parsed chat template, or several with names. It is immutable and safe for
// concurrent use.
type Template struct{ named map[string]parsed }

type parsed struct {
	source   string
	template *jinja.Template
	err      error
}

const defaultName = "default"

// Parse reads a template. An error is a *ParseError, which names the line.
func Parse(source string) (*Template, error) {
	return ParseNamed(map[string]string{defaultName: source})
}

// ParseNamed reads a set of templates by name: "default", "tool_use", "rag" and so on. As in
// transformers, a conversation with tools is rendered by "tool_use" if there is one, and other
// conversations by "default". Without a default, [Options].Template must name one.
//
// A template that is not valid fails ParseNamed if it is the default or the only one. Otherwise it
// fails the renderings that choose it.
func ParseNamed(sources map[string]string) (*Template, error) {
	if len(sources) == 0 {
		return nil, &InputError{Msg: "no chat template to parse"}
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

// Names returns the names of the templates, sorted. [Parse] names its template "default".
func (t *Template) Names() []string { return slices.Sorted(maps.Keys(t.named)) }

// choose returns the template for a conversation and its name.
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
		return p, name, &NameError{Name: asked, Names: t.Names()}
	}
	return p, name, p.err
}

// Span is the byte range [Start, End) of a rendered text.
type Span struct{ Start, End int }

// Rendered is the text of a conversation, and which of its bytes came from message content.
//
// Content are the bytes that come from strings in messages, tools, documents and [Options].Extra,
// whatever the template did to them: trimmed, split, changed case or written as JSON. What the
// template writes itself is not content, and neither are BOS, EOS, dates, and the roles that
// published templates know, of which some build special tokens; any other role is. A template that
// splits content at the text of a special token and joins the parts with it writes that token.
type Rendered struct {
	Text    string
	Content []Span // sorted, disjoint, not empty
}

// conversation is what a rendering needs, in the engine's terms.
type conversation struct {
	template string // its name, or empty
	vars     *jinja.Dict
	size     int // of the variables in bytes, about
	date     string
	now      func() time.Time
	prefill  bool // continue the final message
}

func (t *Template) render(ctx context.Context, c *conversation) (Rendered, error) {
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
