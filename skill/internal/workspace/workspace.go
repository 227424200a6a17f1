// Package workspace is the folder of a deployment: its lock, its journal, and the files that are
// derived from the journal.
package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/skill/internal/journal"
)

// ErrLocked is wrapped by errors about a workspace that another process works on.
var ErrLocked = errors.New("skill: another process works on this workspace")

// Workspace is a folder that one process at a time works in.
type Workspace struct {
	Dir   string
	Log   *journal.Log                         // nil where only files are written
	Write func(path string, data []byte) error // replaces a file; tests make it fail

	lock io.Closer
}

// Files returns a workspace that writes files and has neither lock nor journal.
func Files(dir string) *Workspace { return &Workspace{Dir: dir, Write: atomicfile.Write} }

// Lock locks a folder that exists. It returns ErrLocked if another process has the lock.
func Lock(dir string) (io.Closer, error) {
	lock, err := lockFile(filepath.Join(dir, FileLock))
	if err != nil && !errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("skill: workspace %s: %w", dir, err)
	}
	return lock, err
}

// Open creates the folder if it does not exist, locks it and reads its journal. If held is not nil,
// it is the folder's lock, which the caller has taken and releases.
func Open(dir string, held io.Closer) (*Workspace, error) {
	if dir == "" {
		return nil, errors.New("skill: a deployment needs a folder: set Options.Dir")
	}
	if err := atomicfile.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("skill: workspace: %w", err)
	}
	if err := checkOwn(dir); err != nil {
		return nil, err
	}
	lock := io.Closer(io.NopCloser(nil))
	var err error
	if held == nil {
		if lock, err = Lock(dir); err != nil {
			return nil, err
		}
	}
	for _, sub := range []string{"", FolderReports, FolderKernels} {
		if err := atomicfile.Sweep(filepath.Join(dir, sub)); err != nil {
			return nil, errors.Join(fmt.Errorf("skill: workspace: %w", err), lock.Close())
		}
	}
	w := &Workspace{Dir: dir, Write: atomicfile.Write, lock: lock}
	if w.Log, err = journal.OpenLog(filepath.Join(dir, journal.FileJournal)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return w, nil
}

// checkOwn returns an error if the folder has files and no journal: it is not a workspace, and a
// deployment would overwrite its files. Hidden files do not count, since desktops and version
// control leave them anywhere. Neither does an empty journal, which a full disk leaves.
func checkOwn(dir string) error {
	if info, err := os.Lstat(filepath.Join(dir, journal.FileJournal)); err == nil && info.Size() > 0 {
		return nil
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("skill: workspace: %w", err)
	}
	for _, f := range files {
		if name := f.Name(); name != journal.FileJournal && name != FileLock && !strings.HasPrefix(name, ".") {
			return fmt.Errorf("skill: %s contains %s and no %s, so it is not a deployment's workspace: use a new "+
				"or an empty folder",
				dir, name, journal.FileJournal)
		}
	}
	return nil
}

// Path returns the path of a file in the workspace.
func (w *Workspace) Path(name string) string { return filepath.Join(w.Dir, filepath.FromSlash(name)) }

// Put writes a derived file if its content has changed. Its error is a journal.StorageError.
func (w *Workspace) Put(name string, data []byte) error {
	path := w.Path(name)
	if old, err := ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return journal.StorageError{Err: fmt.Errorf("skill: workspace: %w", err)}
	}
	if err := w.Write(path, data); err != nil {
		return journal.StorageError{Err: fmt.Errorf(
			"skill: workspace: writing %s: %w; nothing is lost: run this again once it can be written", name, err)}
	}
	return nil
}

// PutJSON writes a derived file for programs.
func (w *Workspace) PutJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return journal.StorageError{Err: fmt.Errorf("skill: workspace: %s: %w", name, err)}
	}
	return w.Put(name, append(data, '\n'))
}

// Close closes the journal and releases the lock.
func (w *Workspace) Close() error { return errors.Join(w.Log.Close(), w.lock.Close()) }
