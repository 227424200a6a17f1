package gate

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Trace compares the outputs along a forward pass, tap by tap, to find where an error starts. It
// has no verdict: the residual stream of a correct device drifts from layer to layer too. Taps
// are in the order in which they were added. The zero Trace is empty and ready to use.
type Trace struct {
	Name    string
	Taps    []Tap
	Skipped []string // outputs whose layout differs from the reference's, which were not compared
}

// Tap is the comparison of one output.
type Tap struct {
	Name    string // "layer.3.attn.q_rope"
	Layer   int    // 3; -1 if the name does not begin with a layer
	Metrics Metrics
	Cosine  []float64 // by row, that is, by position; NaN if the reference is zeros
	RowL1   []float64 // mean relative L1 by row

	// Own is the error of this op alone; nil if unknown. See
	// [Recording.Trace].
	Own *Own
}

// observe adds a tap: got and want are both [rows, width], one row per position. It returns the
// errors of [Check].
func observe[G, W Element](t *Trace, name string, got []G, want []W, width int) error {
	if t == nil {
		return badInput("t", "the Trace is nil")
	}
	c, err := compareAll(got, want, width)
	if err != nil {
		return fmt.Errorf("%w (tap %s)", err, name)
	}
	t.Taps = append(t.Taps, Tap{
		Name: name, Layer: layerOf(name), Metrics: c.report().Metrics, Cosine: c.all.cosine, RowL1: c.all.l1,
	})
	return nil
}

// layerOf returns N for "layer.N" and "layer.N.rest", and -1 otherwise.
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "layer.")
	if !ok {
		return -1
	}
	number, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// worstPosition returns the row with the smallest cosine, and that cosine; -1 and NaN if no row has
// one.
func (t Tap) worstPosition() (int, float64) {
	at, low := -1, math.NaN()
	for i, c := range t.Cosine {
		if c == c && !(c >= low) {
			at, low = i, c
		}
	}
	return at, low
}

// String returns a table of the taps: error, cosine and worst position.
func (t Trace) String() string {
	var b strings.Builder
	if t.Name != "" {
		fmt.Fprintf(&b, "%s\n", t.Name)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  tap\tmean rel L1\tmax abs\tcosine\tworst position\tnon-finite\n")
	for _, tap := range t.Taps {
		at, low := tap.worstPosition()
		m := tap.Metrics
		fmt.Fprintf(w, "  %s\t%.3g\t%.3g\t%.6f\t%d (%.6f)\t%d\n",
			tap.Name, m.MeanRelL1, m.MaxAbs, m.Cosine, at, low, m.NonFinite)
	}
	flush(w)
	return b.String()
}

// MarshalJSON encodes the taps with their metrics and, by position, cosines and errors.
func (t Trace) MarshalJSON() ([]byte, error) {
	type tap struct {
		Name    string     `json:"name"`
		Layer   int        `json:"layer"`
		Metrics Metrics    `json:"metrics"`
		Cosine  []*float64 `json:"cosine"`
		RowL1   []*float64 `json:"row_l1"`
	}
	taps := make([]tap, len(t.Taps))
	for i, x := range t.Taps {
		taps[i] = tap{x.Name, x.Layer, x.Metrics, numbers(x.Cosine), numbers(x.RowL1)}
	}
	return json.Marshal(struct {
		Name    string   `json:"name,omitempty"`
		Taps    []tap    `json:"taps"`
		Skipped []string `json:"skipped"`
	}{t.Name, taps, append([]string{}, t.Skipped...)})
}
