package gates

import (
	"context"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/oracle"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
)

// Bench is the test bench of a gate: a model by one plan on one device, and its references.
type Bench struct {
	*Reference
	Models *models.Models
	Recipe journal.Recipe // of the plan

	// Kernel receives the findings of the gates of kernels. If it is nil, they are dropped.
	Kernel func(journal.KernelNote) error

	parts *parts // of the gate that runs; nil if parts are not recorded
}

// Reference has the references of a model: oracle and golden file. It is shared by all benches of a
// deployment.
type Reference struct {
	Oracle    *oracle.Model
	Known     *Memo        // the oracle's logits
	Golden    *golden.File // reference outputs of another implementation, or nil
	Positions int          // the ids that gates score, at most

	text     *Text      // that gates score, once it has been made
	recorded *Recording // the last tapped run
}

// NewReference returns a reference that has no text yet.
func NewReference(ref *oracle.Model, file *golden.File, positions int) *Reference {
	return &Reference{Oracle: ref, Known: &Memo{ref: ref}, Golden: file, Positions: positions}
}

// Forget drops the last tapped run, so that the next one is taken anew.
func (r *Reference) Forget() { r.recorded = nil }

// Recorded returns the last tapped run, or nil.
func (r *Reference) Recorded() *Recording { return r.recorded }

// With returns a bench for another plan.
func (bench *Bench) With(r journal.Recipe) *Bench {
	other := *bench
	other.Recipe = r
	return &other
}

// Plan returns the plan. Callers must not change it.
func (bench *Bench) Plan() (*plan.Plan, error) {
	p, err := bench.Models.Plan(bench.Recipe)
	if err != nil {
		return nil, err
	}
	return p.Plan, nil
}

// PlanHash returns the hash of the plan.
func (bench *Bench) PlanHash() (string, error) { return bench.Models.Hash(bench.Recipe) }

// Session returns an empty session of the model, see [models.Models.Session].
func (bench *Bench) Session(ctx context.Context) (*model.Session, error) {
	return bench.Models.Session(ctx, bench.Recipe)
}

func (bench *Bench) noteKernel(n journal.KernelNote) error {
	if bench.Kernel == nil {
		return nil
	}
	return bench.Kernel(n)
}

// Tapped runs work in a session of a model of its own, whose outputs of launches tap receives.
func (bench *Bench) Tapped(ctx context.Context, tap model.Tap, work func(s *model.Session) error) error {
	p, err := bench.Plan()
	if err != nil {
		return err
	}
	return bench.Models.Tapped(ctx, p, tap, work)
}

// Shortened returns a reference whose text is ids.
func (r *Reference) Shortened(ids []int32) *Reference {
	other := *r
	other.recorded = nil
	other.text = &Text{ids, "the first ids of the deployment's"}
	return &other
}
