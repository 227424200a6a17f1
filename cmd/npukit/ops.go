package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/op"
)

// opRow is a group of launches of one program with the same op and shapes.
type opRow struct {
	Phase    string   `json:"phase"`
	Op       string   `json:"op"`
	Shapes   string   `json:"shapes"`
	On       string   `json:"on"` // the device, or "host"
	Program  string   `json:"program"`
	Launches []string `json:"launches"` // names within the program
	Count    int      `json:"count"`    // launches in one pass of the phase
}

// opRows lists the ops of a phase in order of first execution, followed by the host's own work.
func opRows(phase string, p *plan.Plan, pass plan.Pass) []opRow {
	index := map[string]int{}
	var rows []opRow
	for _, s := range slices.Concat(pass.Steps, pass.Head) {
		on := p.Device
		if s.On == plan.OnHost {
			on = s.On
		}
		for _, l := range p.Program(s.Program).Launches {
			key := strings.Join([]string{l.Op.Kind(), shapes(l.Op), on, s.Program}, "|")
			i, ok := index[key]
			if !ok {
				i = len(rows)
				index[key] = i
				rows = append(rows, opRow{Phase: phase, Op: l.Op.Kind(), Shapes: shapes(l.Op), On: on,
					Program: s.Program})
			}
			rows[i].Count++
			if !slices.Contains(rows[i].Launches, l.Name) {
				rows[i].Launches = append(rows[i].Launches, l.Name)
			}
		}
	}
	return append(rows,
		opRow{Phase: phase, Op: "rotations", Shapes: fmt.Sprintf("-> [rows %d]", p.Model.HeadDim), On: "host",
			Launches: []string{"rope"}, Count: 1},
		opRow{Phase: phase, Op: "sampling", Shapes: fmt.Sprintf("[picks %d] -> id", p.Model.Vocab), On: "host",
			Launches: []string{"sample"}, Count: 1})
}

// shapes formats the operands of an op: [rows 576] [1536 576] -> [rows 1536].
func shapes(o op.Op) string {
	var read, written []string
	for _, x := range o.Operands() {
		s := op.ShapeString(x.Shape)
		if x.Read {
			read = append(read, s)
		}
		if x.Write {
			written = append(written, s)
		}
	}
	return strings.Join(read, " ") + " -> " + strings.Join(written, " ")
}

// printOps prints the table of ops, once for both phases if they are equal.
func (o *modelInfo) printOps(w io.Writer) error {
	byPhase := map[string][][]string{}
	for _, r := range o.Ops {
		byPhase[r.Phase] = append(byPhase[r.Phase], []string{r.Op, r.Shapes, r.On, r.Program, fmt.Sprint(r.Count),
			strings.Join(r.Launches, " ")})
	}
	phases := []string{"prefill", "decode"}
	titles := []string{"Prefill, a pass for each chunk of the prompt", "Decode, a pass for each token"}
	same := func(a, b []string) bool { return slices.Equal(a, b) }
	if slices.EqualFunc(byPhase["prefill"], byPhase["decode"], same) {
		phases, titles = phases[:1], []string{"Prefill (a pass for each chunk of the prompt) and decode (a pass of " +
			"one row for each token)"}
	}
	for i, phase := range phases {
		if _, err := fmt.Fprintf(w, "\n%s\n", titles[i]); err != nil {
			return err
		}
		rows := append([][]string{{"OP", "READS -> WRITES", "ON", "PROGRAM", "COUNT", "LAUNCHES"}}, byPhase[phase]...)
		if err := output.Table(w, "  ", rows); err != nil {
			return err
		}
	}
	return nil
}
