package manual

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/internal/readfile"
)

//go:embed skills/*/SKILL.md
var manualFiles embed.FS

// ManualFile is the name of the file in which the open Agent Skills format keeps a skill, in a folder that is named like it.
const FileName = "SKILL.md"

// Manual is a skill written for an agent, or for a person: what it is for, when to take it, and what to do. Each built-in [Skill] has one of its name.
//
// Source of the format: agentskills.io/specification.
type Manual struct {
	Name          string            `json:"name" yaml:"name"`
	Description   string            `json:"description" yaml:"description"` // what it does, and when to use it
	License       string            `json:"license,omitempty" yaml:"license"`
	Compatibility string            `json:"compatibility,omitempty" yaml:"compatibility"` // what it needs around it
	Metadata      map[string]string `json:"metadata,omitempty" yaml:"metadata"`
	AllowedTools  string            `json:"allowed_tools,omitempty" yaml:"allowed-tools"` // separated by spaces
	Body          string            `json:"body,omitempty" yaml:"-"`                      // Markdown
	Text          string            `json:"-" yaml:"-"`                                   // the whole file
}

// Limits of the format, in characters; a body of more lines than manualLines belongs into files of its own.
const (
	manualName          = 64
	manualDescription   = 1024
	manualCompatibility = 500
	manualLines         = 500
)

// maxManual bounds what is read of a manual's file.
const maxManual = 1 << 20

// builtInNames are the names of the built-in skills, in the order of a deployment.
func builtInNames() []string {
	return []string{"deploy-new-llm", "build-cpu-reference", "kernel-validation", "single-block", "full-model", "prefill-optimisation", "decode-optimisation",
		"finalise-and-learn", "independent-evaluation", "opt-merge-multi-launch-kernels", "opt-buffer-object-reuse", "opt-layout-alignment",
		"debug-runtime-failure", "debug-bo-corruption", "debug-multi-launch-merge"}
}

// Manuals returns the manuals of the built-in skills, in the order of a deployment.
func All() []Manual {
	var list []Manual
	for _, name := range builtInNames() {
		m, err := Find(name)
		if err != nil {
			panic(err) // the files are compiled in, and a test reads them all
		}
		list = append(list, m)
	}
	return list
}

// BuiltInManual returns the manual of a built-in skill.
func Find(name string) (Manual, error) {
	data, err := manualFiles.ReadFile("skills/" + name + "/" + FileName)
	if err != nil {
		return Manual{}, fmt.Errorf("manual: no skill %q; want one of %s", name, strings.Join(builtInNames(), ", "))
	}
	return Parse(name, data)
}

// ParseManual reads a SKILL.md and holds it to the rules of the format. folder is the name of the folder that it lies in.
func Parse(folder string, data []byte) (Manual, error) {
	m := Manual{Text: string(data)}
	if err := m.parse(); err != nil {
		return Manual{}, fmt.Errorf("skill: %s/%s: %w", folder, FileName, err)
	}
	if err := m.validate(folder); err != nil {
		return Manual{}, fmt.Errorf("skill: %s/%s: %w", folder, FileName, err)
	}
	return m, nil
}

// parse takes the file apart: YAML between two lines of three dashes, then Markdown.
func (m *Manual) parse() error {
	if !utf8.ValidString(m.Text) {
		return errors.New("it is not UTF-8")
	}
	text := strings.ReplaceAll(m.Text, "\r\n", "\n")
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return errors.New(`it does not begin with a line "---": want front matter with name and description`)
	}
	front, body, ok := strings.Cut("\n"+rest, "\n---\n")
	if !ok {
		return errors.New(`its front matter has no end: want a second line "---"`)
	}
	d := yaml.NewDecoder(bytes.NewReader([]byte(front)))
	d.KnownFields(true)
	if err := d.Decode(m); err != nil {
		return fmt.Errorf("its front matter: %w", err)
	}
	m.Body = strings.TrimSpace(body)
	return nil
}

// validate holds the fields to the rules.
func (m *Manual) validate(folder string) error {
	if err := validManualName(m.Name); err != nil {
		return err
	}
	for _, f := range []struct {
		field, value string
		most         int
		required     bool
	}{
		{"description", m.Description, manualDescription, true},
		{"compatibility", m.Compatibility, manualCompatibility, false},
	} {
		switch n := utf8.RuneCountInString(f.value); {
		case f.required && strings.TrimSpace(f.value) == "":
			return fmt.Errorf("%s is empty", f.field)
		case n > f.most:
			return fmt.Errorf("%s has %d characters, %d are allowed", f.field, n, f.most)
		}
	}
	switch {
	case m.Name != folder:
		return fmt.Errorf("name is %q, and its folder is called %q: they must be the same", m.Name, folder)
	case m.Body == "":
		return errors.New("it has no text behind its front matter")
	case strings.Count(m.Body, "\n") >= manualLines:
		return fmt.Errorf("it has %d lines, %d at most are read at once: put the rest into files beside it", strings.Count(m.Body, "\n")+1, manualLines)
	}
	return nil
}

// validManualName holds a name to the rules, so that it can be the name of a folder anywhere.
func validManualName(name string) error {
	legal := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }
	switch {
	case name == "" || len(name) > manualName:
		return fmt.Errorf("name has %d characters, want 1 to %d", len(name), manualName)
	case strings.ContainsFunc(name, func(c rune) bool { return !legal(c) }):
		return fmt.Errorf("name is %q, want lower-case letters, digits and hyphens", name)
	case name[0] == '-' || name[len(name)-1] == '-' || strings.Contains(name, "--"):
		return fmt.Errorf("name is %q: no hyphen may stand at an end, or next to another", name)
	}
	return nil
}

// ExportManuals writes manuals into folders of dir, where agents look for them. A file that is there and says something else is left alone, and is an error.
func Export(dir string, list []Manual) error {
	for _, m := range list {
		if err := validManualName(m.Name); err != nil {
			return fmt.Errorf("skill: %w", err)
		}
		path := filepath.Join(dir, m.Name, FileName)
		old, err := readfile.Regular(path, maxManual)
		switch {
		case err == nil && string(old) == m.Text:
			continue
		case err == nil:
			return fmt.Errorf("skill: %s is there already, with another text: remove it, or export into another folder", path)
		case !errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("skill: %w", err)
		}
		if err := atomicfile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("skill: %w", err)
		}
		if err := atomicfile.Write(path, []byte(m.Text)); err != nil {
			return fmt.Errorf("skill: %w", err)
		}
	}
	return nil
}
