package gate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Diagnosis says where a device goes wrong, and what usually causes that.
type Diagnosis struct {
	Name     string
	Taps     int       // looked at
	Checked  bool      // each op was checked on its own ([Tap.Own]); else only drift was known, and one place can be named at most
	Skipped  []string  // outputs that could not be compared
	Findings []Finding // in the order of execution: the first is the first op to go wrong
}

// Finding is an op that computes something else than it should.
type Finding struct {
	Tap    string   `json:"tap"`    // the first launch of it that is wrong: "layer.0.attn.q_rope"
	Kind   string   `json:"kind"`   // "attn.q_rope"
	Layers []int    `json:"layers"` // the layers in which it is wrong; empty outside layers
	Of     int      `json:"of"`     // layers in which it was looked at
	With   []string `json:"with"`   // ops that the device does not show and whose error this may be
	Where  []string `json:"where"`  // the pattern, in words: layers, positions, columns, scale
	Cause  string   `json:"cause"`  // what usually looks like this

	Error    float64 `json:"error"`    // mean relative L1 of the first wrong launch; its own where that is known
	Explains float64 `json:"explains"` // how much of that the number format explains
}

// jump is by how much the error of a tap must exceed all before it to be called one, where only drift is known: rounding adds up gradually, the
// largest step seen on right devices is the product of two branches in ffn.act, a factor of 2.
const jump = 8

// drifted is the drift that no format of a right device has reached; below it nothing is blamed.
const drifted = 0.1

// Diagnose finds the ops that are wrong in a trace.
//
// Errors propagate, so that everything after the first wrong op is wrong too. The op to blame is the one whose output is wrong although its
// inputs were right. Where the trace says what each op got wrong on its own ([Recording.Trace]), these are exactly the ones beyond the bounds of
// the number format, and several independent ones are told apart; the same op in several layers is one finding. Otherwise the first tap is
// named whose error jumps above all before it.
func Diagnose(t Trace) Diagnosis {
	d := Diagnosis{Name: t.Name, Taps: len(t.Taps), Skipped: t.Skipped}
	for _, tap := range t.Taps {
		d.Checked = d.Checked || tap.Own != nil
	}
	if !d.Checked {
		d.byDrift(t)
		return d
	}
	byKind := map[string]*Finding{}
	var order []string
	looked := map[string]int{}
	first := map[string]Tap{}
	for _, tap := range t.Taps {
		kind := tapKind(tap.Name)
		looked[kind]++
		if tap.Own == nil || tap.Own.OK {
			continue
		}
		f := byKind[kind]
		if f == nil {
			f = &Finding{Tap: tap.Name, Kind: kind, With: tap.Own.With, Error: tap.Own.Metrics.MeanRelL1, Explains: tap.Own.Bounds.L1}
			byKind[kind], first[kind] = f, tap
			order = append(order, kind)
		}
		if tap.Layer >= 0 {
			f.Layers = append(f.Layers, tap.Layer)
		}
	}
	for _, kind := range order {
		f := byKind[kind]
		f.Of = looked[kind]
		f.explain(first[kind], order)
		d.Findings = append(d.Findings, *f)
	}
	return d
}

// byDrift names the first tap whose error jumps.
func (d *Diagnosis) byDrift(t Trace) {
	before := 0.0
	for _, tap := range t.Taps {
		drift := tap.Metrics.MeanRelL1
		if tap.Metrics.NonFinite > 0 || drift > drifted && drift > jump*before {
			f := Finding{Tap: tap.Name, Kind: tapKind(tap.Name), Of: 1, Error: drift, Explains: before}
			if tap.Layer >= 0 {
				f.Layers = []int{tap.Layer}
			}
			f.Where = wherePositions(tap.RowL1, drifted, len(tap.RowL1), tap.Metrics.NonFinite)
			f.Cause = causeOf(f.Kind, f.Where, nil)
			d.Findings = append(d.Findings, f)
			return
		}
		before = max(before, drift)
	}
}

// OK reports whether nothing wrong was found; it needs taps to have been looked at.
func (d Diagnosis) OK() bool { return len(d.Findings) == 0 && d.Taps > 0 }

// String is the diagnosis for people.
func (d Diagnosis) String() string {
	var b strings.Builder
	head := "no op is wrong"
	if len(d.Findings) > 0 {
		head = "the first op that goes wrong is " + d.Findings[0].Tap
	}
	if d.Taps == 0 {
		head = "nothing was looked at"
	}
	if d.Name != "" {
		head = d.Name + ": " + head
	}
	how := "by its drift from the reference, which shows the first place only"
	if d.Checked {
		how = "each against what the reference makes of the device's own inputs"
	}
	fmt.Fprintf(&b, "%s\n  %d outputs looked at, %s\n", head, d.Taps, how)
	if len(d.Skipped) > 0 {
		fmt.Fprintf(&b, "  %d more lie in memory in another way and were not compared, the first is %s\n", len(d.Skipped), d.Skipped[0])
	}
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%s\n  error %.3g where the number format explains %.2g\n", f.Tap, f.Error, f.Explains)
		for _, w := range f.Where {
			fmt.Fprintf(&b, "  %s\n", w)
		}
		if len(f.With) > 0 {
			fmt.Fprintf(&b, "  it may be an op before it that the device does not show: %s\n", strings.Join(f.With, ", "))
		}
		fmt.Fprintf(&b, "  usual cause: %s\n", f.Cause)
	}
	return b.String()
}

// MarshalJSON writes the diagnosis for programs.
func (d Diagnosis) MarshalJSON() ([]byte, error) {
	first := ""
	if len(d.Findings) > 0 {
		first = d.Findings[0].Tap
	}
	findings := slices.Clone(d.Findings)
	for i, f := range findings {
		findings[i].Layers, findings[i].With, findings[i].Where = append([]int{}, f.Layers...), append([]string{}, f.With...), append([]string{}, f.Where...)
	}
	return json.Marshal(struct {
		Name     string    `json:"name,omitempty"`
		OK       bool      `json:"ok"`
		First    string    `json:"first"`
		Taps     int       `json:"taps"`
		Checked  bool      `json:"checked"`
		Skipped  []string  `json:"skipped"`
		Findings []Finding `json:"findings"`
	}{d.Name, d.OK(), first, d.Taps, d.Checked, append([]string{}, d.Skipped...), append([]Finding{}, findings...)})
}
