package skill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/gate/plot"
	"github.com/npukit/npukit/npu"
)

// Gate is a condition at the end of phases. It computes what it judges: nothing that a skill claims reaches it.
type Gate struct {
	Name   string
	Phases []Phase
	// Check runs the gate on the environment's plan. An error means that it could not be run; what it found is in the verdict.
	Check func(ctx context.Context, env *Env) (Verdict, error)

	subject string // of a kernel; else the plan that it runs on
}

// Verdict is a gate's report, such as those of package gate have.
type Verdict interface {
	fmt.Stringer
	json.Marshaler
	OK() bool
	Err() error // nil when OK
}

// Names of the built-in gates.
const (
	GateArchitecture = "architecture"
	GateWeights      = "weights"
	GateOracle       = "oracle"
	GateOracleGolden = "oracle-golden"
	GateKernel       = "kernel"
	GateBlock        = "block"
	GateBlockOps     = "block-ops"
	GateBlockFar     = "block-far"
	GateLogits       = "logits"
	GatePaper        = "paper"
	GateGreedy       = "greedy"
	GateDeterminism  = "determinism"
	GateGolden       = "golden"
	GateTried        = "tried"
	GatePlanFile     = "plan-file"
	GateEvaluation   = "evaluation"
)

func gateNames() []string {
	return []string{GateArchitecture, GateWeights, GateOracle, GateOracleGolden, GateKernel, GateBlock, GateBlockOps, GateBlockFar, GateLogits, GatePaper, GateGreedy,
		GateDeterminism, GateGolden, GateTried, GatePlanFile, GateEvaluation}
}

func isKernelGate(name string) bool { return strings.HasPrefix(name, GateKernel+"/") }

// gatesOf are all gates that a phase must meet, with those of the user.
func (e *Env) gatesOf(p Phase) ([]Gate, error) {
	list, err := e.builtInGates(p)
	if err != nil {
		return nil, err
	}
	for _, g := range e.d.opts.Gates {
		if slices.Contains(g.Phases, p) {
			list = append(list, g)
		}
	}
	return list, nil
}

func (e *Env) builtInGates(p Phase) ([]Gate, error) {
	switch p {
	case Reference:
		list := []Gate{{Name: GateArchitecture, Check: checkArchitecture}, {Name: GateWeights, Check: checkWeights}, {Name: GateOracle, Check: checkOracle}}
		if e.d.golden != nil {
			list = append(list, Gate{Name: GateOracleGolden, Check: checkOracleGolden})
		}
		return list, nil
	case KernelValidation:
		return e.kernelGates()
	case SingleBlock:
		return []Gate{{Name: GateBlock, Check: checkBlock}, {Name: GateBlockOps, Check: checkBlockOps}, {Name: GateBlockFar, Check: checkBlockFar}}, nil
	case FullModel:
		return e.modelGates(), nil
	case Prefill, Decode:
		kernels, err := e.kernelGates()
		return slices.Concat([]Gate{{Name: GateTried, Check: checkTried}}, kernels, e.modelGates()), err
	case Finalise:
		return append([]Gate{{Name: GatePlanFile, Check: checkPlanFile}, {Name: GateBlockFar, Check: checkBlockFar}}, e.modelGates()...), nil
	case Evaluation:
		return []Gate{{Name: GateEvaluation, Check: checkEvaluation}}, nil
	}
	return nil, fmt.Errorf("skill: there is no phase %d", int(p))
}

// modelGates are the full set for a whole model.
func (e *Env) modelGates() []Gate {
	list := []Gate{{Name: GateLogits, Check: checkLogits}, {Name: GatePaper, Check: checkPaper}, {Name: GateGreedy, Check: checkGreedy},
		{Name: GateDeterminism, Check: checkDeterminism}}
	if e.d.golden != nil {
		list = append(list, Gate{Name: GateGolden, Check: checkGolden})
	}
	return list
}

// cheapGates are asked of every change to a plan: kernels that are new in it, the logits of a short text, and the block where kernels are fused, which alone cannot
// be tried. The full set follows at the end of the phase.
func (e *Env) cheapGates() ([]Gate, error) {
	list, err := e.kernelGates()
	if err != nil {
		return nil, err
	}
	p, err := e.Plan()
	if err != nil {
		return nil, err
	}
	fused := slices.ContainsFunc(p.Programs, func(q *npu.Program) bool {
		return slices.ContainsFunc(q.Launches, func(l npu.Launch) bool { return l.Mapping.Fused != "" })
	})
	if fused {
		list = append(list, Gate{Name: GateBlock, Check: checkBlock})
	}
	return append(list, Gate{Name: GatePaper, Check: checkPaper}), nil
}

// Gate runs one of the phase's gates on the environment's plan, or gives what it said before where that still counts.
func (e *Env) Gate(ctx context.Context, name string) (GateResult, error) {
	list, err := e.gatesOf(e.phase)
	if err != nil {
		return GateResult{}, err
	}
	i := slices.IndexFunc(list, func(g Gate) bool { return g.Name == name })
	if i < 0 {
		return GateResult{}, fmt.Errorf("skill: phase %s has no gate %q", e.phase, name)
	}
	return e.run(ctx, list[i])
}

// check runs the gate. One that says nothing has not judged.
func (g Gate) check(ctx context.Context, e *Env) (Verdict, error) {
	v, err := g.Check(ctx, e)
	if err == nil && v == nil {
		err = errors.New("its Check has given neither a verdict nor an error")
	}
	return v, err
}

// key is what a gate's result will be filed under.
func (e *Env) key(g Gate) (GateResult, error) {
	subject := g.subject
	if subject == "" {
		var err error
		if subject, err = e.planHash(); err != nil {
			return GateResult{}, err
		}
	}
	return GateResult{Name: g.Name, Subject: subject}, nil
}

// run asks a gate, unless it has passed already, and notes what it says.
func (e *Env) run(ctx context.Context, g Gate) (GateResult, error) {
	if e.d.foreseen != nil {
		return GateResult{}, errForeseen
	}
	r, err := e.key(g)
	if err != nil {
		return r, err
	}
	if old, ok := e.d.state.passed(e.phase, r.Name, r.Subject); ok {
		return old, nil
	}
	e.step("gate %s", g.Name)
	started := time.Now()
	e.gate = r.Key()
	v, err := g.check(ctx, e)
	e.gate = ""
	if err != nil {
		return r, fmt.Errorf("skill: gate %s: %w", g.Name, err)
	}
	r.Seconds = time.Since(started).Seconds()
	r.judged(v)
	if r.Report, err = e.save(g.Name, r.Subject, v); err != nil {
		return r, err
	}
	if err := e.note(KindGate, r); err != nil {
		return r, err
	}
	e.d.observe(Event{Phase: e.phase, What: EventGate, Text: r.Summary, Gate: &r})
	return r, nil
}

// save keeps a gate's report for people to look at.
func (e *Env) save(name, subject string, v Verdict) (string, error) {
	file := fmt.Sprintf("%d-%s", int(e.phase), strings.ReplaceAll(name, "/", "-"))
	if !isKernelGate(name) { // whose name has it already
		file += fmt.Sprintf("-%.8s", subject)
	}
	report := fmt.Stringer(v)
	if !e.d.opts.plain {
		report = plot.With(v)
	}
	if err := gate.Save(e.d.ws.path(FolderReports), file, report); err != nil && !errors.Is(err, plot.ErrEmpty) {
		return "", storageError{fmt.Errorf("skill: workspace: %w", err)} // which no skill can mend
	}
	return FolderReports + "/" + file, nil
}

// reasonsOf are a verdict's reasons one by one.
func reasonsOf(v Verdict) []gate.Reason {
	switch r := v.(type) {
	case gate.Report:
		return r.Reasons
	case gate.LogitsReport:
		return r.Reasons
	case gate.GreedyReport:
		return r.Reasons
	case gate.DeterminismReport:
		return r.Reasons
	case golden.Report:
		return r.Reasons
	case Checks:
		return r.Reasons
	}
	if err := v.Err(); err != nil {
		return []gate.Reason{{Metric: "custom", Text: err.Error()}}
	}
	return nil
}

// describe is a verdict in a line, in figures, and where its bounds came from.
func describe(v Verdict) (line string, figures map[string]float64, bounds string) {
	switch r := v.(type) {
	case gate.Report:
		figures = map[string]float64{"max_abs": r.Metrics.MaxAbs, "mean_rel_l1": r.Metrics.MeanRelL1, "pearson": r.Metrics.Pearson, "peak": r.Metrics.Peak}
		line = fmt.Sprintf("mean relative error %.3g, largest absolute %.3g, Pearson %.7g over %d elements", r.Metrics.MeanRelL1, r.Metrics.MaxAbs, r.Metrics.Pearson,
			r.Metrics.Count)
		bounds = r.Tolerance.Note
	case gate.LogitsReport:
		figures = map[string]float64{"kl_mean": r.KLMean, "kl_p90": r.KLP90, "top1": r.Top1(), "nll_change": r.NLLChange}
		line = fmt.Sprintf("KL mean %.3g, first choices agree at %.2f %%, NLL %+.3f %% over %d positions", r.KLMean, 100*r.Top1(), 100*r.NLLChange, r.Positions)
		if r.Text != "" {
			line += ", ids: " + r.Text
		}
		bounds = r.Thresholds.Note
	case gate.GreedyReport:
		line = fmt.Sprintf("all %d tokens are equal", r.Wanted)
		if r.Diverged {
			line = fmt.Sprintf("the first %d of %d tokens are equal", len(r.Tokens), r.Wanted)
		}
		figures = map[string]float64{"equal_tokens": float64(len(r.Tokens))}
	case gate.DeterminismReport:
		line = fmt.Sprintf("%d positions scored twice", r.Positions)
	case golden.Report:
		figures = map[string]float64{"kl_mean": r.KLMean, "nll_change": r.NLLChange}
		line = fmt.Sprintf("NLL %+.3f %%, KL mean %.3g over %d positions", 100*r.NLLChange, r.KLMean, r.Positions)
		bounds = r.Thresholds.Note
	case partVerdict:
		return r.Line, r.Figures, r.Bounds
	case Checks:
		return r.line(), r.Figures, r.Bounds
	default:
		line, _, _ = strings.Cut(v.String(), "\n")
	}
	for name, x := range figures {
		if x != x || x > 1e300 || x < -1e300 { // what JSON does not have
			delete(figures, name)
		}
	}
	return line, figures, bounds
}
