package gates

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/npukit/npukit/gate"
)

// Checks is the verdict of a gate that checks several things. The zero value has checked nothing
// and is not OK.
type Checks struct {
	Name    string
	Done    []string // the checks that passed, for people
	Reasons []gate.Reason
	Figures map[string]float64
	Bounds  string // source of the thresholds
}

// Hold adds a check: that it passed, or the reason why not. The metric is that of the
// reason.
func (c *Checks) Hold(ok bool, metric, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if ok {
		c.Done = append(c.Done, text)
		return
	}
	c.Reasons = append(c.Reasons, gate.Reason{Metric: metric, Text: text})
}

// ErrorOr returns err, or good if err is nil. It is an argument for [Checks.Hold].
func ErrorOr(err error, good string) any {
	if err != nil {
		return err
	}
	return good
}

// take adds the findings of another verdict under a name. It keeps the worst of equal figures.
func (c *Checks) take(name string, v Verdict) {
	line, figures, bounds := Describe(v)
	if v.OK() {
		c.Done = append(c.Done, name+": "+line)
	}
	for _, r := range Reasons(v) {
		c.Reasons = append(c.Reasons, gate.Reason{Metric: r.Metric, Text: name + ": " + r.Text})
	}
	for k, x := range figures {
		if c.Figures == nil {
			c.Figures = map[string]float64{}
		}
		if old, ok := c.Figures[k]; !ok || worse(k, x, old) {
			c.Figures[k] = x
		}
	}
	if c.Bounds == "" {
		c.Bounds = bounds
	}
}

// worse reports whether x is a worse figure than old.
func worse(name string, x, old float64) bool {
	switch name {
	case "pearson", "top1", "equal_tokens":
		return x < old
	case "nll_change":
		return math.Abs(x) > math.Abs(old)
	}
	return x > old
}

// OK reports whether something was checked and all checks passed.
func (c Checks) OK() bool { return len(c.Reasons) == 0 && len(c.Done) > 0 }

// Err returns nil if c is OK, and otherwise an error with the reasons that wraps [gate.ErrFailed].
func (c Checks) Err() error {
	if c.OK() {
		return nil
	}
	list := []string{}
	for _, r := range c.Reasons {
		list = append(list, r.Text)
	}
	if len(list) == 0 {
		list = append(list, "nothing was looked at")
	}
	return fmt.Errorf("%w: %s: %s", gate.ErrFailed, c.Name, strings.Join(list, "; "))
}

func (c Checks) line() string {
	if !c.OK() {
		return c.Err().Error()
	}
	return strings.Join(c.Done, "; ")
}

// String returns the verdict for people.
func (c Checks) String() string {
	var b strings.Builder
	word := "PASS"
	if !c.OK() {
		word = "FAIL"
	}
	fmt.Fprintf(&b, "%s %s\n", word, c.Name)
	for _, r := range c.Reasons {
		fmt.Fprintf(&b, "  wrong: %s\n", r.Text)
	}
	for _, d := range c.Done {
		fmt.Fprintf(&b, "  holds: %s\n", d)
	}
	return b.String()
}

// MarshalJSON returns the verdict for programs.
func (c Checks) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name    string             `json:"name"`
		OK      bool               `json:"ok"`
		Reasons []gate.Reason      `json:"reasons"`
		Holds   []string           `json:"holds"`
		Figures map[string]float64 `json:"figures"`
	}{c.Name, c.OK(), append([]gate.Reason{}, c.Reasons...), append([]string{}, c.Done...), c.Figures})
}
