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

// deployed is what the workspace of a subject says.
type deployed struct {
	subject
	state *skill.State
}

func page(ctx context.Context, work, load string, all []subject, models []published.Model, now time.Time) ([]byte,
	error) {
	r := &report{}
	r.Printf("# Deployments\n\nWritten by %s on %s, on %s. Wall times of phases are measured there, %s, and say "+
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
	hours := map[string]string{"Llama-3.2-3B": "0.5 (estimated)", "SmolLM2-1.7B": "0.5 (estimated)",
		"Qwen2.5-0.5B": "4.0 (estimated)", "Qwen2.5-1.5B": "2.5 (estimated)",
		"Qwen2.5-3B": "1.8", "Qwen3-0.6B": "1.5 (estimated)", "Qwen3-1.7B": "1.5 (estimated)", "Qwen3-4B": "2.1"}[name]
	if hours == "" {
		return "-"
	}
	return hours
}

// wallTimes says how long each phase of each deployment took.
func wallTimes(r *report, done []deployed, missing []string) {
	r.Printf("## Wall times\n\nSeconds of each phase, over all its attempts. The paper's hours are those of a " +
		"whole model, of all layers, on an NPU, with an agent that writes code and a person who " +
		"steers it; here a program walks known steps, of fewer layers where that is said. The two are not of the " +
		"same work.\n\n")
	head := []string{"model", "device", "positions"}
	for _, p := range skill.Phases() {
		head = append(head, p.Title())
	}
	rows := [][]string{append(head, "together, s", "the paper's hours", "verdict")}
	for _, d := range done {
		s := d.state
		row := []string{d.model + ", " + d.note, d.device, fmt.Sprint(s.Subject.SeqLen)}
		sum := 0.0
		for _, p := range s.Phases {
			cell := "-"
			if p.Attempts > 0 {
				cell = fmt.Sprintf("%.0f", p.Seconds)
			}
			if p.Status != skill.Passed && p.Attempts > 0 {
				cell += " (" + string(p.Status) + ")"
			}
			sum += p.Seconds
			row = append(row, cell)
		}
		rows = append(rows, append(row, fmt.Sprintf("%.0f", sum), paperHours(d.model), verdict(s)))
	}
	r.Table(rows)
	if len(missing) > 0 {
		r.Printf("Not run: %s.\n\n", strings.Join(missing, ", "))
	}
}

// verdict is what has come of a deployment.
func verdict(s *skill.State) string {
	if status := s.PlanStatus(); status != plan.Draft {
		return string(status)
	}
	for _, p := range s.Phases {
		if p.Status == skill.Failed {
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

// trajectory lists what a deployment has tried.
func (d deployed) trajectory(r *report) {
	first, ok := d.state.FirstMeasured()
	if !ok {
		return
	}
	how := "predicted, not measured"
	if !first.Predicted {
		how = "measured"
		if inTurns(d.state) {
			how += ", each change in turns with the plan before it, so that load and a clock that drifts " +
				"strike both alike"
		}
	}
	r.Printf("## %s on %s\n\n%s; prompt of %d, %s. A change is kept when the gates pass and it is faster beyond "+
		"noise, which is much where other work is on the machine.\n\n", d.model, d.device, capital(d.note),
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
				row[5] = fmt.Sprintf("%s -> %s, %s %%, %d turns, noise %s %%", duration(t.Before), duration(t.After),
					change, t.Count, noise)
			}
		}
		rows = append(rows, row)
	}
	r.Table(rows)
	var figures []string
	if m, ok := reported(d.state); ok {
		figures = append(figures, fmt.Sprintf("Reported: first token %s, %.4g tokens/s.", duration(m.TTFT),
			m.TokensPerSec))
	}
	if e := d.state.Evaluation; e != nil && e.Measured != nil {
		figures = append(figures, fmt.Sprintf("The evaluator's own figures: first token %s, %.4g tokens/s.",
			duration(e.Measured.TTFT), e.Measured.TokensPerSec))
	}
	if len(figures) > 0 {
		r.Printf("%s\n\n", strings.Join(figures, " "))
	}
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
	if s.Phases[skill.Finalise].Status != skill.Passed {
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

// afterwards is the time to the first token at the end of decode optimisation, against that at the
// end of prefill optimisation.
func (w walked) afterwards() string {
	before, _, _ := w.find(skill.Decode, firstStep(w, skill.Decode))
	last := w.last()
	if last.TTFT == before.TTFT {
		return "(the same)"
	}
	return duration(last.TTFT) + ", " + gain(before.TTFT, last.TTFT)
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
	r.Printf("## The published models from their configs alone\n\nWhat a deployment of the whole model would "+
		"decide, if no gate fails: the ten steps of the paper, for prefill and then for decode, each kept when "+
		"the clock says that it is faster. All times are predicted; walking the %d took %.1f s. A cell has the "+
		"time with the step and what it gains; brackets mean that the step is not kept.\n\n",
		len(all), time.Since(started).Seconds())
	for _, p := range []skill.Phase{skill.Prefill, skill.Decode} {
		time := func(f skill.Foreseen) float64 { return f.TTFT }
		title := "Time to the first token"
		if p == skill.Decode {
			time, title = func(f skill.Foreseen) float64 { return f.Token }, "Time of a token"
		}
		head, first := []string{"step"}, []string{"first plan of the phase"}
		for _, w := range all {
			head = append(head, w.name)
			begin, _, _ := w.find(p, firstStep(w, p))
			first = append(first, duration(time(begin)))
		}
		rows := [][]string{head, first}
		for _, s := range all[0].steps {
			if s.Phase != p {
				continue
			}
			row := []string{s.Step}
			for _, w := range all {
				before, after, ok := w.find(p, s.Step)
				text := "-"
				switch {
				case !ok:
				case after.TTFT == 0:
					text = "(refused)"
				case after.Outcome == skill.Skipped:
					text = "(the same)"
				default:
					text = duration(time(after)) + ", " + gain(time(before), time(after))
					if after.Outcome != skill.Kept {
						text = "(" + text + ")"
					}
				}
				row = append(row, text)
			}
			rows = append(rows, row)
		}
		r.Printf("%s:\n\n", title)
		if p == skill.Prefill {
			row := []string{"once decode is tuned too"}
			for _, w := range all {
				row = append(row, w.afterwards())
			}
			rows = append(rows, row)
		}
		r.Table(rows)
		if p == skill.Prefill {
			r.Printf("The last row is behind the changes of the next table. Programs of prefill and of decode " +
				"share the hardware contexts that are kept alive; once decode has so few programs that all fit, a " +
				"prompt behind a " +
				"generation need not open its contexts again, and the first token comes sooner.\n\n")
		}
	}
	reconcile(r, all[0])
	return nil
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
