package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/model"
)

// A tiny model is deployed by the command, taken up again at once, and its plan runs; a plan that failed does not.
func TestDeploy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	path := tiny("smollm-mha")
	out := succeed(t, "", "deploy", path, "--dir", dir, "--seq", "64", "--threads", "2")
	for _, want := range []string{"6 finalise", "passed", "npukit run " + path, "model.ReadPlan(", "measured", "7 evaluation", "is accepted"} {
		if !strings.Contains(out, want) {
			t.Errorf("the last screen has no %q:\n%s", want, out)
		}
	}
	var again deployResult
	if err := json.Unmarshal([]byte(succeed(t, "", "deploy", path, "--dir", dir, "--json")), &again); err != nil {
		t.Fatal(err)
	}
	if !again.OK || again.PlanStatus != model.PlanAccepted || again.Performance == nil || again.Phases[1].Attempts != 1 {
		t.Errorf("taken up again: %+v", again)
	}
	plan := filepath.Join(dir, "plan.json")
	r := command("", "run", path, "--plan", plan, "--ids", "1,2,3", "--max-tokens", "2")
	if r.code != 0 || r.stderr != "" {
		t.Errorf("running an accepted plan: exit code %d, stderr %q", r.code, r.stderr)
	}
	data, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	as := func(status string) {
		t.Helper()
		if err := os.WriteFile(plan, []byte(strings.Replace(string(data), `"accepted"`, `"`+status+`"`, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	as("draft")
	r = command("", "run", path, "--plan", plan, "--ids", "1,2,3", "--max-tokens", "2")
	if r.code != 0 || !strings.Contains(r.stderr, "draft") {
		t.Errorf("running a draft: exit code %d, stderr %q", r.code, r.stderr)
	}
	as("failed")
	r = command("", "run", path, "--plan", plan, "--ids", "1,2,3", "--max-tokens", "2")
	if r.code != 1 || !strings.Contains(r.stderr, "failed its evaluation") {
		t.Errorf("running a failed plan: exit code %d, stderr %q", r.code, r.stderr)
	}
}

// Wrong usage and wrong workspaces are refused, with what to do.
func TestDeployRefuses(t *testing.T) {
	path := tiny("smollm-mha")
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no folder":        {[]string{"deploy", path}, 2, "--dir is missing"},
		"negative":         {[]string{"deploy", path, "--dir", t.TempDir(), "--seq", "-1"}, 2, "positive"},
		"no model":         {[]string{"deploy", "nowhere", "--dir", t.TempDir()}, 1, "nowhere"},
		"too long":         {[]string{"deploy", path, "--dir", t.TempDir(), "--seq", "1000000"}, 1, "context"},
		"no golden":        {[]string{"deploy", path, "--dir", t.TempDir(), "--golden", "missing.safetensors"}, 1, "missing.safetensors"},
		"a file as folder": {[]string{"deploy", path, "--dir", filepath.Join(path, "config.json")}, 1, "config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command("", tc.args...)
			if r.code != tc.code || !strings.Contains(r.stderr, tc.want) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", r.code, r.stderr, tc.code, tc.want)
			}
		})
	}
}
