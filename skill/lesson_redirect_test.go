package skill

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/sim"
)

// After a redirect the changes of the first attempt are in the plan already and are skipped: the
// lessons are those of the plan that was accepted, as without the redirect.
func TestLessonsBehindARedirect(t *testing.T) {
	t.Parallel()
	lessons := func(redirects map[Phase]Phase) map[string]string {
		opts := small(t)
		opts.SeqLen, opts.plain = 64, true
		opts.Approve = func(_ context.Context, r PhaseReport) (Decision, error) {
			to, ok := redirects[r.Phase]
			if !ok {
				return Decision{Action: Approve}, nil
			}
			delete(redirects, r.Phase)
			return Decision{Action: Redirect, Phase: to, Note: "look again"}, nil
		}
		d := deployment(t, arrayModel(t, 256), openSim(t, sim.Options{}), opts)
		if err := d.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(redirects) > 0 {
			t.Fatalf("not redirected: %v", redirects)
		}
		list, err := LessonsOf(opts.Dir)
		if err != nil {
			t.Fatal(err)
		}
		changes := map[string]string{}
		for _, l := range list {
			changes[phaseText(l.Trigger.Phase)] = string(l.Change)
		}
		return changes
	}
	want := lessons(nil)
	if len(want) != 2 || !strings.Contains(want[Prefill.String()], "merge_post") {
		t.Fatalf("without a redirect: %q", want)
	}
	for from, to := range map[Phase]Phase{Decode: Prefill, Prefill: Prefill} {
		got := lessons(map[Phase]Phase{from: to})
		for p, change := range want {
			if got[p] != change {
				t.Errorf("%s to %s, lesson of %s:\n%s, want\n%s", from, to, p, got[p], change)
			}
		}
	}
}

// A change that a later attempt takes back is no lesson, and one of an earlier attempt is.
func TestLessonsOverAttempts(t *testing.T) {
	opts := small(t)
	opts.plain = true
	d := deployment(t, tiny("smollm-mha"), openCPU(t), opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	records, _, err := ReadJournal(filepath.Join(opts.Dir, FileJournal))
	if err != nil {
		t.Fatal(err)
	}
	// The attempts of this machine give way to some that are known: kept, with the gates of the phase.
	var forged []Record
	for _, r := range records {
		switch {
		case r.Kind == KindAttempt:
			continue
		case r.Kind == KindFinish && r.Phase == Prefill:
			forged = append(forged, keptAttempts(t, records, d.State())...)
		}
		forged = append(forged, r)
	}
	list, err := lessonsOf(forged)
	if err != nil || len(list) != 1 || string(list[0].Change) != `{"cache":"F32"}` {
		t.Errorf("%+v, %v", list, err)
	}
}

// keptAttempts are records of two attempts: one that changes chunk and cache, and one that takes the
// chunk back.
func keptAttempts(t *testing.T, records []Record, s *State) []Record {
	t.Helper()
	gate := s.Phases[Prefill].Gates[0]
	both, back := s.naive(), s.naive()
	both.Chunk = 8
	if err := both.Cache.UnmarshalText([]byte("F32")); err != nil {
		t.Fatal(err)
	}
	back.Cache = both.Cache
	var list []Record
	for _, r := range []Recipe{both, back} {
		a := Attempt{Step: "a test", Outcome: Kept, Recipe: r, Plan: s.Plan, Gates: []string{gate.Key()}}
		data := must(json.Marshal(a))
		list = append(list, Record{Seq: records[len(records)-1].Seq, Kind: KindAttempt, Phase: Prefill, Data: data})
	}
	return list
}
