package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// Render renders a conversation. If ctx is cancelled, it returns an error that wraps ctx.Err().
//
// Errors of the template or the conversation are of type [*Error]. The error wraps [ErrLimit] if
// rendering needs more than 2 s of CPU time, or more memory than 64 MiB plus 8 times the size of the
// conversation. opts may be nil.
func (t *Template) Render(ctx context.Context, messages []Message, opts *Options) (Rendered, error) {
	if opts == nil {
		opts = &Options{}
	}
	c, err := newConversation(messages, opts)
	if err != nil {
		return Rendered{}, err
	}
	return t.render(ctx, c)
}

// newConversation sets the same variables as transformers, in the same order.
func newConversation(messages []Message, opts *Options) (*conversation, error) {
	if opts.ContinueFinal && opts.AddGenerationPrompt {
		return nil, errBothEnds
	}
	c := &conversation{
		template: opts.Template, vars: jinja.NewDict(), date: opts.DateString, now: opts.Now,
		prefill: opts.ContinueFinal,
	}
	turns := &jinja.List{}
	for i, m := range messages {
		v, err := m.value()
		if err != nil {
			return nil, inputf("message %d: %v", i, err)
		}
		turns.Items = append(turns.Items, normalized(v))
		c.size += 200 + len(m.Content) + len(m.ContentJSON) + len(m.ReasoningContent)
		for _, call := range m.ToolCalls {
			c.size += 200 + len(call.Function.Arguments)
		}
	}
	c.vars.Set("messages", turns)
	var err error
	decode := func(name string, raw json.RawMessage) any {
		c.size += len(raw)
		v, failed := jinja.DecodeJSON(raw)
		if failed != nil && err == nil {
			err = inputf("%s: %v", name, failed)
		}
		return v
	}
	list := func(name string, values []json.RawMessage) {
		var items []any
		for i, raw := range values {
			items = append(items, decode(fmt.Sprintf("%s %d", name, i), raw))
		}
		c.vars.Set(name+"s", nil)
		if len(items) > 0 {
			c.vars.Set(name+"s", &jinja.List{Items: items})
		}
	}
	list("tool", opts.Tools)
	list("document", opts.Documents)
	c.vars.Set("add_generation_prompt", opts.AddGenerationPrompt)
	if opts.EnableThinking != nil {
		c.vars.Set("enable_thinking", *opts.EnableThinking)
	}
	text := func(name, value string) {
		if value != "" {
			c.vars.Set(name, jinja.Literal(value))
		}
	}
	text("bos_token", opts.BOS)
	text("eos_token", opts.EOS)
	text("date_string", opts.DateString)
	for _, x := range opts.Extra {
		c.vars.Set(x.Name, variable(x.Name, decode(fmt.Sprintf("variable %q", x.Name), x.Value)))
	}
	return c, err
}

// roles are the roles of published templates. They are not content, because some templates build
// special tokens from them. Any other role is content: "<|" and "|>" around the role im_end would be
// a token that ends a turn.
var roles = strings.Fields(`system user assistant tool developer function ipython model observation
	environment documents context chatbot human tools functions tool_call tool_calls tool_response
	tool_responses tool_result tool_results user_context latest_reminder SYSTEM ASSISTANT FUNCTIONS`)

func role(s string) any {
	if slices.Contains(roles, s) {
		return jinja.Literal(s)
	}
	return jinja.Content(s)
}

// variable returns the value of an additional variable. Special tokens and the date come from the
// caller, not from a user, so they are not content.
func variable(name string, v any) any {
	if s, ok := jinja.String(v); ok && (strings.HasSuffix(name, "_token") || name == "date_string") {
		return jinja.Literal(s)
	}
	return v
}

// reasoningFields are the keys for a message's reasoning, in the order of precedence.
var reasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// normalized prepares a message like transformers: it drops keys that are null, and sets both names
// that templates use for reasoning.
func normalized(m *jinja.Dict) *jinja.Dict {
	m = jinja.NewDict().Merge(m, func(v any) bool { return v != nil })
	if r, ok := m.Get("role"); ok {
		if s, ok := jinja.String(r); ok {
			m.Set("role", role(s))
		}
	}
	for _, name := range reasoningFields {
		reasoning, ok := m.Get(name)
		if !ok {
			continue
		}
		out := object("thinking", reasoning).Merge(m, nil)
		out.Set("reasoning_content", reasoning)
		return out
	}
	return m
}

// RenderJSON renders a conversation in the form of a JSON object:
//
//	{"messages": [...], "tools": [...], "documents": [...], "add_generation_prompt": true,
//	 "continue_final_message": false, "chat_template": "tool_use", "enable_thinking": false,
//	 "bos_token": "...", "eos_token": "...", "date_string": "26 Jul 2024"}
//
// Only messages is required. The template sees all keys of messages and tools in order, after the
// preparation that transformers does: keys of a message that are null are dropped, and its reasoning
// (reasoning_content, thinking or reasoning) is set as both reasoning_content and thinking. Other
// fields become variables. A null field counts as missing. chat_template names one of several
// templates. date_string is also the result of strftime_now. Errors are those of [Template.Render].
func (t *Template) RenderJSON(ctx context.Context, data []byte) (Rendered, error) {
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return Rendered{}, inputf("conversation: %v", err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return Rendered{}, inputf(`conversation: expected an object with "messages"`)
	}
	c := &conversation{size: len(data)}
	c.vars = object("messages", nil, "tools", nil, "documents", nil, "add_generation_prompt", false)
	d.All(func(key string, v any) {
		if err == nil {
			err = c.field(key, v)
		}
	})
	if err != nil {
		return Rendered{}, err
	}
	if _, ok := d.Get("messages"); !ok {
		return Rendered{}, inputf(`conversation: "messages" is missing`)
	}
	if add, _ := c.vars.Get("add_generation_prompt"); add == true && c.prefill {
		return Rendered{}, errBothEnds
	}
	return t.render(ctx, c)
}

// field sets a field of the conversation. It checks the type of the known fields, because a template
// might fail on a wrong type far from the cause, or not at all.
func (c *conversation) field(key string, v any) error {
	ok, want := true, ""
	switch key {
	case "messages":
		turns, isList := v.(*jinja.List)
		if !isList {
			return inputf(`conversation: "messages" must be an array of objects`)
		}
		out := &jinja.List{}
		for i, m := range turns.Items {
			d, isDict := m.(*jinja.Dict)
			if !isDict {
				return inputf("conversation: message %d is not an object", i)
			}
			out.Items = append(out.Items, normalized(d))
		}
		v = out
	case "tools", "documents":
		_, ok = v.(*jinja.List)
		want, ok = "an array", ok || v == nil
	case "add_generation_prompt", "continue_final_message", "enable_thinking":
		_, ok = v.(bool)
		want, ok = "true or false", ok || v == nil && optional[key]
	case "bos_token", "eos_token", "date_string", "chat_template":
		_, ok = jinja.String(v)
		want, ok = "a string", ok || v == nil
	}
	if !ok {
		return inputf("conversation: %q must be %s", key, want)
	}
	switch key {
	case "continue_final_message":
		c.prefill = v == true
		return nil
	case "chat_template":
		c.template, _ = jinja.String(v)
		return nil
	case "date_string":
		c.date, _ = jinja.String(v)
	}
	if v != nil || !optional[key] {
		c.vars.Set(key, variable(key, v))
	}
	return nil
}

// optional are the fields that are not defined if they are null.
var optional = map[string]bool{
	"enable_thinking": true, "bos_token": true, "eos_token": true, "date_string": true,
}

var errBothEnds = inputf(
	"a conversation cannot both continue its final message and add a generation prompt")

// finalTag marks the end of the final message in the rendered text, as in transformers. Its trailing
// space is missing if the template trims messages.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// openFinal appends the tag to the content of the last message, and returns that content.
func (c *conversation) openFinal(source string) (string, error) {
	v, _ := c.vars.Get("messages")
	turns := slices.Clone(v.(*jinja.List).Items)
	if len(turns) == 0 {
		return "", inputf("the conversation is empty: there is no final message to continue")
	}
	last := turns[len(turns)-1].(*jinja.Dict)
	role, _ := last.Get("role")
	if s, _ := jinja.String(role); s != "assistant" {
		return "", inputf("the final message has the role %q: only an assistant's can be continued", s)
	}
	text, tagged := withTag(last, "content")
	if tagged == nil || !strings.Contains(source, "content") {
		return "", inputf("the final message has no text to continue, or the template reads no content")
	}
	turns[len(turns)-1] = tagged
	c.vars.Set("messages", &jinja.List{Items: turns})
	return text, nil
}

// withTag returns the text of a key of d, and a copy of d with the tag appended to it. If the value
// is a list of parts, it uses the last part with a text. If there is no text, the copy is nil.
func withTag(d *jinja.Dict, key string) (string, *jinja.Dict) {
	tagged := jinja.NewDict().Merge(d, nil)
	v, _ := d.Get(key)
	if text, ok := jinja.String(v); ok {
		tagged.Set(key, jinja.AppendContent(v, finalTag))
		return text, tagged
	}
	parts, ok := v.(*jinja.List)
	if !ok {
		return "", nil
	}
	items := slices.Clone(parts.Items)
	for i, v := range slices.Backward(items) {
		part, ok := v.(*jinja.Dict)
		if !ok {
			return "", nil
		}
		if _, ok := part.Get("text"); ok {
			text, open := withTag(part, "text")
			if open == nil {
				return "", nil
			}
			items[i] = open
			tagged.Set(key, &jinja.List{Items: items})
			return text, tagged
		}
	}
	return "", nil
}

// cutFinal returns a rendered text up to the tag.
func cutFinal(text, final string) (string, error) {
	at := strings.LastIndex(text, strings.TrimSpace(finalTag))
	if at < 0 || !strings.Contains(text, strings.TrimFunc(final, jinja.IsSpace)) {
		return "", inputf("the chat template changes the final message, so it cannot be continued")
	}
	if strings.HasPrefix(text[at:], finalTag) {
		return text[:at], nil
	}
	return strings.TrimRightFunc(text[:at], jinja.IsSpace), nil
}
