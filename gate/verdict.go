package gate

import (
	"fmt"
	"strings"
)

// Verdict is the outcome of a gate. Every report embeds one.
type Verdict struct {
	Name    string // of the comparison, for people; may be empty
	Reasons []Reason
	Judged  int // elements, positions or tokens that were compared
}

// Reason is one condition that does not hold.
type Reason struct {
	// Metric is the condition: a constant such as [MeanRelL1], or another name of docs/gates.md.
	Metric string `json:"metric"`
	Text   string `json:"text"` // a sentence for people
}

// OK reports whether something was compared and every condition holds. The zero Verdict is not OK.
func (v Verdict) OK() bool { return len(v.Reasons) == 0 && v.Judged > 0 }

// Err returns nil if v is OK, and otherwise an error with the reasons that wraps [ErrFailed].
func (v Verdict) Err() error {
	if v.OK() {
		return nil
	}
	name := v.Name
	if name != "" {
		name += ": "
	}
	return fmt.Errorf("%w: %s%s", ErrFailed, name, strings.Join(v.sentences(), "; "))
}

// sentences returns the reasons of a failure as text.
func (v Verdict) sentences() []string {
	if len(v.Reasons) == 0 {
		return []string{"nothing was compared"}
	}
	list := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		list[i] = r.Text
	}
	return list
}

// head writes the first lines of a report.
func (v Verdict) head(b *strings.Builder) {
	word := "PASS"
	if !v.OK() {
		word = "FAIL"
	}
	b.WriteString(word)
	if v.Name != "" {
		fmt.Fprintf(b, " %s", v.Name)
	}
	b.WriteByte('\n')
	if v.OK() {
		return
	}
	for _, text := range v.sentences() {
		fmt.Fprintf(b, "  %s\n", text)
	}
}
