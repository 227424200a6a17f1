package chat

import (
	"context"
	"errors"
	"fmt"
)

// variables are what transformers gives a template, in its order.
func variables(messages []Message, opts *Options) (dict, error) {
	vars := dict{}
	turns := list{}
	for i, m := range messages {
		v, err := m.value()
		if err != nil {
			return nil, fmt.Errorf("chat: message %d: %w", i, err)
		}
		turns = append(turns, v)
	}
	vars.set("messages", turns)
	vars.set("tools", none{})
	vars.set("documents", none{})
	if len(opts.Tools) > 0 {
		tools := list{}
		for i, tool := range opts.Tools {
			v, err := decodeJSON(tool)
			if err != nil {
				return nil, fmt.Errorf("chat: tool %d: %w", i, err)
			}
			tools = append(tools, v)
		}
		vars.set("tools", tools)
	}
	vars.set("add_generation_prompt", opts.AddGenerationPrompt)
	if opts.EnableThinking != nil {
		vars.set("enable_thinking", *opts.EnableThinking)
	}
	for _, s := range []struct{ name, value string }{{"bos_token", opts.BOS}, {"eos_token", opts.EOS}, {"date_string", opts.DateString}} {
		if s.value != "" {
			vars.set(s.name, s.value)
		}
	}
	for _, x := range opts.Extra {
		v, err := decodeJSON(x.Value)
		if err != nil {
			return nil, fmt.Errorf("chat: variable %q: %w", x.Name, err)
		}
		vars.set(x.Name, v)
	}
	return vars, nil
}

// value is the dict that a template sees.
func (m *Message) value() (dict, error) {
	d := dict{}
	d.set("role", m.Role)
	d.set("content", m.Content)
	if len(m.ContentJSON) > 0 {
		content, err := decodeJSON(m.ContentJSON)
		if err != nil {
			return nil, fmt.Errorf("content: %w", err)
		}
		d.set("content", content)
	}
	if m.ReasoningContent != "" {
		d.set("reasoning_content", m.ReasoningContent)
	}
	if len(m.ToolCalls) > 0 {
		calls := list{}
		for i, c := range m.ToolCalls {
			v, err := c.value()
			if err != nil {
				return nil, fmt.Errorf("tool call %d: %w", i, err)
			}
			calls = append(calls, v)
		}
		d.set("tool_calls", calls)
	}
	if m.ToolCallID != "" {
		d.set("tool_call_id", m.ToolCallID)
	}
	if m.Name != "" {
		d.set("name", m.Name)
	}
	return d, nil
}

func (c *ToolCall) value() (dict, error) {
	arguments := any(dict{})
	if len(c.Function.Arguments) > 0 {
		var err error
		if arguments, err = decodeJSON(c.Function.Arguments); err != nil {
			return nil, fmt.Errorf("arguments of %q: %w", c.Function.Name, err)
		}
	}
	f := dict{}
	f.set("name", c.Function.Name)
	f.set("arguments", arguments)
	d := dict{}
	if c.ID != "" {
		d.set("id", c.ID)
	}
	typ := c.Type
	if typ == "" {
		typ = "function"
	}
	d.set("type", typ)
	d.set("function", f)
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
	v, err := decodeJSON(conversation)
	if err != nil {
		return "", fmt.Errorf("chat: conversation: %w", err)
	}
	d, ok := v.(dict)
	if !ok {
		return "", errors.New(`chat: conversation: expected an object like {"messages": [{"role": "user", "content": "..."}]}`)
	}
	vars := dict{}
	for _, name := range []string{"messages", "tools", "documents"} {
		vars.set(name, none{})
	}
	vars.set("add_generation_prompt", false)
	for _, p := range d {
		key := p.key.(string) // a JSON object has no other keys
		if err := check(key, p.value); err != nil {
			return "", err
		}
		if p.value != (none{}) || !optional[key] {
			vars.set(key, p.value)
		}
	}
	if _, ok := d.get("messages"); !ok {
		return "", errors.New(`chat: conversation: "messages" is missing`)
	}
	date, _ := vars.get("date_string")
	dateString, _ := date.(string) // absent means now
	return t.render(context.Background(), vars, dateString, nil)
}

// optional are the fields whose null means absent.
var optional = map[string]bool{"enable_thinking": true, "bos_token": true, "eos_token": true, "date_string": true}

// check holds the known fields to their types: a template would fail on others far from the cause, or not at all.
func check(key string, v any) error {
	ok, want := true, ""
	switch key {
	case "messages":
		_, ok = v.(list)
		want = "an array of objects"
		if ok {
			for i, m := range v.(list) {
				if _, isDict := m.(dict); !isDict {
					return fmt.Errorf("chat: conversation: message %d is not an object", i)
				}
			}
		}
	case "tools":
		_, ok = v.(list)
		want, ok = "an array", ok || v == (none{})
	case "add_generation_prompt", "enable_thinking":
		_, ok = v.(bool)
		want, ok = "true or false", ok || v == (none{}) && optional[key]
	case "bos_token", "eos_token", "date_string":
		_, ok = v.(string)
		want, ok = "a string", ok || v == (none{})
	}
	if !ok {
		return fmt.Errorf("chat: conversation: %q must be %s", key, want)
	}
	return nil
}
