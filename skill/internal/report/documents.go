// Package report writes the pages, plots and figures of a workspace. All are derived from the
// journal.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Write writes everything in a workspace that is derived from the journal, except the plan. Files
// that have the right content are not touched. Array reports whether the device is an array, and
// plain leaves out the plots. PlanErr is the error of writing the plan, or nil; Write counts it as
// one of the files that failed.
func Write(ws *workspace.Workspace, s *journal.State, array, plain bool, planErr error) error {
	errs := []error{
		planErr,
		ws.PutJSON(workspace.FileThresholds, gates.Thresholds()),
		ws.Put("plan.md", Plan(s)),
		ws.Put("progress.md", Progress(s)),
		ws.Put("issues.md", Issues(s)),
		ws.Put("lessons.md", Lessons(s)),
		ws.Put("perf_opt_traj.md", Trajectory(s)),
		ws.PutJSON(workspace.FileTiming, Timing(s)),
	}
	if len(s.Kernels) > 0 {
		errs = append(errs, writeKernels(ws, s.Kernels, array))
	}
	if points := trajectory(s); len(points) > 1 && !plain {
		plot, err := drawTrajectory(s, points)
		if err == nil {
			err = ws.Put("perf_opt_traj.png", plot)
		}
		errs = append(errs, err)
	}
	if p := s.Phases[journal.Finalise]; p.Status == journal.Passed {
		perf, err := PerformanceOf(s)
		if err == nil {
			errs = append(errs, ws.PutJSON(workspace.FilePerformance, perf),
				ws.Put("performance.md", PerformancePage(perf)))
		}
		errs = append(errs, err)
	}
	return first(errs)
}

// first returns the first error that is not nil, with the number of the others: a full disk fails
// every file in the same way.
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

// writeKernels writes a page for each kind of op, and the rows of an array's kernels as a registry
// that [xdna2.Registry] reads.
func writeKernels(ws *workspace.Workspace, list []journal.KernelNote, array bool) error {
	var errs []error
	pages := map[string]*strings.Builder{}
	var order []string
	registry, measured := xdna2.PublishedRegistry(), false
	for _, k := range list {
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
			measured = true
		}
	}
	for _, kind := range order {
		head := fmt.Sprintf("# %s\n", kind)
		if array {
			head += "\n" + kernelRationale(kind) + "\n"
		}
		name := workspace.FolderKernels + "/" + strings.ToLower(kind) + ".md"
		errs = append(errs, ws.Put(name, []byte(head+pages[kind].String())))
	}
	if measured {
		errs = append(errs, ws.PutJSON(workspace.FileKernels, registry))
	}
	return first(errs)
}

// PhaseTiming is how long a phase took.
type PhaseTiming struct {
	Phase    journal.Phase  `json:"phase"`
	Status   journal.Status `json:"status"`
	Attempts int            `json:"attempts"`
	Start    string         `json:"start,omitempty"`
	End      string         `json:"end,omitempty"`
	WallMin  float64        `json:"wall_min"` // worked, over all attempts; the time in which nothing ran is not in it
	Gates    float64        `json:"gates_s"`  // of that, in gates of the present attempt
}

// Timing returns how long each phase took.
func Timing(s *journal.State) []PhaseTiming {
	const layout = "2006-01-02T15:04:05Z"
	list := []PhaseTiming{}
	for _, p := range s.Phases {
		t := PhaseTiming{Phase: p.Phase, Status: p.Status, Attempts: p.Attempts,
			WallMin: math.Round(p.Seconds/60*1e4) / 1e4}
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
