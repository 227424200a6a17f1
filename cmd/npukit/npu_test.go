package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/doctor"
	"github.com/npukit/npukit/internal/xrttest"
	"github.com/npukit/npukit/npu/dtype"
)

// The output for an owner of an NPU, tested on the emulated one and marked as such: the list of
// devices, and a first program with a right and a wrong result.
func TestCommandsSeeTheNPU(t *testing.T) {
	emu := xrttest.Open(t)
	list := parse[[]deviceEntry](t, succeed(t, "", "devices", "--json", "--threads", "1"))
	if d := list[len(list)-1]; d.Device != "xdna" || !d.Available || !d.Emulated || !strings.Contains(d.Processor,
		"emulated NPU Strix") {
		t.Errorf("%+v", d)
	}

	const n = 1024
	s := xrttest.NewELFStream(1)
	for arg := range 3 {
		s.Transfer(arg, 0, 2*n)
	}
	forgotten := 0
	emu.Register(s.Bytes(), func(args [][]byte) error {
		a, b, c := dtype.BFloat16s(args[0]), dtype.BFloat16s(args[1]), dtype.BFloat16s(args[2])
		for i := range n - forgotten {
			c[i] = dtype.FromFloat32(a[i].Float32() + b[i].Float32())
		}
		return nil
	})
	dir := t.TempDir()
	for name, text := range map[string]string{
		"air.elf": string(xrttest.FullELF(t, 3, xrttest.Instance{Name: "eltwise_add", Stream: s})),
		"manifest.json": `{"entries": {"eltwise_add": {"output_binary": "air.elf", "kernel": "main:eltwise_add", ` +
			`"arguments": [2048, 2048, 2048]}}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	smoke := func(text string, status doctor.Status) {
		t.Helper()
		r := command("", "doctor", "--smoke", "--artefacts", dir, "--json")
		report := parse[doctor.Report](t, r.out)
		if !report.Emulated {
			t.Error("the report lacks that the NPU is emulated")
		}
		for _, f := range report.Findings {
			if f.Subject == "smoke test" && f.Status == status && strings.Contains(f.Text, text) {
				return
			}
		}
		t.Errorf("no %s with %q in %s", status, text, r.out)
	}
	smoke("opened emulated NPU Strix", doctor.OK)
	smoke("copied to the device at", doctor.OK)
	smoke("added 1024 elements of BF16 correctly", doctor.OK)
	forgotten = 1
	smoke("as BF16, element 1023 is not the sum", doctor.Problem)
	if err := emu.Script("run 1 timeout"); err != nil {
		t.Fatal(err)
	}
	smoke("made no progress", doctor.Problem)
}

// The compile command comes from its flag or else from the environment. Without both there is none.
func TestCompileCommandOfTheUser(t *testing.T) {
	for _, tc := range []struct {
		flag, env string
		want      []string
	}{
		{"", "", nil},
		{"mycc --fast -o x", "other", []string{"mycc", "--fast", "-o", "x"}},
		{"", " other  -v ", []string{"other", "-v"}},
	} {
		t.Setenv("NPUKIT_COMPILE", tc.env)
		c := (&deviceFlags{compile: tc.flag}).compiler()
		if tc.want == nil && c != nil || tc.want != nil && (c == nil || !slices.Equal(c.Command, tc.want) ||
			c.Progress != nil) {
			t.Errorf("flag %q, environment %q: %+v", tc.flag, tc.env, c)
		}
	}
}

// The log of a device has the lines from the level on, without times.
func TestLog(t *testing.T) {
	for level, want := range map[string]string{
		"":     "level=WARN msg=\"a context was lost\" program=add\n",
		"warn": "level=WARN msg=\"a context was lost\" program=add\n",
		"info": "level=INFO msg=\"out of contexts\"\nlevel=WARN msg=\"a context was lost\" program=add\n",
		"off":  "",
	} {
		var out strings.Builder
		log := (&deviceFlags{log: level, err: &out}).logger()
		log.Info("out of contexts")
		log.Warn("a context was lost", "program", "add")
		if out.String() != want {
			t.Errorf("--log %q writes %q, want %q", level, out.String(), want)
		}
	}
}
