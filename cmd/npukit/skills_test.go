package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/npukit/npukit/skill/manual"
)

// list, show and export print the same fifteen skills.
func TestSkillsCommand(t *testing.T) {
	list := parse[[]manual.Manual](t, succeed(t, "", "skills", "list", "--json"))
	if len(list) != 15 || list[0].Body != "" {
		t.Fatalf("%d skills, the first with %d bytes of text", len(list), len(list[0].Body))
	}
	people := succeed(t, "", "skills", "list")
	dir := filepath.Join(t.TempDir(), "new", "skills")
	if out := succeed(t, "", "skills", "export", dir); !strings.Contains(out, "15 skills") {
		t.Errorf("export printed %q", out)
	}
	for _, m := range list {
		if !strings.Contains(people, m.Name+"\n") {
			t.Errorf("the list lacks %s", m.Name)
		}
		shown := succeed(t, "", "skills", "show", m.Name)
		if data, err := os.ReadFile(filepath.Join(dir, m.Name, "SKILL.md")); err != nil || string(data) != shown {
			t.Errorf("%s: show and export differ: %v", m.Name, err)
		}
		if one := parse[manual.Manual](t, succeed(t, "", "skills", "show", m.Name, "--json")); one.Body == "" ||
			one.Description != m.Description {
			t.Errorf("%s as JSON: %+v", m.Name, one)
		}
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"skills"}, 2, "missing"},
		{[]string{"skills", "teach"}, 2, "teach"},
		{[]string{"skills", "show"}, 2, "NAME is missing"},
		{[]string{"skills", "show", "no-such"}, 1, "full-model"},
		{[]string{"skills", "export", "/dev/null/x"}, 1, "/dev/null"},
		{[]string{"skills", "promote", dir}, 2, "DIR is missing"},
		{[]string{"skills", "promote", dir, dir}, 1,
			dir + " is no workspace, which is the folder that npukit deploy --dir names"},
	} {
		if r := command("", tc.args...); r.code != tc.code || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%v: code %d, stderr %q", tc.args, r.code, r.stderr)
		}
	}
}

// Commands and flags in the skills' texts exist.
func TestSkillsNameCommandsThatExist(t *testing.T) {
	calls := regexp.MustCompile("(?:`|\n    )npukit ([a-z]+)([^`\n]*)")
	flags := regexp.MustCompile(`--[a-z-]+`)
	for _, m := range manual.All() {
		for _, call := range calls.FindAllStringSubmatch(m.Text, -1) {
			help := command("", call[1], "--help")
			if call[1] == "skills" {
				help = command("", "skills", strings.Fields(call[2])[0], "--help")
			}
			if help.code != 0 || !strings.Contains(help.out, "npukit "+call[1]) {
				t.Errorf("%s names the unknown command %q", m.Name, call[0])
				continue
			}
			for _, flag := range flags.FindAllString(call[2], -1) {
				if !strings.Contains(help.out, flag) {
					t.Errorf("%s: %q has no flag %s", m.Name, call[0], flag)
				}
			}
		}
	}
}
