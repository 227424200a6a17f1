package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/internal/readfile"
)

// Names of files in a workspace. Everything but the journal is derived from it, and is written again when it is lost.
const (
	FileJournal     = "journal.jsonl"
	FilePlan        = "plan.json"
	FileThresholds  = "thresholds.json"
	FileTiming      = "phase_timing.json"
	FilePerformance = "performance.json"
	FileKernels     = "kernels.json"
	FileEvaluation  = "evaluation_report.md"
	FolderReports   = "reports" // of gates: text, JSON and a picture each
	folderKernels   = "kernels" // pages of what was learnt of each kind
	fileLock        = "lock"
)

// workspace is a folder that one process at a time works in.
type workspace struct {
	dir     string
	lock    io.Closer
	journal *journal
	now     func() time.Time
	write   func(path string, data []byte) error
}

// lockWorkspace locks a folder that is there.
func lockWorkspace(dir string) (io.Closer, error) {
	lock, err := lockFile(filepath.Join(dir, fileLock))
	if err != nil && !errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("skill: workspace %s: %w", dir, err)
	}
	return lock, err
}

// openWorkspace makes the folder, locks it and reads its journal. Held is a lock that the caller has taken and gives up, or nil.
func openWorkspace(dir string, held io.Closer) (w *workspace, records []Record, err error) {
	if dir == "" {
		return nil, nil, errors.New("skill: a deployment needs a folder: set Options.Dir")
	}
	if err := atomicfile.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("skill: workspace: %w", err)
	}
	if err := othersFiles(dir); err != nil {
		return nil, nil, err
	}
	lock := io.Closer(io.NopCloser(nil))
	if held == nil {
		if lock, err = lockWorkspace(dir); err != nil {
			return nil, nil, err
		}
	}
	for _, at := range []string{"", FolderReports, folderKernels} {
		if err := atomicfile.Sweep(filepath.Join(dir, at)); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("skill: workspace: %w", err), lock.Close())
		}
	}
	w = &workspace{dir: dir, lock: lock, now: time.Now, write: atomicfile.Write}
	if w.journal, records, err = openJournal(filepath.Join(dir, FileJournal)); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return w, records, nil
}

// othersFiles reports a folder that has files and no journal: it is somebody else's, and a deployment would write among its files and over them. Hidden ones do not count,
// which desktops and version control leave anywhere, nor an empty journal, which is what a full disk leaves.
func othersFiles(dir string) error {
	if info, err := os.Lstat(filepath.Join(dir, FileJournal)); err == nil && info.Size() > 0 {
		return nil
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("skill: workspace: %w", err)
	}
	for _, f := range files {
		if name := f.Name(); name != FileJournal && name != fileLock && !strings.HasPrefix(name, ".") {
			return fmt.Errorf("skill: %s has %s in it and no %s, so that it is no deployment's: use a new folder, or an empty one", dir, name, FileJournal)
		}
	}
	return nil
}

// noWorkspace is the error of a folder without a journal.
func noWorkspace(dir string, err error) error {
	return fmt.Errorf("skill: %s is no workspace, which is the folder that npukit deploy --dir names: %w", dir, err)
}

func (w *workspace) path(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

// put writes a derived file, unless it is there already as it should be. Its error is one of the disk, which no skill can mend.
func (w *workspace) put(name string, data []byte) error {
	path := w.path(name)
	if old, err := readWritten(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return storageError{fmt.Errorf("skill: workspace: %w", err)}
	}
	if err := w.write(path, data); err != nil {
		return storageError{fmt.Errorf("skill: workspace: writing %s: %w; nothing is lost: run this again once it can be written", name, err)}
	}
	return nil
}

// putJSON writes a derived file for programs.
func (w *workspace) putJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return storageError{fmt.Errorf("skill: workspace: %s: %w", name, err)}
	}
	return w.put(name, append(data, '\n'))
}

func (w *workspace) close() error { return errors.Join(w.journal.close(), w.lock.Close()) }

// maxWritten bounds the files of a workspace that are read again: the plan of a model of 36 layers takes less than a tenth, and journals less than a megabyte.
const maxWritten = 64 << 20

// readWritten reads a file of a workspace, where anybody may have put anything.
func readWritten(path string) ([]byte, error) { return readfile.Regular(path, maxWritten) }

// hashOf is the SHA-256 of a value's JSON.
func hashOf(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
