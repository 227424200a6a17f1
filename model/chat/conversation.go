package chat

import (
	"errors"
	"fmt"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

// variables are what transformers gives a template, in its order.
func variables(messages []Message, opts *Options) (*jinja.Dict, error) {
	vars := jinja.NewDict()
	list := &jinja.List{}
	for i, m := range messages {
		v, err := m.value()
		if err != nil {
			return nil, fmt.Errorf("chat: message %d: %w", i, err)
		}
		list.Items = append(list.Items, v)
	}
	vars.Set("messages", list)
	vars.Set("tools", nil)
	vars.Set("documents", nil)
	if len(opts.Tools) > 0 {
		tools := &jinja.List{}
		for i, tool := range opts.Tools {
			v, err := jinja.DecodeJSON(tool)
			if err != nil {
				return nil, fmt.Errorf("chat: tool %d: %w", i, err)
			}
			tools.Items = append(tools.Items, v)
		}
		vars.Set("tools", tools)
	}
	vars.Set("add_generation_prompt", opts.AddGenerationPrompt)
	if opts.EnableThinking != nil {
		vars.Set("enable_thinking", *opts.EnableThinking)
	}
	for _, s := range []struct{ name, value string }{{"bos_token", opts.BOS}, {"eos_token", opts.EOS}, {"date_string", opts.DateString}} {
		if s.value != "" {
			vars.Set(s.name, s.value)
		}
	}
	for _, x := range opts.Extra {
		v, err := jinja.DecodeJSON(x.Value)
		if err != nil {
			return nil, fmt.Errorf("chat: variable %q: %w", x.Name, err)
		}
		vars.Set(x.Name, v)
	}
	return vars, nil
}

// value is the dict that a template sees.
func (m *Message) value() (*jinja.Dict, error) {
	d := jinja.NewDict()
	d.Set("role", m.Role)
	d.Set("content", m.Content)
	if len(m.ContentJSON) > 0 {
		content, err := jinja.DecodeJSON(m.ContentJSON)
		if err != nil {
			return nil, fmt.Errorf("content: %w", err)
		}
		d.Set("content", content)
	}
	if m.ReasoningContent != "" {
		d.Set("reasoning_content", m.ReasoningContent)
	}
	if len(m.ToolCalls) > 0 {
		calls := &jinja.List{}
		for i, c := range m.ToolCalls {
			v, err := c.value()
			if err != nil {
				return nil, fmt.Errorf("tool call %d: %w", i, err)
			}
			calls.Items = append(calls.Items, v)
		}
		d.Set("tool_calls", calls)
	}
	if m.ToolCallID != "" {
		d.Set("tool_call_id", m.ToolCallID)
	}
	if m.Name != "" {
		d.Set("name", m.Name)
	}
	return d, nil
}

func (c *ToolCall) value() (*jinja.Dict, error) {
	arguments := any(jinja.NewDict())
	if len(c.Function.Arguments) > 0 {
		var err error
		if arguments, err = jinja.DecodeJSON(c.Function.Arguments); err != nil {
			return nil, fmt.Errorf("arguments of %q: %w", c.Function.Name, err)
		}
	}
	f := jinja.NewDict()
	f.Set("name", c.Function.Name)
	f.Set("arguments", arguments)
	d := jinja.NewDict()
	if c.ID != "" {
		d.Set("id", c.ID)
	}
	typ := c.Type
	if typ == "" {
		typ = "function"
	}
	d.Set("type", typ)
	d.Set("function", f)
	return d, nil
}

// RenderJSON renders a conversation that is written as a JSON object:
//
//	{"messages": [...], "tools": [...], "add_generation_prompt": true, "enable_thinking": false,
//	 "bos_token": "...", "eos_token": "...", "date_string": "26 Jul 2024"}
//
// Only messages is needed. Messages and tools reach the template exactly as they stand: every key, in order, null as None. Fields of other
// names become variables. Null for enable_thinking, bos_token, eos_token and date_string means that they are not given; date_string also
// fixes what strftime_now returns.
func (t *Template) RenderJSON(conversation []byte) (string, error) {
	v, err := jinja.DecodeJSON(conversation)
	if err != nil {
		return "", fmt.Errorf("chat: conversation: %w", err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return "", errors.New(`chat: conversation: expected an object like {"messages": [{"role": "user", "content": "..."}]}`)
	}
	vars := jinja.NewDict()
	for _, name := range []string{"messages", "tools", "documents"} {
		vars.Set(name, nil)
	}
	vars.Set("add_generation_prompt", false)
	d.All(func(k, v any) {
		key := k.(string) // a JSON object has no other keys
		if err == nil {
			err = check(key, v)
		}
		if v != nil || !optional[key] {
			vars.Set(key, v)
		}
	})
	if err != nil {
		return "", err
	}
	if _, ok := d.Get("messages"); !ok {
		return "", errors.New(`chat: conversation: "messages" is missing`)
	}
	date, _ := vars.Get("date_string")
	dateString, _ := date.(string) // absent means now
	return t.render(vars, len(conversation), dateString, nil)
}

// optional are the fields whose null means absent.
var optional = map[string]bool{"enable_thinking": true, "bos_token": true, "eos_token": true, "date_string": true}

// check holds the known fields to their types: a template would fail on others far from the cause, or not at all.
func check(key string, v any) error {
	ok, want := true, ""
	switch key {
	case "messages":
		_, ok = v.(*jinja.List)
		want = "an array of objects"
		if ok {
			for i, m := range v.(*jinja.List).Items {
				if _, isDict := m.(*jinja.Dict); !isDict {
					return fmt.Errorf("chat: conversation: message %d is not an object", i)
				}
			}
		}
	case "tools":
		_, ok = v.(*jinja.List)
		want, ok = "an array", ok || v == nil
	case "add_generation_prompt", "enable_thinking":
		_, ok = v.(bool)
		want, ok = "true or false", ok || v == nil && optional[key]
	case "bos_token", "eos_token", "date_string":
		_, ok = v.(string)
		want, ok = "a string", ok || v == nil
	}
	if !ok {
		return fmt.Errorf("chat: conversation: %q must be %s", key, want)
	}
	return nil
}
