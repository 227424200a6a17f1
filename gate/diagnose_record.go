package gate

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// TapFunc sees the output of an op under the name of its launch. It is the form that the taps of model and of oracle have.
type TapFunc = func(name string, shape []int, values []float32) error

// Recording keeps what a device's taps show along a sequence, so that it can be compared with a reference. Passes follow one another: the rows of
// a prompt, then those of each step, are put behind what the same tap has shown before. The zero Recording is empty and ready.
type Recording struct {
	Noise Noise // of the device's number format

	taps map[string][]shown
}

// shown is what one call of the tap showed: rows of so many elements, or something that is no matrix.
type shown struct {
	rows, width int // 0 for an array of three dimensions or more
	values      []float32
}

// Tap records; it is the tap for the device.
func (r *Recording) Tap(name string, shape []int, values []float32) error {
	if r.taps == nil {
		r.taps = map[string][]shown{}
	}
	s := shown{values: slices.Clone(values)}
	switch {
	case len(shape) == 1:
		s.rows, s.width = 1, len(values)
	case len(shape) == 2 && shape[0] > 0 && len(values)%shape[0] == 0:
		s.rows, s.width = shape[0], len(values)/shape[0]
	}
	r.taps[name] = append(r.taps[name], s)
	return nil
}

// matrix puts together what a tap has shown as rows of a width. What a device has beyond that is the padding of its tiles and left out. It reports false
// where the rows cannot be those of the reference: another number of them, narrower ones, or dimensions in another order.
func (r *Recording) matrix(name string, rows, width int) ([]float32, bool) {
	m := make([]float32, 0, rows*width)
	for _, s := range r.taps[name] {
		if s.width < width || width == 0 {
			return nil, false
		}
		for i := range s.rows {
			m = append(m, s.values[i*s.width:][:width]...)
		}
	}
	return m, len(m) == rows*width
}

// Own is the error of one op: the device's output against what the reference computes from the device's own inputs.
type Own struct {
	Metrics Metrics
	Bounds  Bounds    // what the number format explains
	OK      bool      // the error is within the bounds, or nothing can be said of it
	Scale   float64   // mean of got/want over the elements that are not small: 1 is right
	Beside  float64   // share of the error that is left when the output is divided by Scale: near 0, everything is scaled
	Rows    []float64 // mean relative L1 by row, which is by position
	Columns []float64 // mean absolute error by column, over the mean of the whole reference

	// Steps is the row from which on each was computed in a pass of its own, as in decoding; the number of rows when none was.
	Steps int
	// With are ops that lie between the device's inputs and this output and that the device does not show: the error may be theirs.
	With []string
	// Inputs reports whether the device's inputs were finite. Where they were not, nothing else is known.
	Inputs bool
}

// Trace compares what was recorded with a reference, op by op in the order in which the reference computes. Forward runs the reference over all
// the ids that the device saw and shows each output to the tap; it is called twice. The first pass goes its own way, and the difference at
// each tap is all that has gone wrong up to it. In the second pass the tap overwrites each output with the device's, so that the next op
// computes from the device's own inputs, and the difference at each tap is the error of that one op: [Tap.Own].
//
//	trace, err := rec.Trace(func(tap gate.TapFunc) error {
//		return m.Forward(ctx, m.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
//	})
//
// Taps that the device does not have are left out, and so are those whose rows lie in another way than the reference's; [Trace.Skipped] lists the latter.
func (r *Recording) Trace(forward func(tap TapFunc) error) (Trace, error) {
	var t Trace
	if forward == nil {
		return t, badInput("forward", "the function is nil: it must run the reference over the recorded ids")
	}
	err := forward(func(name string, shape []int, values []float32) error {
		if r.taps[name] == nil {
			return nil
		}
		rows, width := rowsOf(shape, values)
		got, ok := r.matrix(name, rows, width)
		if !ok {
			t.Skipped = append(t.Skipped, name)
			return nil
		}
		return Observe(&t, name, got, values, width)
	})
	switch {
	case err != nil:
		return t, err
	case len(t.Taps) == 0 && len(t.Skipped) > 0:
		return t, fmt.Errorf("gate: none of the device's %d outputs has the rows that the reference has: were both run over the same ids?", len(t.Skipped))
	case len(t.Taps) == 0:
		return t, errors.New("gate: the device has shown no output under a name that the reference knows: was it opened with a tap?")
	}
	next := 0
	var with []string
	err = forward(func(name string, shape []int, values []float32) error {
		if r.taps[name] == nil || slices.Contains(t.Skipped, name) {
			with = append(with, name)
			return nil
		}
		rows, width := rowsOf(shape, values)
		got, ok := r.matrix(name, rows, width)
		if !ok || next == len(t.Taps) || t.Taps[next].Name != name {
			return fmt.Errorf("gate: the reference's passes are not the same: tap %s is another one the second time", name)
		}
		own, err := r.Noise.own(name, got, values, width)
		if err != nil {
			return fmt.Errorf("%w (tap %s)", err, name)
		}
		own.With, with = with, nil
		own.Steps = stepsOf(r.taps[name])
		t.Taps[next].Own = own
		next++
		copy(values, got)
		return nil
	})
	return t, err
}

// stepsOf finds where the passes of one row begin that end a recording.
func stepsOf(calls []shown) int {
	n, single := 0, 0
	for _, c := range calls {
		if n += c.rows; c.rows == 1 {
			single++
		} else {
			single = 0
		}
	}
	return n - single
}

// rowsOf is the shape of the reference's output as a matrix.
func rowsOf(shape []int, values []float32) (rows, width int) {
	if len(shape) == 0 || shape[0] <= 0 {
		return 1, len(values)
	}
	return shape[0], len(values) / shape[0]
}

// own compares an op's output with what it should have made of its inputs.
func (n Noise) own(name string, got, want []float32, width int) (*Own, error) {
	// What the reference makes of inputs that are not finite is not finite as a rule.
	if slices.ContainsFunc(want, func(v float32) bool { x := float64(v); return math.IsNaN(x) || math.IsInf(x, 0) }) {
		return &Own{OK: true}, nil
	}
	bounds := n.of(name, got)
	c := &comparison{tol: Tolerance{Rtol: bounds.Rtol}, all: &everyRow{}}
	if err := run(c, got, want, width); err != nil {
		return nil, err
	}
	o := &Own{Metrics: c.report().Metrics, Bounds: bounds, Rows: c.all.l1, Columns: make([]float64, width), Inputs: true}
	sum := 0.0
	for _, e := range want {
		sum += math.Abs(float64(e))
	}
	mean := sum / float64(len(want))
	ratios, count := 0.0, 0
	for i, e := range want {
		g, e := float64(got[i]), float64(e)
		if math.IsNaN(g) || math.IsInf(g, 0) {
			continue
		}
		o.Columns[i%width] += math.Abs(g - e)
		if math.Abs(e) >= mean && e != 0 { // small ones are all noise, and the largest must not outweigh all others
			ratios, count = ratios+g/e, count+1
		}
	}
	if o.Scale = 1; count > 0 {
		o.Scale = ratios / float64(count)
	}
	off, beside := 0.0, 0.0
	for i, e := range want {
		if g := float64(got[i]); !math.IsNaN(g) && !math.IsInf(g, 0) {
			off, beside = off+math.Abs(g-float64(e)), beside+math.Abs(g-o.Scale*float64(e))
		}
	}
	o.Beside = beside / (off + tiny)
	for i := range o.Columns {
		o.Columns[i] /= float64(len(want)/width) * (mean + tiny)
	}
	o.OK = bounds.explain(o)
	return o, nil
}
