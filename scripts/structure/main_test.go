package main

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestAPI(t *testing.T) {
	a := &api{methods: map[string]int{}}
	for pkg, source := range map[string]string{
		"npu": `package npu
type Device[T any] struct{}
func (d *Device[T]) Open() {}
func (d *Device[T]) close() {}
func (d hidden) Close() {}
type hidden int
const A, b = 1, 2
func Run() {}`,
		"npu/internal/x": "package x\nfunc Reachable() {}",
		"cmd/npukit":     "package main\nfunc Exported() {}",
	} {
		tree, err := parser.ParseFile(token.NewFileSet(), "x.go", source, 0)
		if err != nil {
			t.Fatal(err)
		}
		a.add(pkg, tree)
	}
	slices.Sort(a.names)
	if got, want := strings.Join(a.names, ","), "npu A,npu Device,npu Device.Open,npu Run"; got != want {
		t.Errorf("names %s, want %s", got, want)
	}
	if a.methods["npu.Device"] != 2 || a.methods["npu.hidden"] != 1 {
		t.Errorf("methods %v", a.methods)
	}
	got := unlisted(a.names, "npu A\nnpu Device # the device\n\nnpu Device.Open\nnpu Gone\n")
	if len(got) != 2 || !strings.HasPrefix(got[0], "npu Run: new") || !strings.HasPrefix(got[1], "npu Gone: in ") {
		t.Errorf("unlisted: %q", got)
	}
}

func TestFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	long := strings.Repeat("é", maxColumns+1)
	for name, text := range map[string]string{
		"a.go":     "// " + long[:2*maxColumns-6] + "\n\t//" + long[:2*maxColumns-10] + "\n",
		"table.md": "| " + long + " |\n" + long + "\n",
		"data.txt": long,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := longLines([]string{"a.go", "data.txt", "table.md"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"a.go:2: 121 columns, at most 120", "table.md:2: 121 columns, at most 120",
	}; !slices.Equal(got, want) {
		t.Errorf("long lines %q, want %q", got, want)
	}

	files := []string{"a/b/c.go", "a/b/d.go", "a/e.go"}
	if dir, n, full := fullFolders(files); dir != "a" || n != 2 || len(full) != 0 {
		t.Errorf("fullest folder %s has %d entries, %q", dir, n, full)
	}
	for i := range maxEntries {
		files = append(files, "a/"+strings.Repeat("x", i+1))
	}
	if dir, n, full := fullFolders(files); dir != "a" || n != maxEntries+2 || len(full) != 1 {
		t.Errorf("fullest folder %s has %d entries, %q", dir, n, full)
	}
}
