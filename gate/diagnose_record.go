package gate

import (
	"fmt"
	"math"
	"slices"
)

// TapFunc receives the output of an op under the name of its launch. Taps of packages model and
// oracle have this form.
type TapFunc = func(name string, shape []int, values []float32) error

// Recording stores the outputs of a device's taps along a sequence, for comparison with a reference.
// Passes follow one another: the rows of a prompt, then those of each step, are appended per tap.
// The zero Recording is empty and ready to use; it attributes no error to rounding. See
// [NewRecording].
type Recording struct {
	noise noise
	taps  map[string][]call
}

// NewRecording returns an empty Recording of a device with a number format, and reports whether the
// rounding errors of that format are known. Formats are those of [FormatThresholds],
// "cpu-bf16-expanded" with products that round quantized weights to BF16, and "cpu-bf16-blocks"
// with products that quantize activations for them.
func NewRecording(format string) (*Recording, bool) {
	n, ok := noiseOf(format)
	return &Recording{noise: n}, ok
}

// call is the output of one call of the tap.
type call struct {
	rows, width int // 0 for three dimensions or more
	values      []float32
}

// Tap records an output. Pass it to the device as its tap.
func (r *Recording) Tap(name string, shape []int, values []float32) error {
	if r.taps == nil {
		r.taps = map[string][]call{}
	}
	s := call{values: slices.Clone(values)}
	switch {
	case len(shape) == 1:
		s.rows, s.width = 1, len(values)
	case len(shape) == 2 && shape[0] > 0 && len(values)%shape[0] == 0:
		s.rows, s.width = shape[0], len(values)/shape[0]
	}
	r.taps[name] = append(r.taps[name], s)
	return nil
}

// matrix returns a tap's rows, cut to width: elements beyond it are padding. It reports false if
// the rows cannot be those of the reference: a different number, narrower, or another order of
// dimensions.
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

// Own is the error of one op: the device's output compared with the reference's for the device's
// own inputs.
type Own struct {
	Metrics Metrics
	OK      bool    // the error is within the bounds of the number format, or unknown
	Scale   float64 // mean of got/want over the elements that are not small; 1 is right
	// Residual is the share of the error that remains after dividing by Scale; near 0 if all is
	// scaled.
	Residual float64
	Rows     []float64 // mean relative L1 by row, that is, by position
	Columns  []float64 // mean absolute error by column, relative to the mean of the reference

	// Steps is the first row that was computed in a pass of its own, as in decode; the number of
	// rows if none was.
	Steps int
	// With lists the ops without a tap between the device's inputs and this output: the error may
	// be theirs.
	With []string
	// Inputs reports whether the device's inputs were finite. If not, nothing else is known.
	Inputs bool

	bounds bounds // of the number format
}

// Trace compares the recording with a reference, op by op in the order of the reference. Forward
// must run the reference over all ids that the device saw and pass each output to the tap. It is
// called twice. The first pass runs undisturbed: the difference at each tap is the accumulated
// error. In the second pass the tap overwrites each output with the device's, so the next op
// computes from the device's own inputs and the difference is the error of that op alone:
// [Tap.Own].
//
//	trace, err := rec.Trace(func(tap gate.TapFunc) error {
//		return m.Forward(ctx, m.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
//	})
//
// Taps that the device does not have are left out, and so are outputs with another layout than the
// reference's, which [Trace.Skipped] lists.
func (r *Recording) Trace(forward func(tap TapFunc) error) (Trace, error) {
	var t Trace
	if forward == nil {
		return t, badInput("forward", "the function is nil: it must run the reference over the "+
			"recorded ids")
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
		return observe(&t, name, got, values, width)
	})
	switch {
	case err != nil:
		return t, err
	case len(t.Taps) == 0 && len(t.Skipped) > 0:
		return t, badInput("forward", "none of the device's %d outputs has the reference's rows: were "+
			"both run over "+
			"the same ids?", len(t.Skipped))
	case len(t.Taps) == 0:
		return t, badInput("Recording", "no output has a name of the reference: was the device opened "+
			"with a tap?")
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
			return badInput("forward", "the two passes differ: tap %s was not there the first time", name)
		}
		own, err := r.noise.own(name, got, values, width)
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

// stepsOf returns the row at which the trailing passes of one row begin.
func stepsOf(calls []call) int {
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

// rowsOf returns the shape of the reference's output as a matrix.
func rowsOf(shape []int, values []float32) (rows, width int) {
	if len(shape) == 0 || shape[0] <= 0 {
		return 1, len(values)
	}
	return shape[0], len(values) / shape[0]
}

// own compares an op's output with the reference's output for the same inputs.
func (n noise) own(name string, got, want []float32, width int) (*Own, error) {
	// Inputs that are not finite give results that are not.
	if slices.ContainsFunc(want,
		func(v float32) bool { return !(math.Abs(float64(v)) <= math.MaxFloat32) }) {
		return &Own{OK: true}, nil
	}
	limits := n.of(name, got)
	c := &comparison{tol: Tolerance{Rtol: limits.Rtol}, all: &perRow{}}
	if err := run(c, got, want, width); err != nil {
		return nil, err
	}
	o := &Own{
		Metrics: c.report().Metrics, Rows: c.all.l1, Columns: make([]float64, width),
		Inputs: true, bounds: limits,
	}
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
		if math.Abs(e) >= mean && e != 0 { // small elements are mostly noise
			ratios, count = ratios+g/e, count+1
		}
	}
	if o.Scale = 1; count > 0 {
		o.Scale = ratios / float64(count)
	}
	off, residual := 0.0, 0.0
	for i, e := range want {
		if g := float64(got[i]); !math.IsNaN(g) && !math.IsInf(g, 0) {
			off += math.Abs(g - float64(e))
			residual += math.Abs(g - o.Scale*float64(e))
		}
	}
	o.Residual = residual / (off + tiny)
	for i := range o.Columns {
		o.Columns[i] /= float64(len(want)/width) * (mean + tiny)
	}
	o.OK = limits.hold(o)
	return o, nil
}
