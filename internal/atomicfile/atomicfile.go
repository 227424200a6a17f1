// Package atomicfile writes files that appear complete or not at all, and that survive a power
// failure once the call has returned.
//
// A file is written under a temporary name beside its place, synced, renamed, and its folder is
// synced. A process that is killed in between leaves the temporary file behind; [Sweep] removes
// those leftovers, and nothing else.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file with data. On an error the old file is unchanged.
func Write(path string, data []byte) error {
	return WriteTo(path, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	})
}

// WriteTo replaces the file with the output of write. On an error, write's included, the old file
// is unchanged.
func WriteTo(path string, write func(io.Writer) error) error {
	f, err := createTemp(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	// The rename comes before Close, which gives up the lock that keeps Sweep away. Windows
	// renames no open file, and removes none either, so that there the order is the other one.
	if renamesOpenFiles {
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		err = errors.Join(err, f.Close())
	} else {
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), path)
		}
	}
	if err != nil {
		if removed := os.Remove(f.Name()); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// createTemp creates a file under a temporary name, and locks it for as long as it is open.
func createTemp(dir string) (*os.File, error) {
	for try := 0; ; try++ {
		f, err := os.OpenFile(filepath.Join(dir, tempName()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) && try < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		lock(f)
		return f, nil
	}
}

// SyncTree makes dir durable with all files and folders in it. Call it before a rename that
// publishes a folder which another program filled. Links and special files are left alone.
func SyncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return SyncDir(path)
		case !entry.Type().IsRegular():
			return nil
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0) // Windows syncs only files that are open for writing
		if errors.Is(err, fs.ErrPermission) {
			f, err = os.Open(path)
		}
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// MkdirAll creates a folder with its parents, as [os.MkdirAll] does, and syncs the folders that got
// a new entry.
func MkdirAll(dir string, perm fs.FileMode) error {
	var created []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		created = append(created, at)
	}
	if err := os.MkdirAll(dir, perm); err != nil {
		return err
	}
	for _, at := range created {
		if err := SyncDir(filepath.Dir(at)); err != nil {
			return err
		}
	}
	return nil
}

// TempDir is a temporary folder that [Sweep] leaves alone until it is closed or its process has
// ended.
type TempDir struct {
	Path string
	f    *os.File // locked; nil where folders cannot be opened
}

// MkdirTemp creates a temporary folder in dir, or in [os.TempDir] if dir is empty.
func MkdirTemp(dir string) (*TempDir, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	for try := 0; ; try++ {
		path := filepath.Join(dir, tempName())
		err := os.Mkdir(path, 0o700)
		if errors.Is(err, fs.ErrExist) && try < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		t := &TempDir{Path: path}
		if renamesOpenFiles {
			if t.f, err = os.Open(path); err != nil {
				return nil, errors.Join(err, os.Remove(path))
			}
			lock(t.f)
		}
		return t, nil
	}
}

// Close removes the folder with everything in it, unless it was renamed.
func (t *TempDir) Close() error {
	err := os.RemoveAll(t.Path)
	if t.f != nil {
		err = errors.Join(err, t.f.Close())
	}
	return err
}

// Sweep removes the temporary files and folders that killed processes have left in dir. It leaves
// alone what has another name, belongs to another user, or is in use by a process that lives. A
// folder that does not exist has no leftovers.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweeping %s: %w", dir, err)
	}
	var errs []error
	for _, e := range entries {
		pid, ours := parseName(e.Name())
		if !ours || !e.IsDir() && !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if inUse(path, pid) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("sweeping: %w", err))
		}
	}
	return errors.Join(errs...)
}
