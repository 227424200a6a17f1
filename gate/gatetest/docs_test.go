package gatetest_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

var update = flag.Bool("update", false, "write docs/gates.md")

// docs is the data of the page.
type docs struct {
	Cases                         int
	Overrun                       string
	Software                      []toleranceRow
	Published                     []toleranceRow
	SoftwareNotes, PublishedNotes []string
	Formats                       []gate.Thresholds
	Adversaries                   []adversaryRow
}

type toleranceRow struct {
	Op, Out                   string
	Atol, Rtol, L1, Row, Peak string
}

type adversaryRow struct {
	Name, Does                                               string
	Software, Published, Logits, Greedy, Determinism, Cosine string
}

// judged are the ops that compute something, in the order of the page.
var judged = []op.Op{
	op.MatMul{M: 64, K: 2048, N: 2048, TransB: true}, op.MatMul{M: 1, K: 2048, N: 2048,
		TransB: true}, op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5},
	op.LayerNorm{Rows: 64, Width: 2048, Eps: 1e-5}, op.RoPE{Rows: 64, Heads: 32,
		HeadDim: 64}, op.Attention{Rows: 64, Heads: 32, KVHeads: 8, HeadDim: 64},
	op.SiLUMul{Rows: 64, Width: 8192}, op.GELU{Rows: 64, Width: 8192, Tanh: true}, op.Add{Rows: 64,
		Width: 2048},
}

// docs/gates.md is up to date with the code and with a run of the adversaries.
func TestDocsSayWhatTheGatesDo(t *testing.T) {
	if raced {
		t.Skip("under the race detector: the same adversaries run in the tests of the gates")
	}
	d := docs{Cases: len(gatetest.Cases(false)), Overrun: "written beyond the end"}
	number := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	note := func(list *[]string, name, text string) {
		if text = name + ": " + text; !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for _, o := range judged {
		name := o.Kind()
		if m, ok := o.(op.MatMul); ok && m.M == 1 {
			name += " of one row"
		} else {
			for _, out := range []dtype.Type{dtype.F32, dtype.BF16} {
				tol, ok := gatetest.Software(o, out)
				if !ok {
					t.Fatalf("no tolerance for %s", name)
				}
				d.Software = append(d.Software, toleranceRow{Op: name, Out: out.String(),
					L1: number(tol.MeanRelL1), Row: number(tol.MaxRowL1),
					Peak: number(tol.Peak), Rtol: number(tol.Rtol)})
				if out == dtype.F32 {
					note(&d.SoftwareNotes, name, tol.Note)
				}
			}
		}
		tol, ok := gate.Published(o)
		if !ok {
			t.Fatalf("nothing published for %s", name)
		}
		d.Published = append(d.Published, toleranceRow{Op: name, Atol: number(tol.Atol),
			Rtol: number(tol.Rtol), L1: number(tol.MeanRelL1)})
		note(&d.PublishedNotes, name, tol.Note)
	}
	for _, name := range []string{"cpu-bf16", "cpu-f32", "cpu-f32-expanded", "npu"} {
		th, ok := gate.FormatThresholds(name)
		if !ok {
			t.Fatalf("no thresholds for %s", name)
		}
		d.Formats = append(d.Formats, th)
	}
	d.Adversaries = adversaryRows(t)

	text, err := os.ReadFile(filepath.Join("testdata", "gates.md.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := template.New("gates").Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var filled strings.Builder
	if err := page.Execute(&filled, d); err != nil {
		t.Fatal(err)
	}
	want := bytes.NewBufferString(markdown.Fit(filled.String()))
	path := filepath.Join(testenv.Root(), "docs", "gates.md")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		old, now := strings.Split(string(got), "\n"), strings.Split(want.String(), "\n")
		for i := range max(len(old), len(now)) {
			if i >= len(old) || i >= len(now) || old[i] != now[i] {
				t.Fatalf("docs/gates.md differs from line %d on: run this test with -update, and read what "+
					"has changed\nis:    %s\nwould: %s", i+1,
					strings.Join(old[min(i, len(old)):min(i+1, len(old))],
						""), strings.Join(now[min(i, len(now)):min(i+1, len(now))], ""))
			}
		}
	}
}

// adversaryRows runs the adversaries under all gates.
func adversaryRows(t *testing.T) []adversaryRow {
	dev := open(t, "go")
	// metrics of an adversary under a gate: those that every one of its kernels failed by.
	collect := func(list []gatetest.Caught, err error) map[string]map[string][]string {
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]map[string][]string{}
		for _, c := range list {
			name := c.Adversary.Name
			if by[name] == nil {
				by[name] = map[string][]string{}
			}
			now := slices.Compact(c.Metrics())
			if before, ok := by[name][c.Gate]; ok {
				now = slices.DeleteFunc(now, func(m string) bool { return !slices.Contains(before, m) })
			}
			by[name][c.Gate] = now
		}
		return by
	}
	kernels, err := gatetest.CatchByKernels(t.Context(), dev, nil)
	software := collect(kernels, err)
	cosine := map[string]string{}
	for _, c := range kernels {
		name := c.Adversary.Name
		if m := c.Report.Metrics; m.Cosine >= 0.99 {
			cosine[name] = "passes"
		} else if cosine[name] == "" {
			cosine[name] = "fails"
		}
	}
	published := collect(gatetest.CatchByKernels(t.Context(), dev,
		&gatetest.Options{Tolerances: gatetest.Published}))
	models := collect(gatetest.CatchByModel(t.Context(), dev, tiny(t, dtype.BF16)))

	var rows []adversaryRow
	for _, a := range gatetest.Adversaries() {
		cell := func(by map[string]map[string][]string, name string) string {
			metrics, tried := by[a.Name][name]
			text := strings.Join(metrics, ", ")
			switch {
			case !tried:
				return "—"
			case text == "":
				return "passes"
			case a.Meant[name] != "":
				return "**" + text + "**"
			}
			return text
		}
		c := cosine[a.Name]
		if c == "" {
			c = "—"
		}
		rows = append(rows, adversaryRow{Name: a.Name, Does: a.Does,
			Software: cell(software, gatetest.GateKernel), Published: cell(published, gatetest.GateKernel),
			Logits: cell(models, gatetest.GateLogits), Greedy: cell(models,
				gatetest.GateGreedy), Determinism: cell(models, gatetest.GateDeterminism), Cosine: c})
	}
	return rows
}
