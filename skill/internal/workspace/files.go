package workspace

import (
	"fmt"

	"github.com/npukit/npukit/internal/readfile"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Names of files in a workspace. All of them are derived from the journal, except the lock.
const (
	FilePlan        = "plan.json"
	FileThresholds  = "thresholds.json"
	FileTiming      = "phase_timing.json"
	FilePerformance = "performance.json"
	FileKernels     = "kernels.json"
	FileEvaluation  = "evaluation_report.md"
	FolderReports   = "reports" // of gates: text, JSON and a plot each
	FolderKernels   = "kernels" // a page for each kind of kernel
	FileLock        = "lock"
)

// ReadFile reads a regular file of a workspace, whose content is not trusted.
func ReadFile(path string) ([]byte, error) { return readfile.Regular(path, journal.MaxFile) }

// NoWorkspace returns the error for a folder without a journal.
func NoWorkspace(dir string, err error) error {
	return fmt.Errorf("skill: %s is no workspace, which is the folder that npukit deploy --dir names: %w", dir, err)
}
