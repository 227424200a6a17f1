package skill

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
)

// A change whose merged programs hang is diagnosed on its own plan, and not on the one before it, which runs. The deployment keeps that one.
func TestMergeThatHangs(t *testing.T) {
	ctx, f, most := context.Background(), &fault{}, 0
	f.before = func(r *npu.Run, host bool) error {
		if !host && len(r.Exec.Program().Launches) > most {
			return fmt.Errorf("seeded: %w", npu.ErrTimeout)
		}
		return nil
	}
	opts := quick(t)
	opts.plain, opts.Observe = true, nil
	d := deployment(t, npuTiny(t), seeded{openSim(t, sim.Options{}), f, false}, opts)
	if _, err := d.Phase(Reference).Run(ctx); err != nil {
		t.Fatal(err)
	}
	e := must(d.env(Prefill))
	for _, q := range must(e.Plan()).Programs {
		most = max(most, len(q.Launches))
	}
	f.on = true
	before := d.State().Plan
	hung := 0
	for _, c := range (mergeKernels{}).Changes(e) {
		a, err := e.Propose(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if a.Outcome == Rejected && strings.Contains(a.Why, npu.ErrTimeout.Error()) {
			hung++
			if !strings.Contains(a.Why, "debug-multi-launch-merge: routing congestion") || strings.Contains(a.Why, "once") {
				t.Errorf("%s: %s", c.Name, a.Why)
			}
		}
	}
	if hung == 0 || d.State().Plan != before || must(e.planHash()) != before {
		t.Errorf("%d changes hung; the plan was changed: %v", hung, d.State().Plan != before)
	}
}
