package gate

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// Report is the result of a comparison.
type Report struct {
	Verdict
	Tolerance Tolerance
	Metrics   Metrics
	Worst     []Worst // the elements with the largest errors, worst first, at most 8
	WorstRows []Row   // the rows with the largest mean relative L1, worst first, at most 8

	// Sample has pairs at regular intervals, for plots.
	Sample struct{ Got, Want []float64 }
}

// Worst is an element with a large error.
type Worst struct {
	Index, Row, Column int
	Got, Want          float64
	Abs, Rel           float64 // |got-want|, and that over |want|; infinite if got is not finite
}

// Row has the metrics of one row.
type Row struct {
	Index             int
	MeanRelL1, MaxAbs float64
	Cosine            float64 // NaN for a reference of zeros
	NonFinite         int
}

// String returns the report as a table: verdict, reasons, metrics with their bounds, and where it
// is worst.
func (r Report) String() string {
	var b strings.Builder
	r.head(&b)
	m, t := r.Metrics, r.Tolerance
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, value, bound string) { fmt.Fprintf(w, "  %s\t%s\t%s\n", name, value, bound) }
	at := func(word string, bound float64, format string) string {
		if bound == 0 {
			return ""
		}
		return fmt.Sprintf("%s "+format, word, bound)
	}
	most := func(v float64) string { return at("at most", v, "%.4g") }
	least := func(v float64) string { return at("at least", v, "%.7g") }
	line("elements", fmt.Sprintf("%d (%d rows of %d)", m.Count, m.Rows, m.Width), "")
	line("non-finite", fmt.Sprint(m.NonFinite), "none")
	if t.Note != "" && t.Mismatches < 1 {
		line("outside bound", fmt.Sprintf("%d (%.3g %%)", m.MismatchCount, 100*m.Mismatches),
			fmt.Sprintf("at most %.3g %% outside %g + %g*|want|", 100*t.Mismatches, t.Atol, t.Rtol))
	}
	line(metricMaxAbs, fmt.Sprintf("%.4g", m.MaxAbs), most(t.MaxAbs))
	line(metricMaxRel, fmt.Sprintf("%.4g", m.MaxRel), most(t.MaxRel))
	line(MeanRelL1, fmt.Sprintf("%.4g", m.MeanRelL1), most(t.MeanRelL1))
	line(metricRelL2, fmt.Sprintf("%.4g", m.RelL2), most(t.RelL2))
	line(metricPeak, fmt.Sprintf("%.4g", m.Peak), most(t.Peak))
	line(metricWorstRow, fmt.Sprintf("%.4g", m.MaxRowL1), most(t.MaxRowL1))
	line(metricPearson, fmt.Sprintf("%.7g", m.Pearson), least(t.Pearson))
	line(metricCosine, fmt.Sprintf("%.7g", m.Cosine), least(t.Cosine))
	line(metricWorstCosine, fmt.Sprintf("%.7g", m.MinRowCosine), least(t.MinRowCosine))
	line(metricSQNR, fmt.Sprintf("%.1f dB", m.SQNR), at("at least", t.SQNR, "%.1f dB"))
	flush(w)
	if t.Note != "" {
		fmt.Fprintf(&b, "  tolerance: %s\n", t.Note)
	}
	if len(r.Worst) > 0 {
		fmt.Fprintf(&b, "  worst elements\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "    row\tcolumn\tgot\twant\terror\n")
		for _, e := range r.Worst {
			fmt.Fprintf(w, "    %d\t%d\t%.7g\t%.7g\t%.3g\n", e.Row, e.Column, e.Got, e.Want, e.Abs)
		}
		flush(w)
	}
	if len(r.WorstRows) > 0 && m.Rows > 1 {
		fmt.Fprintf(&b, "  worst rows\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "    row\tmean rel L1\tmax abs\tcosine\tnon-finite\n")
		for _, row := range r.WorstRows {
			fmt.Fprintf(w, "    %d\t%.4g\t%.4g\t%.7g\t%d\n",
				row.Index, row.MeanRelL1, row.MaxAbs, row.Cosine, row.NonFinite)
		}
		flush(w)
	}
	return trimLines(b.String())
}

// trimLines removes the trailing blanks of a table.
func trimLines(table string) string {
	lines := strings.Split(table, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// flush ends a table that is written to a strings.Builder, which never fails.
func flush(w *tabwriter.Writer) { _ = w.Flush() }

// MarshalJSON encodes the report for programs. NaN and infinities are null, or strings where the
// difference matters.
func (r Report) MarshalJSON() ([]byte, error) {
	type element struct {
		Index  int      `json:"index"`
		Row    int      `json:"row"`
		Column int      `json:"column"`
		Got    any      `json:"got"`
		Want   float64  `json:"want"`
		Abs    *float64 `json:"abs"`
	}
	type row struct {
		Index     int      `json:"row"`
		MeanRelL1 float64  `json:"mean_rel_l1"`
		MaxAbs    float64  `json:"max_abs"`
		Cosine    *float64 `json:"cosine"`
		NonFinite int      `json:"non_finite"`
	}
	worst := make([]element, len(r.Worst))
	for i, w := range r.Worst {
		worst[i] = element{w.Index, w.Row, w.Column, w.Got, w.Want, number(w.Abs)}
		if math.IsNaN(w.Got) || math.IsInf(w.Got, 0) {
			worst[i].Got = fmt.Sprint(w.Got)
		}
	}
	rows := make([]row, len(r.WorstRows))
	for i, w := range r.WorstRows {
		rows[i] = row{w.Index, w.MeanRelL1, w.MaxAbs, number(w.Cosine), w.NonFinite}
	}
	return json.Marshal(struct {
		Name      string    `json:"name,omitempty"`
		OK        bool      `json:"ok"`
		Reasons   []Reason  `json:"reasons"`
		Metrics   Metrics   `json:"metrics"`
		Tolerance Tolerance `json:"tolerance"`
		Worst     []element `json:"worst"`
		WorstRows []row     `json:"worst_rows"`
	}{r.Name, r.OK(), append([]Reason{}, r.Reasons...), r.Metrics, r.Tolerance, worst, rows})
}
