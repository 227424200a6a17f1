package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/npukit/npukit/internal/atomicfile"
)

// picture is a report that can be drawn, such as those of gate/plot.
type picture interface {
	WritePNG(w io.Writer) error
}

// Save writes a report to dir, which it creates if needed: name.txt for people, name.json for
// programs and, if the report has a method WritePNG(io.Writer) error, name.png. Each file is written
// atomically and replaces an older one. If the picture cannot be drawn, Save returns its error after writing the
// other two files.
func Save(dir, name string, report fmt.Stringer) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\:`) {
		return badInput("name", "%q is not a file name: want no slashes, colons or leading dot", name)
	}
	if report == nil {
		return badInput("report", "the report is nil")
	}
	if err := atomicfile.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("gate: create the folder for reports: %w", err)
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("gate: report %s as JSON: %w", name, err)
	}
	path := filepath.Join(dir, name)
	err = atomicfile.Write(path+".txt", []byte(report.String()))
	if err == nil {
		err = atomicfile.Write(path+".json", append(data, '\n'))
	}
	if p, ok := report.(picture); ok && err == nil {
		err = atomicfile.WriteTo(path+".png", p.WritePNG)
	}
	if err != nil {
		return fmt.Errorf("gate: report %s: %w", path, err)
	}
	return nil
}
