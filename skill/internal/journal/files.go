package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/npukit/npukit/internal/readfile"
)

// maxWritten bounds the files of a workspace that are read again: the plan of a model of 36 layers takes less than a tenth, and journals less than a megabyte.
const MaxFile = 64 << 20

// readWritten reads a file of a workspace, where anybody may have put anything.
func ReadFile(path string) ([]byte, error) { return readfile.Regular(path, MaxFile) }

// hashOf is the SHA-256 of a value's JSON.
func Hash(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

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
	FolderKernels   = "kernels" // pages of what was learnt of each kind
	FileLock        = "lock"
)
