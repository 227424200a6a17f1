package lesson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Lessons that are not valid are refused.
func TestReadLessons(t *testing.T) {
	const good = `{"name":"lesson-a","device":"cpu","trigger":{"error":"timeout"},"cause":"c",` +
		`"change":{"chunk":16},"remedy":"r","evidence":"e"}`
	for _, tc := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"a verdict", `"cause"`, `"verdict":"pass","cause"`, "verdict"},
		{"another name", "lesson-a", "lesson-b", "folder"},
		{"the name of a built-in skill", "lesson-a", "full-model", "begins with"},
		{"a path", "lesson-a", "lesson-../x", "lower-case"},
		{"no device", `"cpu"`, `""`, "device"},
		{"no trigger", `{"error":"timeout"}`, `{}`, "trigger"},
		{"two triggers", `"error":"timeout"`, `"error":"timeout","gate":"paper"`, "trigger"},
		{"an error that nobody knows", "timeout", "fire", "trigger"},
		{"a phase that tries no plans", `"error":"timeout"`, `"phase":"evaluation"`, "trigger"},
		{"no change", `{"chunk":16}`, `{}`, "proposes nothing"},
		{"a change that is no object", `{"chunk":16}`, `[]`, "no object"},
		{"no JSON", `{"name"`, `"name"`, "lesson.json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "lesson-a"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "lesson-a", FileName),
				[]byte(strings.Replace(good, tc.old, tc.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			list, err := Read(dir)
			if tc.want == "" && (err != nil || len(list) != 1) || tc.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%d lessons, %v; want an error about %q", len(list), err, tc.want)
			}
		})
	}
	if _, err := Read("/no/such/folder"); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

// Only the part of a remedy that the final plan still has was verified.
func TestLastingChange(t *testing.T) {
	before := journal.Recipe{SeqLen: 40, Chunk: 16, Activations: dtype.BF16, Cache: dtype.BF16}
	remedy := before
	remedy.Activations, remedy.Cache = dtype.F32, dtype.F32
	tuned := remedy
	tuned.Cache, tuned.Chunk = dtype.F16, 32
	for _, tc := range []struct {
		name  string
		final journal.Recipe
		want  string
	}{
		{"all of it", remedy, `{"activations":"F32","cache":"F32"}`},
		{"half of it", tuned, `{"activations":"F32"}`},
		{"given up", before, ""},
	} {
		if got, err := lastingChange(before, remedy, tc.final); err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.name, got, err, tc.want)
		}
	}
}

// A lesson that is too long for a manual is an error, and nothing is written.
func TestLessonTooLong(t *testing.T) {
	p, dir := journal.Prefill, t.TempDir()
	l := Lesson{Name: "lesson-long", Device: "cpu", Trigger: Trigger{Phase: &p}, Cause: "c",
		Change: []byte("{\"chunk\":" + strings.Repeat("\n", 600) + "512}"), Remedy: "r", Evidence: "e"}
	if written, err := Write(dir, []Lesson{l}); err == nil || len(written) > 0 || !strings.Contains(err.Error(),
		"lesson-long") {
		t.Errorf("%v, %v", written, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("there is %v", list)
	}
}

// A remedy of any length is cut so that the manual's description is valid.
func TestLongRemedy(t *testing.T) {
	p := journal.Prefill
	for _, letter := range []string{"x", "\u00e4"} {
		l := Lesson{Name: "lesson-long", Device: "cpu", Trigger: Trigger{Phase: &p}, Cause: "c",
			Change: []byte(`{"chunk":512}`), Remedy: strings.Repeat(letter, 5000), Evidence: "e"}
		m, err := l.Manual()
		if err != nil || len(m.Description) < maxDescription {
			t.Errorf("%v, a description of %d bytes", err, len(m.Description))
		}
	}
}
