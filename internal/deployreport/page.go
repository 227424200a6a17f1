package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill"
)

// report is the page in the making.
type report struct{ markdown.Page }

// deployed is a subject with the state of its workspace.
type deployed struct {
	subject
	state *skill.State
}

func page(ctx context.Context, work, load string, all []subject, models []published.Model, now time.Time) ([]byte,
	error) {
	r := &report{}
	r.Text("# Deployments\n\nWritten by %s on %s, on %s. Wall times of phases are measured there, %s, and say "+
		"how long a deployment takes on such a machine. "+
		"Times of tokens are measured on `cpu`, and on `sim` predicted by the clock of the virtual XDNA 2: no NPU "+
		"was there.\n\n", "`make deploy-report`", now.Format("2 January 2006"), machine(), load)
	var done []deployed
	var missing []string
	for _, s := range all {
		state, err := skill.ReadState(s.folder(work))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, s.name)
			continue
		case err != nil:
			return nil, err
		}
		done = append(done, deployed{s, state})
	}
	wallTimes(r, done, missing)
	reportedFigures(r, done)
	for _, d := range done {
		d.trajectory(r)
	}
	if err := foreseen(ctx, r, models); err != nil {
		return nil, err
	}
	return r.Bytes(), nil
}

// machine names the processor.
func machine() string {
	name := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				name = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s", runtime.NumCPU(), name)
}

// paperHours are the hours that a deployment took in the paper, by an agent and a person; estimated
// ones are marked. Source: Li et al., arXiv 2606.07586, table II.
func paperHours(name string) string {
	hours := map[string]string{"Llama-3.2-3B": "0.5*", "SmolLM2-1.7B": "0.5*", "Qwen2.5-0.5B": "4.0*",
		"Qwen2.5-1.5B": "2.5*", "Qwen2.5-3B": "1.8", "Qwen3-0.6B": "1.5*", "Qwen3-1.7B": "1.5*",
		"Qwen3-4B": "2.1"}[name]
	if hours == "" {
		return "-"
	}
	return hours
}

// wallTimes says how long each phase of each deployment took.
func wallTimes(r *report, done []deployed, missing []string) {
	r.Text("## Wall times\n\nSeconds of each phase, by its number, over all its attempts. The paper's hours are " +
		"those of a whole model on an NPU, with an agent that writes code and a person who steers it (* estimated); " +
		"here a program takes known steps. Models of fewer layers have random weights. The two are not the same " +
		"work.\n\n")
	head := []string{"model", "device", "rows"}
	for i := range skill.Phases() {
		head = append(head, fmt.Sprint(i))
	}
	rows := [][]string{append(head, "all, s", "paper, h", "verdict")}
	for _, d := range done {
		s := d.state
		row := []string{d.model + ", " + d.note, d.device, fmt.Sprint(s.Subject.SeqLen)}
		sum := 0.0
		for _, p := range s.Phases {
			cell := "-"
			if p.Attempts > 0 {
				cell = fmt.Sprintf("%.0f", p.Seconds)
			}
			if p.Status != "passed" && p.Attempts > 0 {
				cell += " (" + string(p.Status) + ")"
			}
			sum += p.Seconds
			row = append(row, cell)
		}
		rows = append(rows, append(row, fmt.Sprintf("%.0f", sum), paperHours(d.model), verdict(s)))
	}
	r.Table(rows)
	if len(missing) > 0 {
		r.Text("Not run: %s.\n\n", strings.Join(missing, ", "))
	}
}

// verdict returns the outcome of a deployment.
func verdict(s *skill.State) string {
	if status := s.PlanStatus(); status != plan.Draft {
		return string(status)
	}
	for _, p := range s.Phases {
		if p.Status == "failed" {
			return "phase " + p.Phase.Title() + " failed: " + cell(p.Reason)
		}
	}
	p, _ := s.Next()
	return "came to phase " + p.Title()
}

// cell makes text fit for a table.
func cell(s string) string {
	if r := []rune(s); len(r) > 160 {
		s = string(r[:160]) + " ..."
	}
	return strings.NewReplacer("|", "/", "\n", " ").Replace(s)
}

// reportedFigures compares the figures of deployments with those of their evaluators.
func reportedFigures(r *report, done []deployed) {
	rows := [][]string{{"model", "device", "first token", "tokens/s", "evaluator's first token", "tokens/s",
		"changes kept"}}
	for _, d := range done {
		m, ok := reported(d.state)
		if !ok {
			continue
		}
		kept := 0
		for _, a := range d.state.Attempts {
			if a.Value.Outcome == skill.Kept {
				kept++
			}
		}
		row := []string{d.model, d.device, duration(m.TTFT), fmt.Sprintf("%.4g", m.TokensPerSec), "-", "-",
			fmt.Sprintf("%d of %d", kept, len(d.state.Attempts))}
		if e := d.state.Evaluation; e != nil && e.Measured != nil {
			row[4], row[5] = duration(e.Measured.TTFT), fmt.Sprintf("%.4g", e.Measured.TokensPerSec)
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return
	}
	r.Text("## Reported figures\n\nMeasured on `cpu`, predicted on `sim`.\n\n")
	r.Table(rows)
}

// trajectory lists the changes that a deployment has measured. Predicted ones are those of
// [foreseen], for smaller models.
func (d deployed) trajectory(r *report) {
	first, ok := d.state.FirstMeasured()
	if !ok || first.Predicted {
		return
	}
	how := ""
	if inTurns(d.state) {
		how = " in turns with the plan before it, so that load and a drifting clock affect both alike"
	}
	r.Text("## Changes to %s on %s\n\n%s; prompt of %d. Each change is measured%s. It is kept if the gates pass and "+
		"it is faster beyond noise, which is large on a busy machine.\n\n", d.model, d.device, capital(d.note),
		first.Positions, how)
	rows := [][]string{{"phase", "change", "outcome", "first token", "a token", "time of the phase"},
		{"-", "first plan", "-", duration(first.TTFT), duration(1 / first.TokensPerSec), ""}}
	for _, a := range d.state.Attempts {
		row := []string{a.Phase.Title(), a.Value.Step, a.Value.Outcome, "-", "-", cell(a.Value.Why)}
		if before, after := a.Value.Before, a.Value.After; before != nil && after != nil {
			row[3], row[4] = duration(after.TTFT), duration(1/after.TokensPerSec)
			row[5] = gain(before.TTFT, after.TTFT)
			if a.Phase == skill.Decode {
				row[5] = gain(1/before.TokensPerSec, 1/after.TokensPerSec)
			}
			if t := a.Value.Turns; t != nil {
				change, noise := t.Percents()
				row[5] = fmt.Sprintf("%s %%, %d turns, noise %s %%", change, t.Count, noise)
			}
		}
		rows = append(rows, row)
	}
	r.Table(rows)
}

// inTurns reports whether a deployment has timed changes in turns.
func inTurns(s *skill.State) bool {
	for _, a := range s.Attempts {
		if a.Value.Turns != nil {
			return true
		}
	}
	return false
}

// reported is the last measurement of the plan that was decided: others, behind it too, are of
// changes that were not kept.
func reported(s *skill.State) (skill.Measurement, bool) {
	if s.Phases[skill.Finalise].Status != "passed" {
		return skill.Measurement{}, false
	}
	for _, m := range slices.Backward(s.Measured) {
		if m.Value.Plan == s.Plan {
			return m.Value, true
		}
	}
	return skill.Measurement{}, false
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// gain says by how much a time has changed.
func gain(before, after float64) string { return fmt.Sprintf("%+.1f %%", 100*(after/before-1)) }

func duration(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	}
	return fmt.Sprintf("%.3g us", 1e6*s)
}

// walked is the optimisation of one model, as foreseen from its config.
type walked struct {
	name  string
	steps []skill.Foreseen
}

// find is a step of a phase, and the time before it.
func (w walked) find(p skill.Phase, name string) (before, after skill.Foreseen, ok bool) {
	before = w.steps[0]
	for _, s := range w.steps[1:] {
		if s.Phase == p && s.Step == name {
			return before, s, true
		}
		if s.Outcome == skill.Kept {
			before = s
		}
	}
	return before, skill.Foreseen{}, false
}

// last is the last step that was kept.
func (w walked) last() skill.Foreseen {
	last := w.steps[0]
	for _, s := range w.steps {
		if s.Outcome == skill.Kept {
			last = s
		}
	}
	return last
}

// foreseen writes what the configs of models let expect of their deployments, and sets it beside
// what was published of the reference.
func foreseen(ctx context.Context, r *report, models []published.Model) error {
	started := time.Now()
	var all []walked
	for _, m := range models {
		f, err := skill.Foresee(ctx, &m.Config, &skill.Options{SeqLen: sequence})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		all = append(all, walked{m.Name, f.Steps})
	}
	r.Text("## The published models from their configs alone\n\nThe decisions of a deployment of the whole model, if "+
		"no gate fails: the steps of the paper, for prefill and then for decode. All times are predicted; the %d "+
		"models took %.1f s. A cell has the time with the step, in brackets if the step is not kept, and = if the "+
		"plan is the same with it. A step is kept if it is faster beyond the clock's error, or no slower and the "+
		"published form.\n\n",
		len(all), time.Since(started).Seconds())
	var steps []string // of both phases
	for _, s := range all[0].steps[1:] {
		if !slices.Contains(steps, s.Step) {
			steps = append(steps, s.Step)
			r.Printf("%d. %s\n", len(steps), s.Step)
		}
	}
	r.Printf("\n")
	foreseenTimes(r, all, steps, skill.Prefill)
	r.Text("The last column is after decode optimisation. Prefill and decode share the hardware contexts that are " +
		"kept open; once decode has so few programs that all fit, a prompt after a generation opens none again.\n\n")
	foreseenTimes(r, all, steps, skill.Decode)
	reconcile(r, all[0])
	return nil
}

// foreseenTimes writes the times of a phase: a row for each model, a column for each step.
func foreseenTimes(r *report, all []walked, steps []string, p skill.Phase) {
	title, head := "Seconds to the first token:", []string{"model", "start"}
	time := func(f skill.Foreseen) string { return fmt.Sprintf("%.3g", f.TTFT) }
	if p == skill.Decode {
		title = "Milliseconds of a token:"
		time = func(f skill.Foreseen) string { return fmt.Sprintf("%.0f", 1e3*f.Token) }
	}
	for i := range steps {
		head = append(head, fmt.Sprint(i+1))
	}
	rows := [][]string{append(head, "end")}
	for _, w := range all {
		begin, _, _ := w.find(p, firstStep(w, p))
		row := []string{w.name, time(begin)}
		for _, s := range steps {
			_, after, ok := w.find(p, s)
			text := time(after)
			switch {
			case !ok || after.TTFT == 0:
				text = "-"
			case after.Outcome == skill.Skipped:
				text = "="
			case after.Outcome != skill.Kept:
				text = "(" + text + ")"
			}
			row = append(row, text)
		}
		rows = append(rows, append(row, time(w.last())))
	}
	r.Text("%s\n\n", title)
	r.Table(rows)
}

// firstStep is the first step of a phase.
func firstStep(w walked, p skill.Phase) string {
	for _, s := range w.steps {
		if s.Phase == p {
			return s.Step
		}
	}
	return ""
}
