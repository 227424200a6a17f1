// Package models makes the plans of recipes and keeps the models of a deployment that are open on
// its device.
package models

import (
	"context"
	"errors"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Models opens one checkpoint on one device by any number of plans. At most two models are open at
// a time. It must be used by one goroutine.
type Models struct {
	Device     npu.Device
	Info       npu.Info
	Checkpoint *checkpoint.Checkpoint // nil in a forecast
	Config     *checkpoint.Config

	// Step reports the next step. It must not be nil.
	Step func(format string, args ...any)

	plans  map[string]*Planned // by the hash of the recipe
	live   *Loaded             // the last model that was opened
	beside *Loaded             // a second one, while both are timed
}

// New returns the models of a checkpoint on a device.
func New(ck *checkpoint.Checkpoint, dev npu.Device, step func(format string, args ...any)) *Models {
	return &Models{
		Device: dev, Info: dev.Info(), Checkpoint: ck, Config: ck.Config(), Step: step,
		plans: map[string]*Planned{},
	}
}

// Forecast returns models that have plans and cannot be opened.
func Forecast(c *checkpoint.Config, info npu.Info) *Models {
	return &Models{Info: info, Config: c, Step: func(string, ...any) {}, plans: map[string]*Planned{}}
}

// On returns the models on another device. The plans are shared, and no model is open yet.
func (m *Models) On(dev npu.Device) *Models {
	other := *m
	other.Device, other.live, other.beside = dev, nil, nil
	return &other
}

// Planned is the plan of a recipe.
type Planned struct {
	Plan *plan.Plan
	Hash string
	err  error
}

// Plan returns the plan of a recipe. It is made once, and callers must not change it.
func (m *Models) Plan(r journal.Recipe) (*Planned, error) {
	key, err := journal.Hash(r)
	if err != nil {
		return nil, err
	}
	p := m.plans[key]
	if p == nil {
		p = &Planned{}
		if m.Checkpoint == nil {
			p.Plan, p.err = ArrayPlan(r, m.Config)
		} else {
			p.Plan, p.err = Plan(r, m.Checkpoint, m.Info)
		}
		if p.err == nil {
			p.Hash, p.err = PlanHash(p.Plan)
		}
		m.plans[key] = p
	}
	return p, p.err
}

// Hash returns the hash of a recipe's plan.
func (m *Models) Hash(r journal.Recipe) (string, error) {
	p, err := m.Plan(r)
	if err != nil {
		return "", err
	}
	return p.Hash, nil
}

// SetPlan makes p the plan of a recipe, instead of its own.
func (m *Models) SetPlan(r journal.Recipe, p *plan.Plan, hash string) error {
	key, err := journal.Hash(r)
	if err != nil {
		return err
	}
	m.plans[key] = &Planned{Plan: p, Hash: hash}
	return nil
}

// Loaded is a model that stays open for as long as its plan is looked at.
type Loaded struct {
	hash    string
	m       *model.Model
	session *model.Session
}

func (l *Loaded) close() error { return errors.Join(l.session.Close(), l.m.Close()) }

// Session returns an empty session of the model with a recipe's plan. It belongs to m, is valid
// until the next call, and need not be closed.
func (m *Models) Session(ctx context.Context, r journal.Recipe) (*model.Session, error) {
	l, err := m.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	err = l.session.Forget()
	if errors.Is(err, model.ErrClosed) { // the caller before has closed it
		l.session, err = l.m.NewSession(), nil
	}
	return l.session, err
}

// Open returns the open model of a recipe's plan. If it is not open, Open closes the models of
// other plans and loads it.
func (m *Models) Open(ctx context.Context, r journal.Recipe) (*Loaded, error) {
	if m.Checkpoint == nil {
		return nil, journal.ErrForecast
	}
	p, err := m.Plan(r)
	if err != nil {
		return nil, err
	}
	for _, l := range []*Loaded{m.live, m.beside} {
		if l != nil && l.hash == p.Hash {
			return l, nil
		}
	}
	if err := m.Close(); err != nil {
		return nil, err
	}
	m.live, err = m.load(ctx, p)
	return m.live, err
}

// IsOpen reports whether the model that was opened last has a recipe's plan.
func (m *Models) IsOpen(r journal.Recipe) bool {
	p, err := m.Plan(r)
	return err == nil && m.live != nil && m.live.hash == p.Hash
}

// OpenBeside opens the model of a recipe's plan and keeps the one that is open.
func (m *Models) OpenBeside(ctx context.Context, r journal.Recipe) error {
	p, err := m.Plan(r)
	if err == nil {
		m.beside, err = m.load(ctx, p)
	}
	return err
}

func (m *Models) load(ctx context.Context, p *Planned) (*Loaded, error) {
	m.Step("loading the model")
	opened, err := model.Open(ctx, m.Device, m.Checkpoint.Path(), &model.OpenOptions{Plan: p.Plan, FailedPlan: true})
	if err != nil {
		return nil, err
	}
	return &Loaded{p.Hash, opened, opened.NewSession()}, nil
}

// CloseBeside closes the model that OpenBeside has opened, if it is open.
func (m *Models) CloseBeside() error {
	l := m.beside
	m.beside = nil
	if l == nil {
		return nil
	}
	return l.close()
}

// Close closes all models, which releases the device's memory and contexts. Models can be opened
// again.
func (m *Models) Close() error {
	l := m.live
	m.live = nil
	err := m.CloseBeside()
	if l != nil {
		err = errors.Join(l.close(), err)
	}
	return err
}

// Tapped runs work in a session of a model of its own, whose outputs of launches tap receives.
func (m *Models) Tapped(ctx context.Context, p *plan.Plan, tap model.Tap,
	work func(s *model.Session) error) (err error) {
	if err := m.Close(); err != nil {
		return err
	}
	opened, err := model.Open(ctx, m.Device, m.Checkpoint.Path(), &model.OpenOptions{Plan: p, FailedPlan: true,
		Tap: tap})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	s := opened.NewSession()
	defer func() { err = errors.Join(err, s.Close()) }()
	return work(s)
}
