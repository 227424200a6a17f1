package model

import "strings"

// stopper finds stop strings in streamed text. Text that could be the beginning of one is held back until it is known not to be.
type stopper struct {
	stops []string
	held  string
}

// add takes the next piece of text and returns what may be shown, and whether a stop string has come; it and what follows are dropped.
func (s *stopper) add(text string) (show string, stopped bool) {
	s.held += text
	first := -1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		show, s.held = s.held[:first], ""
		return show, true
	}
	keep := 0 // length of the longest suffix that begins a stop string
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				keep = n
			}
		}
	}
	cut := len(s.held) - keep
	show, s.held = s.held[:cut], s.held[cut:]
	return show, false
}

// rest returns what was held back at the end of the text.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}
