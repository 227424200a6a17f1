package journal

import (
	"strings"
)

// Clip cuts a text to at most so many bytes, between characters, and marks the cut.
func Clip(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 {
		most--
	}
	return s[:most] + "..."
}
