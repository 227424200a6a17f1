package skill

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

// documents writes everything in the workspace that is derived from the journal. Files that are there as they should be are left alone.
func (d *Deployment) documents() error {
	s := d.state
	if s.Subject == nil {
		return nil
	}
	errs := []error{
		d.ws.putJSON(FileThresholds, Thresholds()),
		d.writePlan(),
		d.ws.put("plan.md", planPage(s)),
		d.ws.put("progress.md", progressPage(s)),
		d.ws.put("issues.md", issuesPage(s)),
		d.ws.put("lessons.md", lessonsPage(s)),
		d.ws.put("perf_opt_traj.md", trajectoryPage(s)),
		d.ws.putJSON(FileTiming, phaseTiming(s)),
	}
	if len(s.Kernels) > 0 {
		errs = append(errs, d.kernelPages())
	}
	if points := trajectory(s); len(points) > 1 && !d.opts.plain {
		picture, err := drawTrajectory(s, points)
		if err == nil {
			err = d.ws.put("perf_opt_traj.png", picture)
		}
		errs = append(errs, err)
	}
	if p := s.Phases[Finalise]; p.Status == Passed {
		perf, err := d.Performance()
		if err != nil {
			return err
		}
		errs = append(errs, d.ws.putJSON(FilePerformance, perf), d.ws.put("performance.md", performancePage(perf)))
	}
	return first(errs)
}

// first is the first of some errors, with the number of the others: a disk that is full says the same of every file.
func first(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w (and %d files more)", errs[0], len(errs)-1)
}

// writePlan writes the plan with the status that it has come to.
func (d *Deployment) writePlan() error {
	if d.state.Plan == "" {
		return nil
	}
	e := &Env{d: d, recipe: d.state.Recipe}
	p, err := e.planned()
	if err != nil {
		return err
	}
	if p.hash != d.state.Plan {
		return fmt.Errorf("%w: the plan of the journal (%.12s) is not what its recipe makes (%.12s): was it made by another npukit?", ErrJournal, d.state.Plan, p.hash)
	}
	made := *p.plan
	made.Status = d.state.PlanStatus()
	return d.ws.putJSON(FilePlan, &made)
}

// PlanStatus is what the plan has come to: accepted only by an evaluation that passed after everything else had.
func (s *State) PlanStatus() plan.Status {
	switch p := s.Phases[Evaluation]; {
	case p.Status == Passed:
		return plan.Accepted
	case p.Status == Failed:
		return plan.Failed
	}
	return plan.Draft
}

// kernelPages writes a page for each kind of op, and the rows of the array's kernels as a registry that [xdna2.Registry] reads.
func (d *Deployment) kernelPages() error {
	var errs []error
	pages := map[string]*strings.Builder{}
	var order []string
	registry := xdna2.PublishedRegistry()
	for _, k := range d.state.Kernels {
		b := pages[k.Kind]
		if b == nil {
			b = &strings.Builder{}
			pages[k.Kind] = b
			order = append(order, k.Kind)
		}
		kernelSection(b, k)
		if k.Row != nil {
			row := *k.Row
			row.Kernel = k.Family
			errs = append(errs, registry.Add(row))
		}
	}
	for _, kind := range order {
		head := fmt.Sprintf("# %s\n", kind)
		if d.info.Array != "" {
			head += "\n" + kernelRationale(kind) + "\n"
		}
		errs = append(errs, d.ws.put(folderKernels+"/"+strings.ToLower(kind)+".md", []byte(head+pages[kind].String())))
	}
	if len(registry.Added()) > 0 {
		errs = append(errs, d.ws.putJSON(FileKernels, registry))
	}
	return first(errs)
}

// PhaseTiming is how long a phase took.
type PhaseTiming struct {
	Phase    Phase   `json:"phase"`
	Status   Status  `json:"status"`
	Attempts int     `json:"attempts"`
	Start    string  `json:"start,omitempty"`
	End      string  `json:"end,omitempty"`
	WallMin  float64 `json:"wall_min"` // worked, over all attempts; the time in which nothing ran is not in it
	Gates    float64 `json:"gates_s"`  // of that, in gates of the present attempt
}

func phaseTiming(s *State) []PhaseTiming {
	const layout = "2006-01-02T15:04:05Z"
	list := []PhaseTiming{}
	for _, p := range s.Phases {
		t := PhaseTiming{Phase: p.Phase, Status: p.Status, Attempts: p.Attempts, WallMin: math.Round(p.Seconds/60*1e4) / 1e4}
		if !p.Started.IsZero() {
			t.Start = p.Started.Format(layout)
		}
		if !p.Ended.IsZero() {
			t.End = p.Ended.Format(layout)
		}
		for _, g := range p.Gates {
			t.Gates += g.Seconds
		}
		list = append(list, t)
	}
	return list
}
