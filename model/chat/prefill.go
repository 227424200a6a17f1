package chat

import (
	"strings"
	"unicode"

	"github.com/npukit/npukit/model/chat/internal/jinja"
)

var errBothEnds = inputf(
	"a conversation cannot both continue its final message and add a generation prompt")

// finalTag is put behind the final message to find its end in the rendered text, as transformers
// does. Its blank at the end tells whether the template trims messages.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// openFinal puts the tag behind the content of the last message. It returns that content.
func (c *conversation) openFinal(source string) (string, error) {
	v, _ := c.vars.Get("messages")
	turns := v.(*jinja.List).Items
	if len(turns) == 0 {
		return "", inputf("the conversation is empty: there is no final message to continue")
	}
	last := turns[len(turns)-1].(*jinja.Dict)
	role, _ := last.Get("role")
	if s, _ := jinja.String(role); s != "assistant" {
		return "", inputf("the final message has the role %q: only an assistant's can be continued", s)
	}
	content, ok := last.Get("content")
	if !ok {
		return "", inputf("the final message has no content to continue")
	}
	if !strings.Contains(source, "content") {
		return "", inputf("the chat template does not read the content of messages")
	}
	final, tagged, ok := withTag(content)
	if !ok {
		return "", inputf("the final message has no text to continue")
	}
	open := jinja.NewDict().Merge(last, nil)
	open.Set("content", tagged)
	c.vars.Set("messages", &jinja.List{
		Items: append(append([]any(nil), turns[:len(turns)-1]...), open),
	})
	return final, nil
}

// withTag returns a message's text, the last one of several parts, and its content with the tag.
func withTag(content any) (text string, tagged any, ok bool) {
	if text, ok = jinja.String(content); ok {
		return text, jinja.AppendContent(content, finalTag), true
	}
	parts, ok := content.(*jinja.List)
	if !ok {
		return "", nil, false
	}
	for i := len(parts.Items) - 1; i >= 0; i-- {
		part, ok := parts.Items[i].(*jinja.Dict)
		if !ok {
			return "", nil, false
		}
		v, ok := part.Get("text")
		if !ok {
			continue
		}
		if text, ok = jinja.String(v); !ok {
			return "", nil, false
		}
		open := jinja.NewDict().Merge(part, nil)
		open.Set("text", jinja.AppendContent(v, finalTag))
		items := append([]any(nil), parts.Items...)
		items[i] = open
		return text, &jinja.List{Items: items}, true
	}
	return "", nil, false
}

// cutFinal ends a rendered text at the tag.
func cutFinal(text, final string) (string, error) {
	at := strings.LastIndex(text, strings.TrimSpace(finalTag))
	if at < 0 || !strings.Contains(text, strings.TrimFunc(final, isSpace)) {
		return "", inputf("the chat template changes the final message, so it cannot be continued")
	}
	if strings.HasPrefix(text[at:], finalTag) {
		return text[:at], nil
	}
	return strings.TrimRightFunc(text[:at], isSpace), nil
}

// isSpace is Python's str.isspace for one character.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }
