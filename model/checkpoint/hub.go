package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Resolve returns the path of the checkpoint that path refers to. A folder of the Hugging Face
// cache, models--org--name, refers to its snapshot: the one that refs/main names, or else the only
// one. Resolve returns every other path unchanged, whether it exists or not.
func Resolve(path string) (string, error) {
	snapshots := filepath.Join(path, "snapshots")
	if info, err := os.Stat(snapshots); err != nil || !info.IsDir() || isFile(filepath.Join(path, "config.json")) {
		return path, nil
	}
	entries, err := os.ReadDir(snapshots)
	if err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	var revisions []string
	for _, e := range entries {
		if isFolder(filepath.Join(snapshots, e.Name())) {
			revisions = append(revisions, e.Name())
		}
	}
	main, err := readText(filepath.Join(path, "refs", "main"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if len(revisions) == 0 {
		return "", fileErrorf(path, "has no snapshot: was the download interrupted?")
	}
	list := strings.Join(revisions, ", ")
	if err == nil {
		revision := strings.TrimSpace(string(main))
		if slices.Contains(revisions, revision) {
			return filepath.Join(snapshots, revision), nil
		}
		return "", fileErrorf(path, "refs/main names the snapshot %.100q, which is missing: download the model "+
			"again, or give the path of a snapshot (%s)", revision, list)
	}
	if len(revisions) == 1 {
		return filepath.Join(snapshots, revisions[0]), nil
	}
	return "", fileErrorf(path, "has %d snapshots and no refs/main: give the path of one (%s)",
		len(revisions), list)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// hubPrefix is the prefix of a model's folder in the Hugging Face cache.
const hubPrefix = "models--"

// Name returns the common name of the checkpoint at a path: the name of its folder, or of its file
// without .gguf. A snapshot in the Hugging Face cache has the name of its repository.
func Name(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // "." has a name too
	}
	snapshots, name := filepath.Split(path)
	snapshots = filepath.Clean(snapshots)
	repository, ok := strings.CutPrefix(filepath.Base(filepath.Dir(snapshots)), hubPrefix)
	if !ok || filepath.Base(snapshots) != "snapshots" {
		return strings.TrimSuffix(name, ".gguf")
	}
	if i := strings.LastIndex(repository, "--"); i >= 0 { // org--name
		repository = repository[i+2:]
	}
	return repository
}
