package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/deploytest"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill"
)

// The command deploys a tiny model and resumes the finished deployment at once. Its plan runs; a
// failed plan does not.
func TestDeploy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	path := tiny("smollm-mha")
	out := deployed(t, dir, path, "--seq", "64", "--threads", "2")
	for _, want := range []string{"6 finalise", "passed", "npukit run " + path + " --plan " + filepath.Join(dir,
		"plan.json") + " --ids 1,2,3\n", "model.IDs(", "plan.Read(", "measured", "7 evaluation", "is accepted"} {
		if !strings.Contains(out, want) {
			t.Errorf("the summary lacks %q:\n%s", want, out)
		}
	}
	var again deployResult
	if err := json.Unmarshal([]byte(succeed(t, "", "deploy", path, "--dir", dir, "--json")), &again); err != nil {
		t.Fatal(err)
	}
	if !again.OK || again.PlanStatus != plan.Accepted || again.Performance == nil || again.Phases[1].Attempts != 1 {
		t.Errorf("resumed: %+v", again)
	}
	p := filepath.Join(dir, "plan.json")
	r := command("", "run", path, "--plan", p, "--ids", "1,2,3", "--max-tokens", "2")
	if r.code != 0 || r.stderr != "" {
		t.Errorf("running an accepted plan: exit code %d, stderr %q", r.code, r.stderr)
	}
	data, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	as := func(status string) {
		t.Helper()
		if err := os.WriteFile(p, []byte(strings.Replace(string(data), `"accepted"`, `"`+status+`"`, 1)),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	as("draft")
	r = command("", "run", path, "--plan", p, "--ids", "1,2,3", "--max-tokens", "2")
	if r.code != 0 || !strings.Contains(r.stderr, "draft") {
		t.Errorf("running a draft: exit code %d, stderr %q", r.code, r.stderr)
	}
	as("failed")
	r = command("", "run", path, "--plan", p, "--ids", "1,2,3", "--max-tokens", "2")
	if r.code != 1 || !strings.Contains(r.stderr, "failed its evaluation") {
		t.Errorf("running a failed plan: exit code %d, stderr %q", r.code, r.stderr)
	}
}

// deployed runs a deployment in folder work and returns its output. It fails the test unless the
// evaluator accepted the deployment.
func deployed(t *testing.T, work string, args ...string) string {
	t.Helper()
	var out string
	deploytest.Deploy(t, work, func() error {
		r := command("", append([]string{"deploy", "--dir", work}, args...)...)
		out = r.out
		switch {
		case r.code == 0 && r.stderr == "":
			return nil
		case strings.Contains(r.stderr, skill.ErrBusy.Error()):
			return fmt.Errorf("%w: %s", skill.ErrBusy, r.stderr)
		}
		return fmt.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	})
	return out
}

// Wrong usage and wrong workspaces are errors that explain what to do.
func TestDeployRefuses(t *testing.T) {
	path := tiny("smollm-mha")
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no folder": {[]string{"deploy", path}, 2, "--dir is missing"},
		"negative":  {[]string{"deploy", path, "--dir", t.TempDir(), "--seq", "-1"}, 2, "positive"},
		"no budget": {[]string{"deploy", path, "--dir", t.TempDir(), "--budget", "0s"}, 2,
			"--budget is 0s, want a positive time"},
		"no model": {[]string{"deploy", "nowhere", "--dir", t.TempDir()}, 1, "nowhere"},
		"too long": {[]string{"deploy", path, "--dir", t.TempDir(), "--seq", "1000000"}, 1, "context"},
		"no golden": {[]string{"deploy", path, "--dir", t.TempDir(), "--golden", "missing.safetensors"}, 1,
			"missing.safetensors"},
		"no such agent": {[]string{"deploy", path, "--dir", t.TempDir(), "--agent", "no-such-agent --fast"}, 2,
			"--agent: exec: \"no-such-agent\""},
		"missing agent": {[]string{"deploy", path, "--dir", t.TempDir(), "--agent", "./no-such-agent"}, 2,
			"no-such-agent"},
		"a file as the folder": {[]string{"deploy", path, "--dir", filepath.Join(path, "config.json")}, 1,
			"config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command("", tc.args...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.want) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", r.code, r.stderr, tc.code, tc.want)
			}
		})
	}
}

// After the line that the deployment was stopped, no progress is shown.
func TestDeployProgressEnds(t *testing.T) {
	var out strings.Builder
	p := &deployProgress{w: &out, on: true}
	p.event(skill.Event{What: "attempt", Text: "before"})
	p.last("stopped")
	p.event(skill.Event{What: "attempt", Text: "behind"})
	p.step("behind")
	p.clear()
	if got := out.String(); got != "  before\nstopped\n" {
		t.Errorf("shown: %q", got)
	}
}

// The summary reports a gain only if no figure became worse, quotes commands for the shell, prints
// none for a failed plan, and lists the recorded issues.
func TestDeployLastScreen(t *testing.T) {
	path := chatty(t)
	for name, tc := range map[string]struct {
		ttft, speed float64 // for a first plan with 2 and 10
		status      plan.Status
		issues      int
		want, not   []string
	}{
		"gained": {1, 11, "accepted", 0, []string{"Gained (", `npukit run ` + path +
			` --plan 'my work/plan.json' "Hello"`, `model.Text("Hello")`, "is accepted"}, []string{"issue"}},
		"nothing": {2, 10, "accepted", 0, []string{"First plan and this one ("}, []string{"Gained"}},
		"slower tokens": {1, 9, "draft", 1, []string{"First plan and this one (", "npukit evaluate 'my work'",
			"1 issue, in my work/issues.md"}, []string{"Gained"}},
		"slower prompt": {3, 11, "draft", 2, []string{"First plan and this one (", "2 issues, in"}, []string{"Gained"}},
		"failed":        {1, 11, "failed", 0, []string{"FAILED"}, []string{"npukit run", "Use it"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			d := &deployer{app: &app{out: &out}, dir: "my work", path: path}
			d.device.device = "cpu"
			p := &skill.Performance{TTFT: tc.ttft, TokensPerSec: tc.speed, First: &skill.Measurement{TTFT: 2,
				TokensPerSec: 10}}
			if err := d.print(deployResult{PlanStatus: tc.status, Performance: p, Issues: tc.issues}); err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			for _, not := range tc.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q in\n%s", not, out.String())
				}
			}
		})
	}
}

// Measured figures are printed with their difference and noise, and count as a gain only if the
// difference exceeds the noise. The spread and the load of the machine follow below.
func TestDeployGainIsBeyondNoise(t *testing.T) {
	others := 0.37
	screen := func(after, noise float64) string {
		p := &skill.Performance{TTFT: after, TokensPerSec: 1 / after, First: &skill.Measurement{TTFT: 2,
			TokensPerSec: 0.5}, Repetitions: 9,
			TTFTRange: [2]float64{1, 20}, TokenRange: [2]float64{1, 30}, TTFTNoise: 4, Others: &others}
		turns := fmt.Sprintf(`{"count": 9, "before_s": 2, "after_s": %g, "gain": %g, "noise": %g}`, after, 1-after/2,
			noise)
		paired := fmt.Sprintf(`{"paired": {"first_token": %s, "token": %s}}`, turns, turns)
		if err := json.Unmarshal([]byte(paired), p); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := (&deployer{app: &app{out: &out}}).printGain(p); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, tc := range []struct {
		after, noise float64
		title        string
		row          string
	}{
		{1.5, 0.1, "Gained (", "-25.0 %         10.0 %"},
		{1.5, 0.3, "First plan and this one (", "-25.0 %         30.0 %"},
		{3, 0.1, "First plan and this one (", "+50.0 %         10.0 %"},
	} {
		got := screen(tc.after, tc.noise)
		for _, want := range []string{tc.title, tc.row, "400.0 %", "1 s to 20 s",
			"other processes took 37 % of the machine", "median of 9 turns"} {
			if !strings.Contains(strings.Join(strings.Fields(got), " "), strings.Join(strings.Fields(want), " ")) {
				t.Errorf("after %v, noise %v: no %q in\n%s", tc.after, tc.noise, want, got)
			}
		}
	}
}

// The user answers a failure with a number or a name. A wrong answer repeats the question with a
// reason, and the end of input stops the deployment.
func TestDeployAsksAboutFailures(t *testing.T) {
	q := skill.Question{Directions: []skill.Direction{{Name: "again", What: "run the gates again"},
		{Name: "stop", What: "leave the phase failed"}}}
	for _, tc := range []struct{ typed, want, says string }{
		{"1\n", "again", "1  again: run the gates again"},
		{"Again\n", "again", ""},
		{"3\n2\n", "stop", `"3" is not a number from 1 to 2`},
		{"\n1\n", "again", `"" is not a number`},
		{"", "stop", "which way? \n"},
	} {
		var said strings.Builder
		d := &deployer{app: &app{err: &said}, live: newDeployProgress(&said),
			in: bufio.NewReader(strings.NewReader(tc.typed))}
		c, err := d.ask(t.Context(), q)
		if err != nil || c.Direction != tc.want || !strings.Contains(said.String(), tc.says) {
			t.Errorf("%q chooses %q, %v; want %q, and %q in\n%s", tc.typed, c.Direction, err, tc.want, tc.says,
				said.String())
		}
	}
}

// The shell reads the quoted path as one word.
func TestShellWord(t *testing.T) {
	for path, want := range map[string]string{"a/b-1.gguf": "a/b-1.gguf", "": "''", "my model": "'my model'",
		"it's": `'it'\''s'`, "$HOME": "'$HOME'", "~/x": "'~/x'", "Modèle": "Modèle"} {
		if got := output.ShellWord(path); got != want {
			t.Errorf("%q is quoted as %s, want %s", path, got, want)
		}
	}
}
