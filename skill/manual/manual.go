// Package manual has the skills of deployments as SKILL.md documents, in the open Agent Skills
// format.
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

// fileName is the name of a skill's file in the open Agent Skills format. Its folder has the name
// of the skill.
const fileName = "SKILL.md"

// Manual is a skill for agents and people: its purpose, when to use it, and the steps. Each
// built-in skill has a manual of its name.
//
// Source of the format: agentskills.io/specification.
type Manual struct {
	Name          string            `json:"name" yaml:"name"`
	Description   string            `json:"description" yaml:"description"` // purpose, and when to use it
	License       string            `json:"license,omitempty" yaml:"license"`
	Compatibility string            `json:"compatibility,omitempty" yaml:"compatibility"` // requirements
	Metadata      map[string]string `json:"metadata,omitempty" yaml:"metadata"`
	AllowedTools  string            `json:"allowed_tools,omitempty" yaml:"allowed-tools"` // separated by spaces
	Body          string            `json:"body,omitempty" yaml:"-"`                      // Markdown
	Text          string            `json:"-" yaml:"-"`                                   // the whole file
}

// Limits of the format, in characters. Longer bodies belong in files of their own.
const (
	manualName          = 64
	manualDescription   = 1024
	manualCompatibility = 500
	manualLines         = 500
)

// maxManual bounds the size of a manual's file.
const maxManual = 1 << 20

// builtInNames returns the names of the built-in skills, in the order of a deployment.
func builtInNames() []string {
	return []string{"deploy-new-llm", "build-cpu-reference", "kernel-validation", "single-block", "full-model",
		"prefill-optimisation", "decode-optimisation",
		"finalise-and-learn", "independent-evaluation", "opt-merge-multi-launch-kernels", "opt-buffer-object-reuse",
		"opt-layout-alignment",
		"debug-runtime-failure", "debug-bo-corruption", "debug-multi-launch-merge"}
}

// All returns the manuals of the built-in skills, in the order of a deployment.
func All() []Manual {
	var list []Manual
	for _, name := range builtInNames() {
		m, err := Find(name)
		if err != nil {
			panic(err) // a test parses all embedded files
		}
		list = append(list, m)
	}
	return list
}

// Find returns the manual of a built-in skill.
func Find(name string) (Manual, error) {
	data, err := manualFiles.ReadFile("skills/" + name + "/" + fileName)
	if err != nil {
		return Manual{}, fmt.Errorf("manual: no skill %q; want one of %s", name, strings.Join(builtInNames(), ", "))
	}
	return Parse(name, data)
}

// Parse parses a SKILL.md and checks it against the format. Folder is the name of its folder.
func Parse(folder string, data []byte) (Manual, error) {
	m := Manual{Text: string(data)}
	if err := m.parse(); err != nil {
		return Manual{}, fmt.Errorf("manual: %s/%s: %w", folder, fileName, err)
	}
	if err := m.validate(folder); err != nil {
		return Manual{}, fmt.Errorf("manual: %s/%s: %w", folder, fileName, err)
	}
	return m, nil
}

// parse splits the file into YAML, between two lines of three dashes, and Markdown.
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
		return errors.New(`its front matter does not end: want a second line "---"`)
	}
	d := yaml.NewDecoder(bytes.NewReader([]byte(front)))
	d.KnownFields(true)
	if err := d.Decode(m); err != nil {
		return fmt.Errorf("its front matter: %w", err)
	}
	m.Body = strings.TrimSpace(body)
	return nil
}

// validate checks the fields.
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
			return fmt.Errorf("%s has %d characters, at most %d are allowed", f.field, n, f.most)
		}
	}
	switch {
	case m.Name != folder:
		return fmt.Errorf("name is %q, but its folder is %q: they must be the same", m.Name, folder)
	case m.Body == "":
		return errors.New("it has no text after its front matter")
	case strings.Count(m.Body, "\n") >= manualLines:
		return fmt.Errorf("it has %d lines, at most %d are allowed: put the rest into files beside it",
			strings.Count(m.Body, "\n")+1, manualLines)
	}
	return nil
}

// validManualName checks that a name can be the name of a folder on any system.
func validManualName(name string) error {
	legal := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }
	switch {
	case name == "" || len(name) > manualName:
		return fmt.Errorf("name has %d characters, want 1 to %d", len(name), manualName)
	case strings.ContainsFunc(name, func(c rune) bool { return !legal(c) }):
		return fmt.Errorf("name is %q, want lower-case letters, digits and hyphens", name)
	case name[0] == '-' || name[len(name)-1] == '-' || strings.Contains(name, "--"):
		return fmt.Errorf("name is %q: want no hyphen at an end, or next to another", name)
	}
	return nil
}

// Export writes manuals into folders of dir, where agents look for them. It returns an error if a
// file exists with other content, and does not touch it.
func Export(dir string, list []Manual) error {
	for _, m := range list {
		if err := validManualName(m.Name); err != nil {
			return fmt.Errorf("manual: %w", err)
		}
		path := filepath.Join(dir, m.Name, fileName)
		old, err := readfile.Regular(path, maxManual)
		switch {
		case err == nil && string(old) == m.Text:
			continue
		case err == nil:
			return fmt.Errorf("manual: %s exists with other content: remove it, or export into "+
				"another folder", path)
		case !errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("manual: %w", err)
		}
		if err := atomicfile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("manual: %w", err)
		}
		if err := atomicfile.Write(path, []byte(m.Text)); err != nil {
			return fmt.Errorf("manual: %w", err)
		}
	}
	return nil
}
