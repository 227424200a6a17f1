package skill

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/npukit/npukit/model/checkpoint"
)

// asks is a skill that looks at all that an environment has before it proposes nothing.
type asks struct{ name string }

func (s asks) Name() string                             { return s.name }
func (asks) Trigger(Symptom) bool                       { return false }
func (asks) Run(context.Context, *Env) (Outcome, error) { return Outcome{}, nil }
func (asks) Changes(e *Env) []Change {
	ctx := context.Background()
	p, err := e.Plan()
	_, session := e.Session(ctx)
	_, propose := e.Propose(ctx, Change{Name: "merged", Take: func(r *Recipe) { r.Prefill.MergePost = true }})
	_, measure := e.Measure(ctx)
	set := e.SetRecipe(e.Recipe(), "no reason")
	issue := e.Issue(Issue{})
	if err != nil || p.SeqLen != e.State().Subject.SeqLen || e.Config().Layers != p.Model.Layers || session == nil || propose == nil || measure == nil || set == nil || issue == nil ||
		e.Checkpoint() != nil || e.Device() != nil {
		panic(errors.Join(errors.New("the environment of a forecast"), err, session, propose, measure, set, issue))
	}
	return nil
}

// A user's skill is asked for its changes in a forecast too, where it finds a config and a plan, and no way to compute.
func TestForeseeWithASkill(t *testing.T) {
	ck := must(checkpoint.Open(npuTiny(t)))
	defer ck.Close()
	_, list, err := Foresee(context.Background(), ck.Config(), &Options{SeqLen: 96, Skills: []Skill{asks{"asks"}}})
	if err != nil || len(list) < 3 {
		t.Errorf("%d steps, %v", len(list), err)
	}
}

// What a recipe leaves to the device has no name, and is no type.
func TestDescribeDefaults(t *testing.T) {
	was := Recipe{SeqLen: 96, Chunk: 32}
	for _, c := range hostChanges(Decode, 96) {
		is := was.clone()
		c.Take(&is)
		if text := is.Describe(was); !strings.HasPrefix(text, "cache default -> ") {
			t.Errorf("%s: %q", c.Name, text)
		}
	}
}
