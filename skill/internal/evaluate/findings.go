package evaluate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/journal"
)

// findings are the results of an evaluation so far.
type findings struct {
	report journal.EvaluationReport
	notes  *notes // nil if none are kept
	unread error  // of the first file that exists and could not be read

	observe     func(text string, done, total int)
	done, total int // gates
}

// longestDetail is enough for the reasons of a gate, and too little for every op of a model.
const longestDetail = 1200

// hold adds a check to the report. It keeps only the beginning of a long detail.
func (f *findings) hold(name string, ok bool, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if r := []rune(detail); len(r) > longestDetail {
		detail = string(r[:longestDetail]) + " ..."
	}
	f.report.Checks = append(f.report.Checks, journal.EvaluationCheck{Name: name, OK: ok, Detail: detail})
	word := "holds: "
	if !ok {
		word = "does not hold: "
	}
	f.step("%s %s%s", name, word, detail)
}

// refused reports whether a check has failed.
func (f *findings) refused() bool {
	return slices.ContainsFunc(f.report.Checks, func(c journal.EvaluationCheck) bool { return !c.OK })
}

func (f *findings) step(format string, args ...any) {
	if f.observe != nil {
		f.observe(fmt.Sprintf(format, args...), f.done, f.total)
	}
}

// cannot adds a check that fails because something could not be done. If that has nothing to do
// with the deployment, cannot returns the error instead.
func (f *findings) cannot(err error, name, format string, args ...any) error {
	if cannotWork(err) {
		return fmt.Errorf(undecided+"%s: %w", name, err)
	}
	f.hold(name, false, format+": %v", append(args, err)...)
	return nil
}

// cannotWork reports whether an error is about the evaluator's own work and not about the
// deployment: files that cannot be reached, a folder that cannot be written, a device that other
// processes have taken.
func cannotWork(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	var errno syscall.Errno
	return errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &errno) || journal.IsStorage(err) ||
		errors.Is(err, npu.ErrMemory) || errors.Is(err, npu.ErrNoContext)
}

// once runs a step of the evaluation, and notes its checks if all of them pass. It does not run a
// step that is noted already: it adds the noted checks. Count is the result of run.
func (f *findings) once(step string, run func() (count int, err error)) (int, error) {
	if f.notes == nil {
		return run()
	}
	if n, ok := f.notes.kept[step]; ok {
		for _, c := range n.Checks {
			f.hold(c.Name, c.OK, "%s (found at %s, before this evaluation was interrupted)", c.Detail,
				n.Time.Format(time.RFC3339))
		}
		return n.Count, nil
	}
	from := len(f.report.Checks)
	count, err := run()
	if err != nil || f.refused() || f.unread != nil {
		return count, err
	}
	n := note{Step: step, Time: time.Now().UTC().Truncate(time.Second), Checks: f.report.Checks[from:], Count: count}
	if err := f.notes.add(n); err != nil {
		f.step("an evaluation that is interrupted will begin anew: %v", err)
		err = f.notes.close(true)
		f.notes = nil
		if err != nil {
			f.step("%v", err)
		}
	}
	return count, nil
}
