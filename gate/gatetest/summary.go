package gatetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/npukit/npukit/gate"
)

// Summary is the outcome of a conformance suite.
type Summary struct {
	Device  string
	Results []CaseResult // in the order of the suite
	LeftOut int          // cases of several sessions at once, which the device does not take
}

// wrong is a case whose result is wrong or whose run failed.
type wrong struct {
	Case   string `json:"case"`
	Op     string `json:"op"`
	Reason string `json:"reason"`
}

// refusals counts the refused cases of an op, either those that the options allow or the others.
type refusals struct {
	Op      string `json:"op"`
	Cases   int    `json:"cases"`
	Of      int    `json:"of"`      // cases of the op that were tried
	Allowed string `json:"allowed"` // why that is all right; "" for a failure
	First   string `json:"first"`   // the first case
	Reason  string `json:"reason"`  // the device's reason for it
}

// verdict is a summary in the order in which it is read.
type verdict struct {
	Device   string     `json:"device"`
	OK       bool       `json:"ok"`
	Passed   int        `json:"passed"`
	Refused  int        `json:"refused"` // as allowed
	Failed   int        `json:"failed"`
	LeftOut  int        `json:"left_out"`
	Wrong    []wrong    `json:"wrong"`
	Refusals []refusals `json:"refusals"`
}

// reason returns the failure of a case that is not OK and was not refused.
func (r *CaseResult) reason() string {
	if r.Err != nil {
		return r.Err.Error()
	}
	var list []string
	for _, reason := range r.Report.Reasons {
		list = append(list, reason.Text)
	}
	return strings.Join(list, "; ")
}

// verdict groups the results. Refusals that are not allowed come before those that are.
func (s Summary) verdict() verdict {
	v := verdict{Device: s.Device, LeftOut: s.LeftOut, Wrong: []wrong{}, Refusals: []refusals{}}
	type key struct{ op, allowed string }
	groups, tried := map[key]*refusals{}, map[string]int{}
	var failures, allowed []*refusals
	for i := range s.Results {
		r := &s.Results[i]
		kind := r.Op.Kind()
		tried[kind]++
		switch {
		case r.Refused != nil:
			g := groups[key{kind, r.Allowed}]
			if g == nil {
				g = &refusals{Op: kind, Allowed: r.Allowed, First: r.Name, Reason: r.Refused.Err.Error()}
				groups[key{kind, r.Allowed}] = g
				if r.Allowed == "" {
					failures = append(failures, g)
				} else {
					allowed = append(allowed, g)
				}
			}
			g.Cases++
			if r.Allowed == "" {
				v.Failed++
			} else {
				v.Refused++
			}
		case r.ok():
			v.Passed++
		default:
			v.Failed++
			v.Wrong = append(v.Wrong, wrong{r.Name, kind, r.reason()})
		}
	}
	for _, g := range append(failures, allowed...) {
		g.Of = tried[g.Op]
		v.Refusals = append(v.Refusals, *g)
	}
	v.OK = v.Failed == 0 && v.Passed > 0
	return v
}

// maxShown bounds the wrong cases in a text: enough to see a pattern.
const maxShown = 20

// String returns the counts, then the wrong results, then the refusals by op.
func (v verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d cases failed, %d passed, %d refused as allowed", v.Device, v.Failed,
		v.Passed,
		v.Refused)
	if v.LeftOut > 0 {
		fmt.Fprintf(&b, ", %d of several sessions not run", v.LeftOut)
	}
	if v.Failed == 0 && v.Passed == 0 {
		b.WriteString("\n  nothing was compared")
	}
	for i, w := range v.Wrong {
		if i == maxShown {
			fmt.Fprintf(&b, "\n  and %d more wrong results", len(v.Wrong)-i)
			break
		}
		fmt.Fprintf(&b, "\n  wrong: %s: %s", w.Case, w.Reason)
	}
	for _, g := range v.Refusals {
		how := "refused, and not allowed to"
		if g.Allowed != "" {
			how = "refused as allowed (" + g.Allowed + ")"
		}
		fmt.Fprintf(&b, "\n  %s: %d of %d cases %s, first %s: %s", g.Op, g.Cases, g.Of, how, g.First,
			g.Reason)
	}
	return b.String()
}

// Err returns nil if at least one case was compared and every case is right or allowed to be
// refused, and otherwise an error with the text of s that wraps [gate.ErrFailed].
func (s Summary) Err() error {
	if v := s.verdict(); !v.OK {
		return fmt.Errorf("%w: %v", gate.ErrFailed, v)
	}
	return nil
}

// String returns the summary for people: counts, then wrong results, then refusals by op.
func (s Summary) String() string { return s.verdict().String() }

// MarshalJSON writes the summary for programs, without the reports of cases that passed.
func (s Summary) MarshalJSON() ([]byte, error) { return json.Marshal(s.verdict()) }
