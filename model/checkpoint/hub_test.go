package checkpoint

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// hub writes a folder of the Hugging Face cache, whose snapshots are links to blobs.
func hub(t *testing.T, main string, revisions ...string) (dir string) {
	t.Helper()
	model := writeTiny(t, tiny("llama"))
	dir = filepath.Join(t.TempDir(), "models--acme--tiny-model")
	mkdir := func(path string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(filepath.Join(dir, "blobs"))
	mkdir(filepath.Join(dir, "refs"))
	mkdir(filepath.Join(dir, "snapshots"))
	if main != "" {
		put(t, filepath.Join(dir, "refs", "main"), []byte(main))
	}
	for _, revision := range revisions {
		snapshot := filepath.Join(dir, "snapshots", revision)
		mkdir(snapshot)
		for _, name := range []string{"config.json", "model.safetensors"} {
			blob := filepath.Join(dir, "blobs", "b-"+name)
			put(t, blob, get(t, filepath.Join(model, name)))
			if runtime.GOOS == "windows" { // the cache has copies there, as links need rights
				put(t, filepath.Join(snapshot, name), get(t, blob))
			} else if err := os.Symlink(filepath.Join("..", "..", "blobs", "b-"+name), filepath.Join(snapshot,
				name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// A folder of the Hugging Face cache resolves to its snapshot.
func TestHubCache(t *testing.T) {
	for _, tc := range []struct {
		name, main string
		revisions  []string
		want       string   // the snapshot, or
		says       []string // the error
	}{
		{name: "one snapshot", revisions: []string{"abc123"}, want: "abc123"},
		{name: "refs/main decides", main: "def456\n", revisions: []string{"abc123", "def456"}, want: "def456"},
		{name: "no refs/main", revisions: []string{"abc123", "def456"}, says: []string{"models--acme--tiny-model",
			"has 2 snapshots", "abc123, def456", "give the path of one"}},
		{name: "refs/main names one that is not there", main: "999", revisions: []string{"abc123"},
			says: []string{"models--acme--tiny-model", "refs/main", `"999"`, "abc123", "download"}},
		{name: "refs/main reaches outside", main: "../../x", revisions: []string{"abc123"},
			says: []string{"models--acme--tiny-model", "refs/main", `"../../x"`}},
		{name: "refs/main is empty", main: "\n", revisions: []string{"abc123"},
			says: []string{"models--acme--tiny-model", "refs/main", `""`}},
		{name: "no snapshot", says: []string{"has no snapshot", "models--acme--tiny-model", "interrupted"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := hub(t, tc.main, tc.revisions...)
			if tc.says != nil {
				_, err := Open(dir, nil)
				checkError(t, err, tc.says, errOfFile)
				return
			}
			c := open(t, dir)
			if want := filepath.Join(dir, "snapshots", tc.want); c.Path() != want {
				t.Errorf("opened %s, want %s", c.Path(), want)
			}
			if c.Config().Name != "tiny-model" || Name(c.Path()) != "tiny-model" {
				t.Errorf("names %q and %q, want tiny-model", c.Config().Name, Name(c.Path()))
			}
		})
	}
	dir := hub(t, "", "abc123", "def456")
	if c := open(t, filepath.Join(dir, "snapshots", "def456")); c.Config().Name != "tiny-model" {
		t.Errorf("a snapshot's name is %q", c.Config().Name)
	}
	_, err := Open(filepath.Dir(dir), nil)
	checkError(t, err, []string{"a Hugging Face cache (1 models)", "models--acme--tiny-model"}, errOfFile)
}

// Other paths resolve to themselves.
func TestResolveOthers(t *testing.T) {
	dir := writeTiny(t, tiny("llama"))
	if err := os.Mkdir(filepath.Join(dir, "snapshots"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "config.json"), filepath.Join(dir, "absent"), t.TempDir()} {
		if got, err := Resolve(path); err != nil || got != path {
			t.Errorf("%s leads to %q, %v", path, got, err)
		}
	}
}

func TestName(t *testing.T) {
	for path, want := range map[string]string{
		"a/Qwen3-0.6B": "Qwen3-0.6B", "a/b.gguf": "b", "a/b.Q4_0.gguf": "b.Q4_0",
		"hub/models--org--some-model/snapshots/abc": "some-model", "hub/models--gpt2/snapshots/abc/": "gpt2",
		"hub/models--org--m/snapshots/abc/w.gguf": "w", "x/snapshots/abc": "abc",
	} {
		if got := Name(filepath.FromSlash(path)); got != want {
			t.Errorf("%s is called %q, want %q", path, got, want)
		}
	}
}
