package xdna

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/npukit/npukit/npu"
)

// compilerMode is the environment variable that makes the test binary act as a compiler, and its
// mode.
const compilerMode = "NPUKIT_TEST_COMPILER"

// compilerParent is the environment variable with the file for the process IDs of a hanging
// compiler.
const compilerParent = "NPUKIT_TEST_COMPILER_PARENT"

// compileForever runs a compiler that hangs.
func compileForever(file string) error {
	c := &Compiler{Command: []string{"/bin/sh", "-c",
		"sleep 1000 & echo $$ $! >" + file + "; wait"}, Cache: filepath.Dir(file)}
	_, err := c.artefact(context.Background(), addProgram("add"))
	return err
}

// actAsCompiler compiles the program in the folder that is the last argument.
func actAsCompiler(mode string) error {
	dir := os.Args[len(os.Args)-1]
	data, err := os.ReadFile(filepath.Join(dir, "program.json"))
	if err != nil {
		return err
	}
	var p npu.Program
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	fmt.Printf("compiling %s\nhalf way", p.Name)
	if err := os.WriteFile(filepath.Join(dir, "p.elf"), []byte("compiled"), 0o666); err != nil {
		return err
	}
	args := len(p.Args)
	switch mode {
	case "hangs":
		time.Sleep(time.Minute)
	case "fails":
		return errors.New("error: no tile fits")
	case "forgets":
		return nil
	case "wrong":
		args--
	}
	sizes := make([]int, args)
	for i := range sizes {
		sizes[i] = argBytes(p.Args[i])
	}
	m := manifest{Entries: map[string]*manifestEntry{p.Name: {OutputBinary: "p.elf",
		Kernel: "main:" + p.Name, Arguments: sizes}}}
	if data, err = json.Marshal(m); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestName), data, 0o666)
}

// compiler returns a Compiler that runs this test binary.
func compiler(t *testing.T, mode string) (c *Compiler, printed *[]string) {
	t.Helper()
	t.Setenv(compilerMode, mode)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(filepath.Base(self), "ld-linux") {
		t.Skip("this process runs under another ld.so and cannot start itself; run without it")
	}
	var mu sync.Mutex
	printed = &[]string{}
	return &Compiler{Command: []string{self, "compile"}, Cache: t.TempDir(),
		Progress: func(program, line string) {
			mu.Lock()
			defer mu.Unlock()
			*printed = append(*printed, program+": "+line)
		}}, printed
}

// Load compiles a program without an artefact, once per program and toolchain.
func TestCompileCommand(t *testing.T) {
	c, printed := compiler(t, "works")
	p := addProgram("add")
	f := &fake{}
	d := f.open(t, each(addProgram("other")), Options{Compile: c})
	f.array.learn(t, p)
	e := load(t, d, p)
	one, y := vector(t, d, 1), vector(t, d, 0)
	submit(t, d, add(e, one, one, y))
	if v := first(t, y); v != 2 {
		t.Errorf("1 + 1 = %v", v)
	}
	const once = "add: compiling add|add: half way"
	if got := strings.Join(*printed, "|"); got != once {
		t.Errorf("progress %q", got)
	}
	if _, err := c.artefact(context.Background(), p); err != nil || len(*printed) != 2 {
		t.Errorf("cached: %v, progress %q", err, *printed)
	}
	changed := addProgram("add")
	changed.Map(npu.Mapping{Tile: []int{8}})
	if _, err := c.artefact(context.Background(), changed); err != nil || len(*printed) != 4 {
		t.Errorf("changed mapping: %v, progress %q", err, *printed)
	}
	c.Toolchain = "next"
	a, err := c.artefact(context.Background(), p)
	if err != nil || len(*printed) != 6 {
		t.Fatalf("changed toolchain: %v, progress %q", err, *printed)
	}
	// A cache entry with a missing file is compiled again.
	if err := os.Remove(a.Binary); err != nil {
		t.Fatal(err)
	}
	if _, err := c.artefact(context.Background(), p); err != nil || len(*printed) != 8 {
		t.Errorf("damaged cache: %v, progress %q", err, *printed)
	}
	left, err := filepath.Glob(filepath.Join(c.Cache, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files left in the cache: %v, %v", left, err)
	}
}

// A compiler that fails or hangs returns an error with its last output.
func TestCompileCommandFails(t *testing.T) {
	p := addProgram("add")
	for mode, want := range map[string]string{"fails": "no tile fits", "forgets": manifestName,
		"wrong": "3 arguments", "hangs": "half way"} {
		c, _ := compiler(t, mode)
		c.Limit = 20 * time.Second
		if mode == "hangs" {
			c.Limit = 500 * time.Millisecond
		}
		began := time.Now()
		_, err := c.artefact(context.Background(), p)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "program add") || time.Since(began) > 15*time.Second {
			t.Errorf("%s: %v after %v, want %q", mode, err, time.Since(began), want)
		}
		if left, _ := os.ReadDir(c.Cache); len(left) > 0 {
			t.Errorf("%s: files left in the cache: %v", mode, left)
		}
	}
	c, _ := compiler(t, "hangs")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := c.artefact(ctx, p); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(began) > 5*time.Second {
		t.Errorf("cancelled: %v after %v", err, time.Since(began))
	}
	if _, err := (&Compiler{}).artefact(context.Background(), p); err == nil {
		t.Error("an empty command was accepted")
	}
	if _, err := (&Compiler{Command: []string{"no-such-command-here"},
		Cache: t.TempDir()}).artefact(context.Background(), p); err == nil {
		t.Error("a missing command was accepted")
	}
}

// A line without end is split.
func TestProgressLines(t *testing.T) {
	var got []int
	l := &lines{emit: func(line string) { got = append(got, len(line)) }}
	fmt.Fprint(l, strings.Repeat("x", 3*maxLine), "\nshort\n", "r")
	l.end()
	if fmt.Sprint(got) != fmt.Sprint([]int{maxLine, maxLine, maxLine, 5, 1}) {
		t.Errorf("lines of %v characters", got)
	}
	for range 100 {
		fmt.Fprintln(l, "y")
	}
	if n := strings.Count(l.tail(), "\n"); n != lastLines {
		t.Errorf("%d lines kept", n)
	}
}
