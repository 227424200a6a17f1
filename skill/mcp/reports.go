package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/npukit/npukit/skill/manual"
)

// Limits of one call of read_report.
const (
	maxRead  = 64 << 10 // bytes of a file
	maxFiles = 2000
)

// reportText is a part of a file in the workspace, or the list of files.
type reportText struct {
	Name  string       `json:"name,omitempty"`
	Text  string       `json:"text,omitempty"`
	Size  int64        `json:"size"`
	Next  int64        `json:"next,omitempty"` // offset of the next part; 0 at the end
	Files []reportFile `json:"files,omitempty"`
}

// reportFile is a file that can be read.
type reportFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// readable reports whether a file is text that can be read.
func readable(name string) bool {
	switch path.Ext(name) {
	case ".md", ".json", ".jsonl", ".txt":
		return !strings.HasPrefix(path.Base(name), ".") // incomplete files
	}
	return false
}

// readReport reads a file of the workspace. [os.Root] does not follow paths or links out of it.
func (s *Server) readReport(_ context.Context, _ *sdk.CallToolRequest, in reportArgs) (any, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	defer root.Close()
	if in.Name == "" {
		return listReports(root)
	}
	if !readable(in.Name) {
		return nil, fmt.Errorf("mcp: %q cannot be read: call read_report without a name for a list of files",
			in.Name)
	}
	info, err := root.Stat(in.Name)
	if err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("mcp: %s is not a regular file", in.Name)
	case in.Offset < 0 || in.Offset > info.Size():
		return nil, fmt.Errorf("mcp: offset is %d, %s has %d bytes", in.Offset, in.Name, info.Size())
	}
	f, err := root.Open(in.Name)
	if err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	defer f.Close()
	data := make([]byte, min(maxRead, info.Size()-in.Offset))
	n, err := f.ReadAt(data, in.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	data = whole(data[:n], in.Offset+int64(n) < info.Size())
	r := reportText{Name: in.Name, Text: strings.ToValidUTF8(string(data), "?"), Size: info.Size()}
	if end := in.Offset + int64(len(data)); end < info.Size() {
		r.Next = end
	}
	return r, nil
}

// whole removes an incomplete character at the end, if more follows.
func whole(data []byte, more bool) []byte {
	for back := 1; more && back < utf8.UTFMax && back < len(data); back++ {
		if tail := data[len(data)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return data[:len(data)-back]
			}
			break
		}
	}
	return data
}

func listReports(root *os.Root) (any, error) {
	list := reportText{Files: []reportFile{}}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.Type().IsRegular() || !readable(name):
			return nil
		case len(list.Files) == maxFiles:
			return fs.SkipAll
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was temporary
		}
		if err != nil {
			return err
		}
		list.Files = append(list.Files, reportFile{name, info.Size()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	return list, nil
}

// addSkills adds the manuals of all skills as resources.
func (s *Server) addSkills() {
	for _, m := range manual.All() {
		uri := "skill://" + m.Name
		s.mcp.AddResource(&sdk.Resource{URI: uri, Name: m.Name, Description: m.Description, MIMEType: "text/markdown"},
			func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: "text/markdown",
					Text: m.Text}}}, nil
			})
	}
}
