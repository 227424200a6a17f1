package skill

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/oracle"
)

// Env is what a skill or a gate works with: a model, a device, an oracle, and a plan, in one phase. It is used by one goroutine.
type Env struct {
	d      *Deployment
	phase  Phase
	recipe Recipe

	gate    string       // key of the gate that is asked; "" where its parts are not kept
	tried   bool         // the plan is that of a change which is only tried
	symptom Symptom      // that a debug skill is asked about
	checked []Hypothesis // by that skill
	done    int          // gates of the phase
	total   int
}

// env is the environment of a phase, on the plan as it is.
func (d *Deployment) env(p Phase) (*Env, error) {
	if d.closed {
		return nil, ErrClosed
	}
	e := &Env{d: d, phase: p, recipe: d.state.Recipe}
	if d.state.Plan == "" {
		e.recipe = naiveRecipe(d.info, d.state.Subject.SeqLen)
	}
	return e, nil
}

// with is the environment with another plan, which nothing outside knows of.
func (e *Env) with(r Recipe) *Env {
	copied := *e
	copied.recipe = r
	return &copied
}

// Phase is the phase that runs.
func (e *Env) Phase() Phase { return e.phase }

// Config is the model's architecture; callers must not change it.
func (e *Env) Config() *checkpoint.Config { return e.d.Config() }

// Checkpoint is the model's own checkpoint, open as long as the deployment is.
func (e *Env) Checkpoint() *checkpoint.Checkpoint { return e.d.ck }

// Device is what the model is deployed on.
func (e *Env) Device() npu.Device { return e.d.dev }

// Oracle is the reference.
func (e *Env) Oracle() *oracle.Model { return e.d.ref }

// Golden is what another implementation computed, or nil.
func (e *Env) Golden() *golden.File { return e.d.golden }

// State is what the journal says. Callers must not change it.
func (e *Env) State() *State { return e.d.state }

// Symptom is the failure that a debug skill is asked about.
func (e *Env) Symptom() Symptom { return e.symptom }

// Recipe is what the environment's plan is made from.
func (e *Env) Recipe() Recipe { return e.recipe.clone() }

// Plan is the environment's plan; callers must not change it.
func (e *Env) Plan() (*plan.Plan, error) {
	p, err := e.planned()
	if err != nil {
		return nil, err
	}
	return p.plan, nil
}

func (e *Env) planHash() (string, error) {
	p, err := e.planned()
	if err != nil {
		return "", err
	}
	return p.hash, nil
}

// planned makes the plan once for each recipe.
func (e *Env) planned() (*plannedRecipe, error) {
	key, err := hashOf(e.recipe)
	if err != nil {
		return nil, err
	}
	p := e.d.plans[key]
	if p == nil {
		p = &plannedRecipe{}
		if e.d.foreseen != nil {
			p.plan, p.err = e.recipe.arrayPlan(e.d.foreseen)
		} else {
			p.plan, p.err = e.recipe.Plan(e.d.ck, e.d.info)
		}
		if p.err == nil {
			p.hash, p.err = PlanHash(p.plan)
		}
		e.d.plans[key] = p
	}
	return p, p.err
}

// liveModel is a model that stays open while its plan is looked at.
type liveModel struct {
	hash    string
	m       *model.Model
	session *model.Session
}

func (l *liveModel) close() error { return errors.Join(l.session.Close(), l.m.Close()) }

// Session is an empty session of the model on the device by the environment's plan. It belongs to the deployment, and holds until the next call. It need not be closed.
func (e *Env) Session(ctx context.Context) (*model.Session, error) {
	l, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	err = l.session.Forget()
	if errors.Is(err, model.ErrClosed) { // whoever had it has closed it
		l.session, err = l.m.NewSession(), nil
	}
	return l.session, err
}

func (e *Env) open(ctx context.Context) (*liveModel, error) {
	if e.d.foreseen != nil {
		return nil, errForeseen
	}
	p, err := e.planned()
	if err != nil {
		return nil, err
	}
	for _, l := range []*liveModel{e.d.live, e.d.beside} {
		if l != nil && l.hash == p.hash {
			return l, nil
		}
	}
	if err := e.closeModel(); err != nil {
		return nil, err
	}
	e.d.live, err = e.load(ctx, p)
	return e.d.live, err
}

func (e *Env) load(ctx context.Context, p *plannedRecipe) (*liveModel, error) {
	e.step("loading the model")
	m, err := model.Open(ctx, e.d.dev, e.d.ck.Path(), &model.OpenOptions{Plan: p.plan, FailedPlan: true})
	if err != nil {
		return nil, err
	}
	return &liveModel{p.hash, m, m.NewSession()}, nil
}

// openBeside opens the plan's model while that of another plan stays open.
func (e *Env) openBeside(ctx context.Context) error {
	p, err := e.planned()
	if err == nil {
		e.d.beside, err = e.load(ctx, p)
	}
	return err
}

// closeBeside closes what was opened beside, and leaves the other model open.
func (e *Env) closeBeside() error {
	l := e.d.beside
	e.d.beside = nil
	if l == nil {
		return nil
	}
	return l.close()
}

// closeModel gives back the device's memory and contexts.
func (e *Env) closeModel() error {
	l := e.d.live
	e.d.live = nil
	err := e.closeBeside()
	if l != nil {
		err = errors.Join(l.close(), err)
	}
	return err
}

// tapped runs a part of the work on a model of its own whose launches' outputs are all seen.
func (e *Env) tapped(ctx context.Context, tap model.Tap, work func(s *model.Session) error) (err error) {
	p, err := e.Plan()
	if err != nil {
		return err
	}
	return e.tappedBy(ctx, p, tap, work)
}

func (e *Env) tappedBy(ctx context.Context, p *plan.Plan, tap model.Tap, work func(s *model.Session) error) (err error) {
	if err := e.closeModel(); err != nil {
		return err
	}
	m, err := model.Open(ctx, e.d.dev, e.d.ck.Path(), &model.OpenOptions{Plan: p, FailedPlan: true, Tap: tap})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s := m.NewSession()
	defer func() { err = errors.Join(err, s.Close()) }()
	return work(s)
}

// SetRecipe makes another plan the deployment's, for a reason. Every gate asked after it is asked of that plan. A plan that cannot be made is an error, and changes
// nothing. Where a skill is asked about a change that is only tried, the deployment keeps its plan whatever is set.
func (e *Env) SetRecipe(r Recipe, why string) error {
	if err := e.recipe.allows(r); err != nil {
		return err
	}
	next := e.with(r.clone())
	p, err := next.planned()
	if err != nil {
		return err
	}
	if e.tried {
		e.recipe = next.recipe
		return nil
	}
	if err := e.note(KindPlan, PlanNote{Recipe: next.recipe, Hash: p.hash, Why: why}); err != nil {
		return err
	}
	e.recipe = next.recipe
	return e.d.writePlan()
}

// Issue notes a bug that somebody should know of.
func (e *Env) Issue(i Issue) error { return e.note(KindIssue, i) }

// Hypothesis notes a cause that a debug skill has tested.
func (e *Env) Hypothesis(h Hypothesis) { e.checked = append(e.checked, h) }

func (e *Env) note(kind Kind, data any) error { return e.d.note(kind, e.phase, data) }

// step tells whoever watches what comes next.
func (e *Env) step(format string, args ...any) {
	e.d.observe(Event{Phase: e.phase, What: EventStep, Text: fmt.Sprintf(format, args...), Done: e.done, Total: e.total})
}
