package readfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRegular(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{8, 100} {
		if data, err := Regular(path, limit); err != nil || string(data) != "12345678" {
			t.Errorf("limit %d: %q, %v", limit, data, err)
		}
	}
	for name, tc := range map[string]struct {
		path string
		want error
		text string
	}{
		"too large": {path, ErrTooLarge, "limit is 7 bytes"},
		"folder":    {dir, ErrNotRegular, "is a folder, not a regular file"},
		"device":    {os.DevNull, ErrNotRegular, "is a device"},
		"missing":   {filepath.Join(dir, "none"), fs.ErrNotExist, "none"},
	} {
		_, err := Regular(tc.path, 7)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) ||
			!strings.Contains(err.Error(), tc.path) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.text)
		}
	}
}
