package xdna2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// ResourceError reports that the array cannot run a launch or a program, or would silently compute
// wrong results. It has the violated rule, the demand, the limit, and changes that would fit.
type ResourceError struct {
	Rule      string   // ID of the rule; see Rules
	Program   string   // "" for a single launch
	Launch    string   // "" if the error concerns the whole program
	What      string   // description of the failure
	Wanted    int64    // demand; 0 for rules that are not about quantities
	Available int64    // limit; with Step the next lower multiple, or the first
	Step      int64    // if not 0, Wanted must be a multiple of Step
	Unit      string   // "bytes", "words", "columns"
	Advice    []string // alternatives that would fit, never empty
}

func (e *ResourceError) Error() string {
	var b strings.Builder
	b.WriteString("xdna2: ")
	if e.Program != "" {
		fmt.Fprintf(&b, "program %s: ", e.Program)
	}
	if e.Launch != "" {
		fmt.Fprintf(&b, "launch %q: ", e.Launch)
	}
	b.WriteString(e.What)
	switch {
	case e.Step > 0 && e.Available < e.Wanted:
		fmt.Fprintf(&b, ": nearest are %d and %d", e.Available, e.Available+e.Step)
	case e.Step > 0:
		fmt.Fprintf(&b, ": smallest is %d", e.Available)
	case e.Unit != "":
		fmt.Fprintf(&b, ": %d %s, limit %d", e.Wanted, e.Unit, e.Available)
	}
	fmt.Fprintf(&b, " (%s)", e.Rule)
	if len(e.Advice) > 0 {
		fmt.Fprintf(&b, "\n  what would fit: %s", strings.Join(e.Advice, "; or: "))
	}
	return b.String()
}

// Check returns an error if p cannot run on the array: one or several joined [*ResourceError], or
// the error of Program.Validate. A nil array means NPU2().
func Check(p *npu.Program, a *Array) error {
	list, err := violations(p, a)
	if err != nil {
		return err
	}
	return join(list)
}

// violations returns every violation of a program: launch by launch, then of the program as a
// whole. It returns an error if the program is invalid on any device.
func violations(p *npu.Program, a *Array) ([]*ResourceError, error) {
	a = a.orNPU2()
	if err := p.Err(); err != nil {
		return nil, err
	}
	l, err := link(p, a)
	if err != nil {
		return nil, fmt.Errorf("xdna2: program %s: %w", p.Name, err)
	}
	var list []*ResourceError
	for i, pl := range l.places {
		for _, e := range pl.explain(rules()) {
			e.Program, e.Launch = p.Name, p.Launches[i].Name
			list = append(list, e)
		}
	}
	if len(l.places) == 0 {
		return list, nil
	}
	for _, r := range rules() {
		if r.program == nil {
			continue
		}
		v := r.program(l)
		if !v.failed {
			continue
		}
		e := v.asError(r.ID)
		e.Program = p.Name
		if v.launch >= 0 {
			e.Launch = p.Launches[v.launch].Name
		}
		e.Advice = []string{programAdvice(r.ID, l, v)}
		list = append(list, e)
	}
	return list, nil
}

// CheckLaunch returns an error if a single launch cannot run on the array. Types are those of the
// op's operands in order, or nil if unknown. It cannot check conditions on whole programs, such as
// which launches share an ELF; use [Check] for those. A nil array means NPU2().
func CheckLaunch(o op.Op, types []dtype.Type, m npu.Mapping, a *Array) error {
	p, err := newPlace(a.orNPU2(), o, types, m)
	if err != nil {
		return err
	}
	return join(p.explain(rules()))
}

// Fits reports whether CheckLaunch would return nil. It is faster because it does not search for
// advice, for planners that try many mappings. A nil array means NPU2().
func Fits(o op.Op, types []dtype.Type, m npu.Mapping, a *Array) bool {
	p, err := newPlace(a.orNPU2(), o, types, m)
	return err == nil && p.fits(rules())
}

// CheckContexts returns an error if the array cannot hold contexts for that many programs at once.
// They still run, but contexts are reopened on every turn, so the programs of one phase should fit.
// A nil array means NPU2().
func CheckContexts(programs int, a *Array) error {
	a = a.orNPU2()
	v := atMost(programs, a.Contexts, "contexts", "programs that run in turns")
	if !v.failed {
		return nil
	}
	e := v.asError("R-ELF-6")
	e.Advice = []string{
		"merge programs until they are no more",
		"run them one phase at a time: contexts are reopened between phases, and buffers outlive contexts",
	}
	return e
}

// violationList is the joined error of one launch or program, one error per line. Advice that the
// next error repeats is printed once.
type violationList []*ResourceError

func (list violationList) Error() string {
	var lines []string
	for i, e := range list {
		if i+1 < len(list) && e.Launch == list[i+1].Launch && slices.Equal(e.Advice, list[i+1].Advice) {
			short := *e
			short.Advice = nil
			e = &short
		}
		lines = append(lines, e.Error())
	}
	return strings.Join(lines, "\n")
}

func (list violationList) Unwrap() []error {
	errs := make([]error, len(list))
	for i, e := range list {
		errs[i] = e
	}
	return errs
}

func join(list []*ResourceError) error {
	if len(list) == 0 {
		return nil
	}
	return violationList(list)
}

func (v verdict) asError(id string) *ResourceError {
	return &ResourceError{Rule: id, What: v.what, Wanted: v.wanted, Available: v.available, Step: v.step, Unit: v.unit}
}

// fits reports whether no rule on single launches fails.
func (p *place) fits(known []rule) bool {
	if p.malformed() {
		return false
	}
	for i := range known {
		if r := &known[i]; r.launch != nil && r.launch(p).failed {
			return false
		}
	}
	return true
}

// malformed reports whether the mapping has numbers that rules cannot compute with.
func (p *place) malformed() bool { return checkMapping(p).failed }

// failing returns the failing rules on single launches. If the mapping is malformed, only rules
// that ignore it are applied.
func (p *place) failing(known []rule) (ids []int, verdicts []verdict) {
	malformed := p.malformed()
	for i := range known {
		r := &known[i]
		if r.launch == nil || malformed && !ignoresMapping(r.ID) {
			continue
		}
		if v := r.launch(p); v.failed {
			ids, verdicts = append(ids, i), append(verdicts, v)
		}
	}
	return ids, verdicts
}

// ignoresMapping reports whether a rule looks at the op alone, or only at whether there is a
// mapping.
func ignoresMapping(id string) bool {
	return strings.HasPrefix(id, "R-KER-") || id == "R-MAP-1" || id == "R-DMA-4"
}

// explain returns the launch's violations with advice.
func (p *place) explain(known []rule) []*ResourceError {
	ids, verdicts := p.failing(known)
	if len(ids) == 0 {
		return nil
	}
	tiles := p.suggest(known)
	var list []*ResourceError
	for i, v := range verdicts {
		r := known[ids[i]]
		e := v.asError(r.ID)
		e.Advice = append(e.Advice, tiles...)
		if r.advice != nil && (len(tiles) == 0 || ignoresMapping(r.ID)) {
			if s := r.advice(p); s != "" {
				e.Advice = append(e.Advice, s)
			}
		}
		list = append(list, e)
	}
	var resized []string
	for _, e := range list {
		if len(e.Advice) == 0 {
			if resized == nil {
				resized = p.resized(known)
			}
			e.Advice = resized
		}
	}
	return list
}
