package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/npukit/npukit/internal/readfile"
)

// MaxFile bounds the files of a workspace that are read. The plan of a model of 36 layers has less
// than a tenth of that, and a journal has less than a megabyte.
const MaxFile = 64 << 20

// ReadFile reads a regular file of a workspace, whose content is not trusted.
func ReadFile(path string) ([]byte, error) { return readfile.Regular(path, MaxFile) }

// Hash returns the SHA-256 of a value's JSON.
func Hash(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// Names of files in a workspace. All files but the journal are derived from it.
const (
	FileJournal     = "journal.jsonl"
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
