// Package lesson has the lessons of deployments: changes to plans that were verified. A lesson is a
// file next to a SKILL.md; later deployments try it first.
package lesson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/internal/readfile"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/manual"
)

// FileName is the name of a [Lesson]'s file, in the folder of its SKILL.md.
const FileName = "lesson.json"

// maxDescription bounds the text in a manual's description, in bytes. [manual.Parse] refuses longer
// descriptions than the format allows; a test checks that this bound is within it.
const maxDescription = 924

// lessonPrefix begins the names of lessons, so that no lesson replaces a built-in skill.
const lessonPrefix = "lesson-"

// Lesson is something that a deployment has learned and verified: a change to the plan, and when to
// try it. In other deployments it is a proposal: in an optimisation phase the change is tried
// before all others, and after a failure it is tested before all other hypotheses. The gates
// decide.
type Lesson struct {
	Name     string          `json:"name"`
	Device   string          `json:"device"` // the kind of device
	Array    string          `json:"array,omitempty"`
	Trigger  Trigger         `json:"trigger"`
	Cause    string          `json:"cause"`
	Change   json.RawMessage `json:"change"` // for Recipe.With
	Remedy   string          `json:"remedy"` // the change for people
	Evidence string          `json:"evidence"`
}

// Trigger is when a lesson is tried: in an optimisation phase, or after a failure of a gate or of
// the device. Exactly one field is set.
type Trigger struct {
	Phase *journal.Phase `json:"phase,omitempty"` // Prefill or Decode
	Gate  string         `json:"gate,omitempty"`  // the gate that fails
	Error string         `json:"error,omitempty"` // the device's error, see errorKinds
}

// errorKinds returns the errors of devices that lessons distinguish.
func errorKinds() map[string]error {
	return map[string]error{"timeout": npu.ErrTimeout, "device-lost": npu.ErrDeviceLost,
		"no-context": npu.ErrNoContext, "memory": npu.ErrMemory}
}

// ErrorKind returns the kind of a symptom's error, or "". It looks at the text, which is all that
// the journal keeps.
func ErrorKind(s journal.Symptom) string {
	for name, err := range errorKinds() {
		if strings.Contains(s.Error, err.Error()) {
			return name
		}
	}
	return ""
}

// validate returns an error if the lesson is not valid.
func (l *Lesson) validate() error {
	kind := errorKinds()[l.Trigger.Error]
	n := 0
	for _, set := range []bool{l.Trigger.Phase != nil, l.Trigger.Gate != "", l.Trigger.Error != ""} {
		if set {
			n++
		}
	}
	var fields map[string]json.RawMessage
	switch {
	case !strings.HasPrefix(l.Name, lessonPrefix):
		return fmt.Errorf("name is %q, want one that begins with %q", l.Name, lessonPrefix)
	case l.Device == "":
		return errors.New("device is empty: a lesson is about one kind of device")
	case n != 1 || l.Trigger.Phase != nil && *l.Trigger.Phase != journal.Prefill &&
		*l.Trigger.Phase != journal.Decode || l.Trigger.Error != "" && kind == nil:
		return errors.New("trigger: want one of an optimisation phase, a gate, and a known kind of error")
	case len(l.Change) > journal.MaxPatch:
		return fmt.Errorf("change has %d bytes, at most %d are allowed", len(l.Change), journal.MaxPatch)
	}
	if err := json.Unmarshal(l.Change, &fields); err != nil || len(fields) == 0 {
		return fmt.Errorf("change is no object with fields: %w",
			errors.Join(err, errors.New("it proposes nothing")))
	}
	_, err := l.Manual() // which checks the name
	return err
}

// Manual returns the lesson's SKILL.md, or an error if it is too long for one.
func (l *Lesson) Manual() (manual.Manual, error) {
	when := fmt.Sprintf("in phase %s", PhaseText(l.Trigger.Phase))
	switch {
	case l.Trigger.Gate != "":
		when = fmt.Sprintf("when gate %s fails", l.Trigger.Gate)
	case l.Trigger.Error != "":
		when = fmt.Sprintf("when the device reports %q", errorKinds()[l.Trigger.Error])
	}
	where := l.Device
	if l.Array != "" {
		where += ", array " + l.Array
	}
	text := fmt.Sprintf("---\nname: %s\ndescription: %q\nmetadata:\n  sdk: github.com/npukit/npukit\n  kind: "+
		"lesson\n---\n\n# %s\n\n", l.Name,
		journal.Clip(fmt.Sprintf("A lesson from an npukit deployment on %s: %s. Use it %s.", l.Device, l.Remedy, when),
			maxDescription), l.Cause)
	text += fmt.Sprintf("- Trigger: %s, on device %s\n- Check: the plan with the change is made and run; gates "+
		"decide\n- Remedy: %s\n- Verified: %s\n\n", when, where, l.Remedy, l.Evidence)
	text += "The change, for `propose_plan_change`:\n\n    " + string(l.Change) + "\n"
	m, err := manual.Parse(l.Name, []byte(text))
	if err != nil {
		return m, fmt.Errorf("skill: lesson %s is not valid as a manual: %w", l.Name, err)
	}
	return m, nil
}

func PhaseText(p *journal.Phase) string {
	if p == nil {
		return ""
	}
	return p.String()
}

// Write writes lessons into folders of dir, where [Read] and agents find them. It does not touch
// lessons that exist, and returns the names of those that it wrote.
func Write(dir string, list []Lesson) ([]string, error) {
	var written []string
	for _, l := range list {
		if err := l.validate(); err != nil {
			return written, fmt.Errorf("skill: lesson %q: %w", l.Name, err)
		}
		folder := filepath.Join(dir, l.Name)
		if _, err := os.Stat(filepath.Join(folder, FileName)); err == nil {
			continue
		}
		data, err := json.MarshalIndent(l, "", "  ")
		if err != nil {
			return written, fmt.Errorf("skill: lesson %s: %w", l.Name, err)
		}
		m, err := l.Manual()
		if err != nil {
			return written, err
		}
		if err := manual.Export(dir, []manual.Manual{m}); err != nil {
			return written, err
		}
		if err := atomicfile.Write(filepath.Join(folder, FileName), append(data, '\n')); err != nil {
			return written, fmt.Errorf("skill: lesson %s: %w", l.Name, err)
		}
		written = append(written, l.Name)
	}
	return written, nil
}

// maxLesson bounds the size of a lesson's file.
const maxLesson = 1 << 20

// Read reads the lessons in the folders of dir. It ignores folders without a lesson.
func Read(dir string) ([]Lesson, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("skill: lessons: %w", err)
	}
	var list []Lesson
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), FileName)
		data, err := readfile.Regular(path, maxLesson)
		if errors.Is(err, fs.ErrNotExist) || !e.IsDir() {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("skill: lessons: %w", err)
		}
		var l Lesson
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err = d.Decode(&l); err == nil {
			err = l.validate()
		}
		if err == nil && l.Name != e.Name() {
			err = fmt.Errorf("name is %q, but its folder is %q", l.Name, e.Name())
		}
		if err != nil {
			return nil, fmt.Errorf("skill: %s: %w", path, err)
		}
		list = append(list, l)
	}
	return list, nil
}
