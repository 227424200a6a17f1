package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Picture is a report that can be drawn, such as those of gate/plot.
type Picture interface {
	WritePNG(w io.Writer) error
}

// Save writes a report to dir, which it creates if needed: name.txt for people, name.json for
// programs and, if the report is a [Picture], name.png. Each file is written atomically and
// replaces an older one. If the picture cannot be drawn, Save returns its error after writing the
// other two files.
func Save(dir, name string, report fmt.Stringer) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\:`) {
		return badInput("name", "%q is not a file name: want no slashes, colons or leading dot", name)
	}
	if report == nil {
		return badInput("report", "the report is nil")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("gate: create the folder for reports: %w", err)
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("gate: report %s as JSON: %w", name, err)
	}
	path := filepath.Join(dir, name)
	if err := atomically(path+".txt", func(w io.Writer) error {
		_, err := io.WriteString(w, report.String())
		return err
	}); err != nil {
		return err
	}
	if err := atomically(path+".json", func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	}); err != nil {
		return err
	}
	if p, ok := report.(Picture); ok {
		return atomically(path+".png", p.WritePNG)
	}
	return nil
}

// atomically writes a file through a temporary one, so that path has the old content or all of the
// new.
func atomically(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".*.tmp")
	if err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	closed := false
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("gate: %s: %w", path, err)
		if !closed {
			err = errors.Join(err, f.Close())
		}
		err = errors.Join(err, os.Remove(f.Name()))
	}()
	if err = write(f); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil { // CreateTemp makes it 0600
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	closed = true
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
