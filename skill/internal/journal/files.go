package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// MaxFile bounds the files of a workspace that are read. The plan of a model of 36 layers has less
// than a tenth of that, and a journal has less than a megabyte.
const MaxFile = 64 << 20

// Hash returns the SHA-256 of a value's JSON.
func Hash(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// FileJournal is the name of the journal in its workspace.
const FileJournal = "journal.jsonl"
