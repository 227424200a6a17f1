package xdna2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// ResourceError says that the array cannot run a launch or a program, or would run it wrong: which rule forbids it, how much was wanted
// and how much there is, and what would fit.
type ResourceError struct {
	Rule      string   // id of the rule, see Rules
	Program   string   // "" for a launch by itself
	Launch    string   // "" where it is about the whole program
	What      string   // what was counted
	Wanted    int64    // 0 for rules that are not about more or less: What then has both sides
	Available int64    // the most that there is; of a Step the multiple below Wanted, or the first
	Step      int64    // where Wanted must be a multiple: of what; else 0
	Unit      string   // "bytes", "words", "columns"
	Advice    []string // what would fit: each by itself, and never empty
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
		fmt.Fprintf(&b, ": %d %s, available are %d and %d", e.Wanted, e.Unit, e.Available, e.Available+e.Step)
	case e.Step > 0:
		fmt.Fprintf(&b, ": %d %s, the least is %d", e.Wanted, e.Unit, e.Available)
	case e.Unit != "":
		fmt.Fprintf(&b, ": %d %s, there are %d", e.Wanted, e.Unit, e.Available)
	}
	fmt.Fprintf(&b, " (%s)", e.Rule)
	if len(e.Advice) > 0 {
		fmt.Fprintf(&b, "\n  what would fit: %s", strings.Join(e.Advice, "; or: "))
	}
	return b.String()
}

// Check reports a program that cannot be placed on the array. Its error is one or several [*ResourceError], joined; or what
// Program.Validate says.
func Check(p *npu.Program, a *Array) error {
	list, err := Violations(p, a)
	if err != nil {
		return err
	}
	return join(list)
}

// Violations lists everything about a program that the array cannot do: launch by launch, then the program as a whole. Its error is about
// a program that makes no sense on any device. A nil array means NPU2(), here and in Check, CheckLaunch and Fits.
func Violations(p *npu.Program, a *Array) ([]*ResourceError, error) {
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

// CheckLaunch reports a launch that cannot be placed on the array by itself: types are those of the op's operands in order, nil where
// they are not known. What only shows in a program, such as which launches share an ELF, is for [Check] to say.
func CheckLaunch(o op.Op, types []dtype.Type, m npu.Mapping, a *Array) error {
	p, err := newPlace(a.orNPU2(), o, types, m)
	if err != nil {
		return err
	}
	return join(p.explain(rules()))
}

// Fits reports whether CheckLaunch would find nothing. It is for planners that try many mappings: it looks for no advice.
func Fits(o op.Op, types []dtype.Type, m npu.Mapping, a *Array) bool {
	p, err := newPlace(a.orNPU2(), o, types, m)
	return err == nil && p.fits(rules())
}

// refusals are several errors about one launch or program, each on lines of its own. Advice that the next one gives too is said once.
type refusals []*ResourceError

func (list refusals) Error() string {
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

func (list refusals) Unwrap() []error {
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
	return refusals(list)
}

func (v verdict) asError(id string) *ResourceError {
	return &ResourceError{Rule: id, What: v.what, Wanted: v.wanted, Available: v.available, Step: v.step, Unit: v.unit}
}

// fits reports whether no rule of single launches fails.
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

// malformed reports a mapping whose numbers cannot be trusted in sums.
func (p *place) malformed() bool { return stating(p).failed }

// failing lists the rules of single launches that fail. A mapping that does not state what it must is not judged further.
func (p *place) failing(known []rule) (ids []int, verdicts []verdict) {
	malformed := p.malformed()
	for i := range known {
		r := &known[i]
		if r.launch == nil || malformed && !beforeMapping(r.ID) {
			continue
		}
		if v := r.launch(p); v.failed {
			ids, verdicts = append(ids, i), append(verdicts, v)
		}
	}
	return ids, verdicts
}

// beforeMapping reports whether a rule looks at the op alone, or at whether there is a mapping.
func beforeMapping(id string) bool {
	return strings.HasPrefix(id, "R-KER-") || id == "R-MAP-1" || id == "R-DMA-4"
}

// explain lists what forbids the launch, with advice.
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
		if r.advice != nil && (len(tiles) == 0 || beforeMapping(r.ID)) {
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
