package journal

import (
	"fmt"
)

// NoWorkspace returns the error for a folder without a journal.
func NoWorkspace(dir string, err error) error {
	return fmt.Errorf("skill: %s is no workspace, which is the folder that npukit deploy --dir names: %w", dir, err)
}
