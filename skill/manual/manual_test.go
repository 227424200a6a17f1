package manual

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every skill has a manual, every manual has a skill, and each is valid.
func TestManualsAreThoseOfTheSkills(t *testing.T) {
	var names []string
	for _, s := range builtInNames() {
		names = append(names, s)
		m, err := Find(s)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.Name != s || !strings.Contains(m.Description, "Use it ") || len(m.Body) < 1000 {
			t.Errorf("%s: name %q, description %q and a body of %d bytes do not teach anybody when to take it", s,
				m.Name, m.Description, len(m.Body))
		}
	}
	if len(names) != 15 {
		t.Errorf("%d skills, the paper has fifteen", len(names))
	}
	folders, err := manualFiles.ReadDir("skills")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if !slices.Contains(names, f.Name()) {
			t.Errorf("skills/%s is the manual of no skill", f.Name())
		}
	}
	if got := All(); len(got) != len(names) || got[0].Name != names[0] {
		t.Errorf("Manuals gives %d of %d", len(got), len(names))
	}
}

// Manuals that are not valid are refused, and the error names the rule.
func TestManualRules(t *testing.T) {
	const good = "---\nname: a-skill\ndescription: Does a thing. Use it when the thing is wanted.\n---\n\n# Text\n"
	if m, err := Parse("a-skill", []byte(good)); err != nil || m.Body != "# Text" {
		t.Fatalf("%+v, %v", m, err)
	}
	if m, err := Parse("a-skill", []byte(strings.ReplaceAll(good, "\n", "\r\n"))); err != nil || m.Body != "# Text" {
		t.Errorf("with CRLF: %+v, %v", m, err)
	}
	for _, tc := range []struct{ name, folder, old, new, want string }{
		{"no front matter", "a-skill", "---\nname", "name", "begin"},
		{"front matter without end", "a-skill", "wanted.\n---\n", "wanted.\n", "end"},
		{"upper case", "A-skill", "a-skill", "A-skill", "lower-case"},
		{"hyphen at the end", "a-skill-", "a-skill", "a-skill-", "hyphen"},
		{"two hyphens", "a--skill", "a-skill", "a--skill", "hyphen"},
		{"name that climbs", "..", "a-skill", "..", "lower-case"},
		{"name too long", strings.Repeat("a", 65), "a-skill", strings.Repeat("a", 65), "65 characters"},
		{"no name", "a-skill", "name: a-skill\n", "", "0 characters"},
		{"another folder", "b-skill", "", "", "folder"},
		{"no description", "a-skill", "description: Does a thing. Use it when the thing is wanted.\n", "",
			"description is empty"},
		{"description too long", "a-skill", "Does", strings.Repeat("x", 1024), "description has"},
		{"compatibility too long", "a-skill", "name:", "compatibility: " + strings.Repeat("x", 501) + "\nname:",
			"compatibility has"},
		{"a field that the format has not", "a-skill", "name:", "verdict: pass\nname:", "verdict"},
		{"a field of another type", "a-skill", "name:", "metadata: [1]\nname:", "front matter"},
		{"no text", "a-skill", "# Text", "", "no text"},
		{"too many lines", "a-skill", "# Text", strings.Repeat("x\n", 500) + "y", "501 lines"},
		{"not UTF-8", "a-skill", "Text", "\xff", "UTF-8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse(tc.folder, []byte(strings.Replace(good, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(),
				tc.folder+"/SKILL.md") {
				t.Errorf("error %v, want one about %q that names the file", err, tc.want)
			}
		})
	}
}

// An export has the files of the binary; files with other content are not touched.
func TestExportManuals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "skills")
	for range 2 {
		if err := Export(dir, All()); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range All() {
		if data, err := os.ReadFile(filepath.Join(dir, m.Name, fileName)); err != nil || string(data) != m.Text {
			t.Errorf("manual %s: %v, or another text", m.Name, err)
		}
	}
	mine := filepath.Join(dir, "full-model", fileName)
	if err := os.WriteFile(mine, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Export(dir, All()); err == nil || !strings.Contains(err.Error(), "other content") {
		t.Errorf("a changed file was not refused: %v", err)
	}
	if data, _ := os.ReadFile(mine); string(data) != "mine" {
		t.Error("a changed file was overwritten")
	}
}

// The manuals name only skills that exist.
func TestManualsNameWhatThereIs(t *testing.T) {
	for _, m := range All() {
		for _, other := range strings.FieldsFunc(m.Body,
			func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz-", r) }) {
			if strings.HasPrefix(other, "debug-") || strings.HasPrefix(other, "opt-") {
				if _, err := Find(other); err != nil {
					t.Errorf("%s sends to %s: %v", m.Name, other, err)
				}
			}
		}
	}
}
