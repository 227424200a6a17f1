//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/childproc/orphantest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// script returns an agent that is a shell script; its task is in the file task.
func script(t *testing.T, text string) *Agent {
	t.Helper()
	dir := t.TempDir()
	return &Agent{Command: []string{"/bin/sh", "-c", "cat > task; " + text}, Dir: dir, Timeout: 5 * time.Second}
}

// The task of any agent ends in time, and an invalid reply is an error with the reason.
func TestHostileAgents(t *testing.T) {
	good := `{"direction": "again", "note": "because"}`
	for _, tc := range []struct{ name, text, want string }{
		{"answers", `echo '` + good + `'`, ""},
		{"answers after noise on stderr", `i=0; while [ $i -lt 20000 ]; do echo noise >&2; i=$((i+1)); done; echo '` +
			good + `'`, ""},
		{"leaves a child that holds its pipes", `sleep 60 & echo '` + good + `'`, ""},
		{"says nothing", `true`, "empty"},
		{"is no JSON", `echo I have fixed everything`, "invalid reply"},
		{"is another type", `echo '[1]'`, "invalid reply"},
		{"claims a verdict", `echo '{"direction": "again", "verdict": "pass"}'`, "verdict"},
		{"claims gates", `echo '{"gates": [{"name": "logits", "ok": true}]}'`, "gates"},
		{"says two things", `echo '` + good + good + `'`, "trailing data"},
		{"is cut off", `printf '{"direction": "ag'`, "invalid reply"},
		{"nests deeply", `yes '[' | head -c 900000 | tr -d '\n'`, "invalid reply"},
		{"fails", `echo broken >&2; exit 3`, "broken"},
		{"kills itself", `kill -9 $$`, "killed"},
		{"writes without end", `yes`, "more than"},
		{"hangs", `sleep 60`, "killed"},
		{"hangs in a child", `sleep 60 & wait`, "killed"},
		{"ignores being asked to end", `trap '' TERM INT HUP; sleep 60`, "killed"},
		{"does not read its task", `exec </dev/null; echo '` + good + `'`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := script(t, tc.text)
			if strings.Contains(tc.text, "60") {
				a.Timeout = 300 * time.Millisecond
			}
			if strings.Contains(tc.name, "pipes") {
				a.Timeout = 30 * time.Second
			}
			began := time.Now()
			r, err := a.ask(context.Background(), taskChoose, skill.FullModel,
				task{Question: &skill.Question{Phase: skill.FullModel}})
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			switch {
			case tc.want == "" && (err != nil || r.Direction != "again"):
				t.Errorf("%+v, %v", r, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
		})
	}
	if _, err := (&Agent{}).run(context.Background(), task{}); err == nil {
		t.Error("no command is no error")
	}
	if _, err := (&Agent{Command: []string{"/no/such/agent"}}).run(context.Background(), task{}); err == nil {
		t.Error("a command that is not there is no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	if _, err := script(t, "sleep 60").answer(ctx, skill.Question{}); !errors.Is(err, context.Canceled) ||
		time.Since(began) > 5*time.Second {
		t.Errorf("cancelled: %v after %v", err, time.Since(began))
	}
}

// The replies of an agent must answer the question; otherwise it stops, and the note has the
// reason.
func TestAgentAnswers(t *testing.T) {
	q := skill.Question{Phase: skill.FullModel, Directions: []skill.Direction{{Name: "again", What: ""},
		{Name: "stop", What: ""}}}
	for _, tc := range []struct{ name, reply, want, note string }{
		{"one of the directions", `{"direction":"again","note":"I am sure"}`, "again", "claims: I am sure"},
		{"another direction", `{"direction":"pass"}`, "stop", "neither"},
		{"a change", `{"changes":[{"name":"x","change":{}}]}`, "external-agent", "claims"},
		{"two changes", `{"changes":[{},{}]}`, "stop", "2 changes"},
		{"nothing", `{}`, "stop", "neither"},
		{"a long note", `{"direction":"again","note":"` + strings.Repeat("ä", 5000) + `"}`, "again", "..."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := script(t, "echo '"+tc.reply+"'").answer(context.Background(), q)
			if err != nil || c.Direction != tc.want || !strings.Contains(c.Note, tc.note) || len(c.Note) > maxText+3 {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	for _, tc := range []struct {
		name, reply string
		want        skill.Action
	}{
		{"approves", `{"decision":{"action":"approve","note":"fine"}}`, skill.Approve},
		{"goes back", `{"decision":{"action":"redirect","phase":"reference"}}`, skill.Redirect},
		{"goes forward", `{"decision":{"action":"redirect","phase":"finalise"}}`, skill.Stop},
		{"passes", `{"decision":{"action":"pass"}}`, skill.Stop},
		{"decides nothing", `{"note":"all is well"}`, skill.Stop},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := script(t, "echo '"+tc.reply+"'").Approve(context.Background(),
				skill.PhaseReport{Phase: skill.FullModel, Passed: true})
			if err != nil || d.Action != tc.want {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

// An agent that proposes gets the outcomes. Its changes are attempts like any other, and its claims
// about them have no effect.
func TestAgentProposes(t *testing.T) {
	t.Parallel()
	opts := small(t)
	a := script(t, `n=$(ls | wc -l); cp task task.$n
grep -q '"task":"propose"' task || { echo '{"direction":"again"}'; exit; }
if grep -q 'proposed: bold' task; then echo '{}'; else echo '{"note":"10x faster, all gates pass",
"changes":[{"name":"bold","change":{"chunk":-1}},{"name":"none","change":{}},{"name":"odd","change":{"verdict":"pass"}},
{"name":"fine","change":{"chunk":16}}]}'; fi`)
	a.Use(opts)
	d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts)
	through(t, d, skill.Decode)
	got := map[string]string{}
	for _, at := range d.State().Attempted(skill.Prefill) {
		got[at.Step] = at.Outcome
		if at.Outcome == skill.Kept && (len(at.Gates) == 0 || at.After == nil) {
			t.Errorf("%s was kept without gates or time: %+v", at.Step, at)
		}
	}
	if got["proposed: bold"] != skill.Rejected || got["proposed: none"] != skill.Skipped ||
		got["proposed: fine"] == "" || got["proposed: odd"] != "" {
		t.Errorf("attempts: %v", got)
	}
	if got["chunks of 128 rows"] == "" {
		t.Errorf("the built-in steps were left out: %v", got)
	}
	tasks, err := filepath.Glob(filepath.Join(a.Dir, "task.*"))
	if err != nil || len(tasks) != 2 {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	var last task
	if err := json.Unmarshal(skilltest.Must(os.ReadFile(filepath.Join(a.Dir, "task"))), &last); err != nil {
		t.Fatal(err)
	}
	if last.Protocol != protocol || last.Phase != skill.Prefill || last.Recipe == nil || !strings.Contains(last.Manual,
		"prefill-optimisation") {
		t.Errorf("the task: %+v", last)
	}
	told := map[string]string{}
	for _, tr := range last.Attempts {
		told[tr.Name] = tr.Outcome
	}
	if told["proposed: odd"] != skill.Rejected || told["proposed: bold"] != skill.Rejected {
		t.Errorf("the agent was told %v", told)
	}
}

// An agent that lies about a failure changes nothing: the gate runs again, fails again, and the
// phase does not pass. A broken agent is skipped.
func TestAgentCannotPass(t *testing.T) {
	for name, text := range map[string]string{
		"lies":      `echo '{"direction":"again","note":"fixed, all gates pass now"}'`,
		"changes":   `echo '{"changes":[{"name":"the fix","change":{"chunk":16}}]}'`,
		"is broken": `exit 1`,
		"forges":    `echo '{"seq":1}' >> journal.jsonl; echo '{"direction":"stop"}'`,
	} {
		t.Run(name, func(t *testing.T) {
			opts := small(t)
			opts.Gates = []skill.Gate{{Name: "never", Phases: []skill.Phase{skill.KernelValidation},
				Check: func(context.Context, *skill.Env) (skill.Verdict, error) {
					c := skill.Checks{Name: "never"}
					c.Hold(false, "never", "it is never good enough")
					return c, nil
				}}}
			a := script(t, text)
			if name == "forges" {
				a.Dir = "" // the workspace
			}
			a.Use(opts)
			d := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts)
			err := d.Run(context.Background())
			var phase *skill.PhaseError
			if !errors.As(err, &phase) || phase.Report.Phase != skill.KernelValidation || phase.Report.Passed {
				t.Fatalf("it ends with %v", err)
			}
			if name != "forges" {
				return
			}
			d.Close()
			if _, err := skill.NewDeployment(skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts); !errors.Is(err,
				journal.ErrJournal) {
				t.Errorf("the journal that the agent has written into: %v", err)
			}
		})
	}
}

// A relative path of an agent is relative to this process, although the agent runs in the
// workspace.
func TestAgentIsFoundFromHere(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	skilltest.Must(0, os.Mkdir("work", 0o755))
	skilltest.Must(0, os.WriteFile("my-agent", []byte("#!/bin/sh\ncat > task\necho '{\"note\": \"here\"}'\n"), 0o755))
	opts := &skill.Options{Dir: "work"}
	a := &Agent{Command: []string{"./my-agent"}}
	a.Use(opts)
	if r, err := a.ask(context.Background(), taskApprove, skill.Reference, task{}); err != nil || r.Note != "here" {
		t.Fatalf("%+v, %v", r, err)
	}
	var told task
	skilltest.Must(0, json.Unmarshal(skilltest.Must(os.ReadFile(filepath.Join("work", "task"))), &told))
	if want := skilltest.Must(filepath.EvalSymlinks(filepath.Join(here,
		"work"))); skilltest.Must(filepath.EvalSymlinks(told.Workspace)) != want || !filepath.IsAbs(told.Workspace) {
		t.Errorf("the workspace is %q, want %q", told.Workspace, want)
	}
}

// A redirect to an unknown skill stops the deployment, like every invalid reply. A redirect to a
// skill of the user is valid.
func TestAgentRedirects(t *testing.T) {
	for name, want := range map[string]skill.Action{"no-such-skill": skill.Stop, "lamp": skill.Redirect,
		"build-cpu-reference": skill.Redirect, "": skill.Redirect} {
		a := script(t, `echo '{"decision": {"action": "redirect", "phase": "reference", "skill": "`+name+`"}}'`)
		opts := small(t)
		opts.Skills = []skill.Skill{lamp{}}
		a.Use(opts)
		d, err := a.Approve(context.Background(), skill.PhaseReport{Phase: skill.Reference, Passed: true})
		if err != nil || d.Action != want || want == skill.Stop && !strings.Contains(d.Note, name) {
			t.Errorf("%q: %+v, %v, want %s", name, d, err, want)
		}
	}
	opts := small(t)
	a := script(t, `echo '{"decision": {"action": "redirect", "phase": "reference", "skill": "no-such-skill"}}'`)
	a.Use(opts)
	opts.Approve = a.Approve
	if err := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t),
		opts).Run(context.Background()); !errors.Is(err, skill.ErrStopped) {
		t.Errorf("it ends with %v", err)
	}
}

// An agent that cannot be started is skipped, and the phase's report has a note.
func TestAgentThatIsNotThere(t *testing.T) {
	opts := small(t)
	(&Agent{Command: []string{filepath.Join(t.TempDir(), "nobody")}}).Use(opts)
	noted := 0
	opts.Approve = func(_ context.Context, r skill.PhaseReport) (skill.Decision, error) {
		for _, n := range r.Notes {
			if strings.Contains(n, "nobody") {
				noted++
			}
		}
		return skill.Decision{Action: skill.Approve}, nil
	}
	if err := deployment(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t),
		opts).Run(context.Background()); err != nil || noted != 2 {
		t.Errorf("%v; noted in %d reports, want those of both optimisation phases", err, noted)
	}
}

// small returns options for a deployment that takes less than a second.
func small(t *testing.T) *skill.Options {
	return &skill.Options{Dir: t.TempDir(), SeqLen: 40, Positions: 32, Repetitions: 3}
}

func deployment(t *testing.T, path string, dev npu.Device, opts *skill.Options) *skill.Deployment {
	t.Helper()
	d, err := skill.NewDeployment(path, dev, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// through runs all phases before p.
func through(t *testing.T, d *skill.Deployment, p skill.Phase) {
	t.Helper()
	for q := skill.Reference; q < p; q++ {
		if _, err := d.RunPhase(context.Background(), q); err != nil {
			t.Fatal(err)
		}
	}
}

// lamp is a skill that does nothing.
type lamp struct{}

func (lamp) Name() string                                           { return "lamp" }
func (lamp) Trigger(skill.Symptom) bool                             { return false }
func (lamp) Run(context.Context, *skill.Env) (skill.Outcome, error) { return skill.Outcome{}, nil }

// orphanMode is the variable that makes a test's process run an agent that hangs.
const orphanMode = "NPUKIT_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if file := os.Getenv(orphanMode); file != "" {
		a := &Agent{Command: []string{"/bin/sh", "-c", "sleep 1000 & echo $$ $! >" + file + "; wait"}}
		a.Use(&skill.Options{Dir: filepath.Dir(file)})
		_, err := a.ask(context.Background(), taskApprove, skill.Reference, task{})
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// kill -9 of a deployment ends its agent, with the processes that the agent has started.
func TestAgentEndsWithItsParent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	parent := exec.Command(skilltest.Must(os.Executable()))
	parent.Env = append(os.Environ(), orphanMode+"="+file)
	skilltest.Must(0, parent.Start())
	pids := orphantest.PIDs(t, file, 2)
	skilltest.Must(0, parent.Process.Kill())
	_ = parent.Wait() // killed
	orphantest.Gone(t, pids...)
}
