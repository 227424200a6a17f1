package gate

import (
	"fmt"
	"strings"
)

// Diagnosis names the ops that a device computes wrongly, and the usual causes.
type Diagnosis struct {
	Name  string `json:"name,omitempty"`
	Clean bool   `json:"ok"`    // taps were compared, and nothing wrong was found
	First string `json:"first"` // the first wrong tap; "" if there are no findings
	Taps  int    `json:"taps"`  // compared
	// Checked reports whether each op was checked on its own ([Tap.Own]). Otherwise only drift was
	// known, and at most one finding is possible.
	Checked  bool      `json:"checked"`
	Skipped  []string  `json:"skipped"`  // outputs that could not be compared
	Findings []Finding `json:"findings"` // in order of execution
}

// Finding is an op that computes wrong results.
type Finding struct {
	Tap    string   `json:"tap"`    // its first wrong launch: "layer.0.attn.q_rope"
	Kind   string   `json:"kind"`   // "attn.q_rope"
	Layers []int    `json:"layers"` // the layers in which it is wrong; empty outside layers
	Of     int      `json:"of"`     // layers in which it was compared
	With   []string `json:"with"`   // ops without a tap whose error this may be
	Where  []string `json:"where"`  // the pattern in words: layers, positions, columns, scale
	Cause  string   `json:"cause"`  // the usual cause of this pattern

	Error    float64 `json:"error"`    // mean relative L1 of the first wrong launch; its own if known
	Explains float64 `json:"explains"` // the part that the number format explains
}

// driftFactor is the factor by which a tap's error must exceed all before it to be a finding, if
// only drift is known. Rounding adds up gradually; the largest step on correct devices, the product
// of two branches in ffn.act, is a factor of 2.
const driftFactor = 8

// driftFloor is above the drift of every format on a correct device.
const driftFloor = 0.1

// Diagnose finds the ops that are wrong in a trace.
//
// Errors propagate: everything after the first wrong op is wrong too. The op to find is the one
// whose output is wrong although its inputs were right. If the trace has each op's own error
// ([Recording.Trace]), these are exactly the ops beyond the bounds of the number format, and
// independent faults are separated; the same op in several layers is one finding. Otherwise the
// only finding is the first tap whose error jumps above all before it.
func Diagnose(t Trace) Diagnosis {
	d := Diagnosis{
		Name: t.Name, Taps: len(t.Taps), Skipped: append([]string{}, t.Skipped...), Findings: []Finding{},
	}
	for _, tap := range t.Taps {
		d.Checked = d.Checked || tap.Own != nil
	}
	if d.Checked {
		d.byOp(t)
	} else {
		d.byDrift(t)
	}
	d.Clean = len(d.Findings) == 0 && d.Taps > 0
	for i := range d.Findings {
		f := &d.Findings[i]
		d.First = d.Findings[0].Tap
		// JSON has empty lists, not null.
		f.Layers, f.With = append([]int{}, f.Layers...), append([]string{}, f.With...)
		f.Where = append([]string{}, f.Where...)
	}
	return d
}

// byOp finds the ops whose own error exceeds the bounds of the number format.
func (d *Diagnosis) byOp(t Trace) {
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
			f = &Finding{
				Tap: tap.Name, Kind: kind, With: tap.Own.With,
				Error: tap.Own.Metrics.MeanRelL1, Explains: tap.Own.bounds.L1,
			}
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
}

// byDrift finds the first tap whose error jumps.
func (d *Diagnosis) byDrift(t Trace) {
	before := 0.0
	for _, tap := range t.Taps {
		drift := tap.Metrics.MeanRelL1
		if tap.Metrics.NonFinite > 0 || drift > driftFloor && drift > driftFactor*before {
			f := Finding{Tap: tap.Name, Kind: tapKind(tap.Name), Of: 1, Error: drift, Explains: before}
			if tap.Layer >= 0 {
				f.Layers = []int{tap.Layer}
			}
			f.Where = wherePositions(tap.RowL1, driftFloor, len(tap.RowL1), tap.Metrics.NonFinite)
			f.Cause = causeOf(f.Kind, f.Where, nil)
			d.Findings = append(d.Findings, f)
			return
		}
		before = max(before, drift)
	}
}

// String returns the diagnosis for people.
func (d Diagnosis) String() string {
	var b strings.Builder
	head := "no op is wrong"
	if len(d.Findings) > 0 {
		head = "the first op that goes wrong is " + d.Findings[0].Tap
	}
	if d.Taps == 0 {
		head = "nothing was compared"
	}
	if d.Name != "" {
		head = d.Name + ": " + head
	}
	how := "by drift from the reference, which locates the first fault only"
	if d.Checked {
		how = "each with what the reference computes from the device's own inputs"
	}
	fmt.Fprintf(&b, "%s\n  %d outputs compared, %s\n", head, d.Taps, how)
	if len(d.Skipped) > 0 {
		fmt.Fprintf(&b, "  %d more have another layout and were not compared, the first is %s\n",
			len(d.Skipped), d.Skipped[0])
	}
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%s\n  error %.3g where the number format explains %.2g\n", f.Tap, f.Error,
			f.Explains)
		for _, w := range f.Where {
			fmt.Fprintf(&b, "  %s\n", w)
		}
		if len(f.With) > 0 {
			fmt.Fprintf(&b, "  or an op before it that has no tap: %s\n", strings.Join(f.With, ", "))
		}
		fmt.Fprintf(&b, "  usual cause: %s\n", f.Cause)
	}
	return b.String()
}
