package jinja

import (
	"fmt"
	"strings"
	"time"
)

// Strftime formats a time as C's strftime does in the C locale.
func Strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(format, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), nil
		}
		unpadded := strings.HasPrefix(rest, "-")
		rest = strings.TrimPrefix(rest, "-")
		if rest == "" {
			return "", fmt.Errorf("the format %q ends in %%", format)
		}
		text, ok := directive(t, rest[0])
		if !ok {
			return "", fmt.Errorf("the directive %%%c is not supported", rest[0])
		}
		if unpadded {
			if text = strings.TrimLeft(text, "0 "); text == "" {
				text = "0"
			}
		}
		b.WriteString(text)
		format = rest[1:]
	}
}

func directive(t time.Time, c byte) (string, bool) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'm': "01", 'y': "06", 'Y': "2006",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'e': "_2", 'z': "-0700", 'Z': "MST",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'x': "01/02/06", 'X': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006",
	}
	if l, ok := layouts[c]; ok {
		return t.Format(l), true
	}
	switch c {
	case '%':
		return "%", true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'w':
		return fmt.Sprint(int(t.Weekday())), true
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	}
	return "", false
}
