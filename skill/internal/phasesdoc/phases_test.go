package phasesdoc

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/manual"
)

var update = flag.Bool("update", false, "write docs/phases.md again")

// The document agrees with the code.
func TestPhasesDocument(t *testing.T) {
	path := filepath.Join(testenv.Root(), "docs", "phases.md")
	want := Markdown()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/phases.md is not what the code says (%v): go test ./skill/internal/phasesdoc -run "+
			"TestPhasesDocument -update", err)
	}
}

// Every phase names a built-in skill, gates, and the phase before it, and its name parses.
func TestPhases(t *testing.T) {
	names := map[string]bool{}
	for _, s := range manual.All() {
		if names[s.Name] {
			t.Errorf("skill %s is there twice", s.Name)
		}
		names[s.Name] = true
	}
	if len(names) != 15 {
		t.Errorf("there are %d skills, the paper has 15", len(names))
	}
	for _, p := range journal.Phases() {
		info := p.Info()
		if !names[info.Skill] || len(info.Gates) == 0 || info.Purpose == "" ||
			(p > journal.Reference) != (len(info.Needs) == 1) {
			t.Errorf("%s: %+v", p, info)
		}
		if q, err := journal.ParsePhase(p.String()); q != p || err != nil {
			t.Errorf("%s is read as %s (%v)", p, q, err)
		}
	}
	if _, err := journal.ParsePhase("nonsense"); err == nil {
		t.Error("nonsense is a phase")
	}
}
