package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first", "second, longer", ""} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%q, %v, want %q", data, err, text)
		}
	}
	if list := entries(t, dir); len(list) != 1 {
		t.Errorf("the folder has %q", list)
	}
}

// A write that fails leaves the old file and nothing beside it; so does a rename that fails.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path, folder := filepath.Join(dir, "file"), filepath.Join(dir, "folder")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	if err := WriteTo(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, "half"); err != nil {
			return err
		}
		return full
	}); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if err := os.MkdirAll(filepath.Join(folder, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(folder, nil); err == nil {
		t.Error("a folder was replaced")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "old" {
		t.Errorf("%q, %v", data, err)
	}
	if list := entries(t, dir); len(list) != 2 {
		t.Errorf("the folder has %q", list)
	}
}

func TestMkdirAll(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(dir, "f", "b"), 0o755); err == nil {
		t.Error("a folder was made in a file")
	}
}

// SyncTree accepts files that cannot be written and links that lead nowhere.
func TestSyncTree(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, perm := range map[string]os.FileMode{"read-only": 0o400, "file": 0o600} {
		if err := os.WriteFile(filepath.Join(sub, path), []byte("x"), perm); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS != "windows" { // which needs a privilege for links
		if err := os.Symlink("missing", filepath.Join(sub, "dangling")); err != nil {
			t.Fatal(err)
		}
	}
	if err := SyncTree(dir); err != nil {
		t.Error(err)
	}
	if err := SyncTree(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
}

// TestMain is also a process that dies while it writes: see TestSweep.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ATOMICFILE_TEST_WRITE"); dir != "" {
		if _, err := MkdirTemp(dir); err != nil {
			panic(err)
		}
		err := WriteTo(filepath.Join(dir, "result"), func(w io.Writer) error {
			fmt.Println("writing")
			_, err := io.Copy(w, os.Stdin) // until it is killed
			return err
		})
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Leftovers of a process that was killed are removed, those of one that lives are not, and nor is
// anything that has another name.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), "ATOMICFILE_TEST_WRITE="+dir)
	stdin, err := writer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := writer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("writing"))); err != nil {
		t.Fatal(err)
	}
	others := []string{".npukit-1-zz.tmp", ".123.tmp", "npukit-1-0123456789abcdef.tmp", "file.tmp"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mine, err := MkdirTemp(dir)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func(want int, when string) {
		t.Helper()
		if err := Sweep(dir); err != nil {
			t.Error(err)
		}
		if list := entries(t, dir); len(list) != len(others)+want {
			t.Errorf("%s: the folder has %q", when, list)
		}
	}
	sweep(3, "while a process writes")
	if err := writer.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Wait() // killed
	sweep(1, "after it was killed")
	if err := mine.Close(); err != nil {
		t.Error(err)
	}
	// A process with the id of this one has left it, as in a container where every run is process
	// 1.
	name := filepath.Join(dir, tempName())
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sweep(1, "a new file of this process")
	old := started.Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	sweep(0, "an old file with this process id")
	if err := Sweep(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

func TestParseName(t *testing.T) {
	if pid, ok := parseName(tempName()); !ok || pid != os.Getpid() {
		t.Errorf("%d, %v", pid, ok)
	}
	for _, name := range []string{"", ".npukit-x-0123456789abcdef.tmp", tempName() + "x", "x" + tempName(),
		strings.Replace(tempName(), ".tmp", "", 1)} {
		if _, ok := parseName(name); ok {
			t.Errorf("%q is taken for a temporary name", name)
		}
	}
}
