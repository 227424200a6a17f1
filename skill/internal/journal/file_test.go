package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// written writes a journal of a few records.
func written(t *testing.T, n int) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), FileJournal)
	j, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		kind, value := KindIssue, any(Issue{Symptom: strings.Repeat("x", i), Cause: "<&>"})
		if i == 0 {
			kind, value = KindDeployment, Subject{Name: "m"}
		}
		if _, err := j.Append(time.Unix(int64(i), 123456789), kind, Reference, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	data, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, data
}

// A journal cut at any byte loses at most the line that was being written, and can be resumed.
func TestJournalTornAnywhere(t *testing.T) {
	t.Parallel()
	path, data := written(t, 5)
	for cut := range len(data) + 1 {
		if err := os.WriteFile(path, data[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		j, records, err := Open(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if want := bytes.Count(data[:cut], []byte("\n")); len(records) != want {
			t.Fatalf("cut at %d: %d records, want %d", cut, len(records), want)
		}
		kind, value := KindIssue, any(Issue{})
		if len(records) == 0 {
			kind, value = KindDeployment, Subject{}
		}
		if _, err := j.Append(time.Now(), kind, Reference, value); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if again, _, err := Read(path); err != nil || len(again) != len(records)+1 {
			t.Fatalf("cut at %d and gone on: %d records, %v", cut, len(again), err)
		}
	}
}

// When the power fails, some file systems keep the length of a write and lose its data: a last
// record with zeros is dropped. Zeros in other places are refused. If there is nothing else, the
// error tells the remedy.
func TestJournalZeros(t *testing.T) {
	t.Parallel()
	path, data := written(t, 3)
	lines := bytes.SplitAfter(data, []byte("\n"))[:3]
	before, last := bytes.Join(lines[:2], nil), lines[2]
	zeros := func(n int) []byte { return make([]byte, n) }
	for name, tail := range map[string][]byte{
		"one":                zeros(1),
		"a block":            zeros(4096),
		"all but the end":    append(zeros(len(last)-1), '\n'),
		"the beginning":      append(zeros(20), last[20:]...),
		"the middle":         append(append(bytes.Clone(last[:20]), zeros(20)...), last[40:]...),
		"behind a few bytes": append(bytes.Clone(last[:3]), zeros(4093)...),
		"behind all but one": append(bytes.Clone(last[:len(last)-2]), zeros(100)...),
	} {
		must(0, os.WriteFile(path, append(bytes.Clone(before), tail...), 0o644))
		j, records, err := Open(path)
		if err != nil || len(records) != 2 {
			t.Errorf("%s: %d records, %v", name, len(records), err)
			continue
		}
		if _, err := j.Append(time.Now(), KindIssue, Reference, Issue{}); err != nil {
			t.Error(err)
		}
		must(0, j.Close())
		if records, whole, err := Read(path); err != nil || len(records) != 3 ||
			whole != int64(len(must(os.ReadFile(path)))) {
			t.Errorf("%s, and gone on: %d records, %v", name, len(records), err)
		}
	}
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"nothing but zeros": {zeros(4096), "remove the file"},
		"a record in between": {bytes.Join([][]byte{lines[0], zeros(len(lines[1]) - 1), []byte("\n"), lines[2]}, nil),
			"line 2"},
		"another program's": {append([]byte("words"), zeros(100)...), "another program"},
	} {
		must(0, os.WriteFile(path, tc.data, 0o644))
		if _, _, err := Open(path); !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if now := must(os.ReadFile(path)); !bytes.Equal(now, tc.data) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	must(0, os.WriteFile(path, append([]byte(`{"seq":1,"ti`), zeros(100)...), 0o644)) // the first record
	j, records, err := Open(path)
	if err != nil || len(records) != 0 {
		t.Fatal(len(records), err)
	}
	must(0, j.Close())
}

// A journal in which a line was changed, removed, repeated or moved is refused, with the line.
func TestJournalForged(t *testing.T) {
	path, data := written(t, 5)
	lines := bytes.SplitAfter(data, []byte("\n"))[:5]
	join := func(l ...[]byte) []byte { return bytes.Join(l, nil) }
	var other Record
	if err := json.Unmarshal(lines[2], &other); err != nil {
		t.Fatal(err)
	}
	other.Data = json.RawMessage(`{"symptom":"forged"}`)
	resealed, err := other.Seal("0000")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		data []byte
		line string
	}{
		"a character changed": {join(lines[0], bytes.Replace(lines[1], []byte("u003c"), []byte("u003d"), 1),
			lines[2]), "line 2"},
		"a line left out":         {join(lines[0], lines[1], lines[3], lines[4]), "line 3"},
		"the first line left out": {join(lines[1:]...), "line 1"},
		"a line twice":            {join(lines[0], lines[1], lines[1]), "line 3"},
		"two lines swapped":       {join(lines[0], lines[2], lines[1]), "line 2"},
		"a line sealed anew":      {join(lines[0], lines[1], resealed, []byte("\n"), lines[3]), "line 3"},
		"an unknown field":        {join(lines[0], []byte("{\"x\":1,"), lines[1][1:]), "line 2"},
		"garbage":                 {join(lines[0], []byte("garbage\n")), "line 2"},
		"an empty line":           {join(lines[0], []byte("\n"), lines[1]), "line 2"},
		"spaces":                  {join(lines[0], []byte(" "), lines[1]), "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, tc.data, 0o644); err != nil {
				t.Fatal(err)
			}
			_, _, err := Open(path)
			if !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), tc.line) {
				t.Errorf("want an error about %s, got %v", tc.line, err)
			}
			if now, _ := os.ReadFile(path); !bytes.Equal(now, tc.data) {
				t.Error("the forged file was changed")
			}
		})
	}
}

// fullDisk has room for so many bytes.
type fullDisk struct {
	*os.File
	left int
}

func (f *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), f.left)
	f.left -= n
	if _, err := f.File.Write(b[:n]); err != nil {
		return 0, err
	}
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// A full disk is an error that names it, an incomplete record is removed, and the journal can be
// resumed.
func TestJournalDiskFull(t *testing.T) {
	path, data := written(t, 3)
	j, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	disk := &fullDisk{j.disk.(*os.File), 30}
	j.disk = disk
	_, err = j.Append(time.Now(), KindIssue, Reference, Issue{})
	if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(),
		"free some space") {
		t.Errorf("a full disk gives %v", err)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, data) {
		t.Error("a record that was not written left something behind")
	}
	disk.left = 1 << 20
	if _, err := j.Append(time.Now(), KindIssue, Reference, Issue{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if records, _, err := Read(path); err != nil || len(records) != 4 {
		t.Errorf("%d records, %v", len(records), err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// A record alone cannot make a phase pass: its gates must have passed since it started.
func TestStateBelievesGatesOnly(t *testing.T) {
	gate := func(ok bool) any { return GateResult{Name: "g", Subject: "s", OK: ok} }
	passed := Finish{Passed: true, Gates: []string{"g@s"}}
	type step struct {
		kind  Kind
		phase Phase
		data  any
	}
	begin := step{KindDeployment, Reference, Subject{}}
	start := step{KindStart, Reference, Start{}}
	for name, tc := range map[string]struct {
		steps []step
		wrong string
	}{
		"right": {[]step{begin, start, {KindGate, Reference, gate(true)},
			{KindFinish, Reference, passed}}, ""},
		"without a gate": {[]step{begin, start, {KindFinish, Reference, Finish{Passed: true}}},
			"without a gate"},
		"a gate that never ran": {[]step{begin, start, {KindFinish, Reference, passed}}, "did not pass in it"},
		"a gate that failed": {[]step{begin, start, {KindGate, Reference, gate(false)},
			{KindFinish, Reference, passed}}, "did not pass in it"},
		"a gate of the try before": {[]step{begin, start, {KindGate, Reference, gate(true)}, start,
			{KindFinish, Reference, passed}}, "did not pass in it"},
		"the phase before": {[]step{begin, {KindStart, SingleBlock, Start{}}},
			"before kernel-validation had passed"},
		"never begun":         {[]step{begin, {KindFinish, Reference, passed}}, "before it began"},
		"kept without a gate": {[]step{begin, {KindAttempt, Prefill, Attempt{Outcome: Kept}}}, "without a gate"},
		"kept against a gate": {[]step{begin, {KindGate, Prefill, gate(false)},
			{KindAttempt, Prefill, Attempt{Outcome: Kept, Gates: []string{"g@s"}}}},
			"did not pass"},
	} {
		t.Run(name, func(t *testing.T) {
			var records []Record
			for i, s := range tc.steps {
				data, err := json.Marshal(s.data)
				if err != nil {
					t.Fatal(err)
				}
				records = append(records, Record{Seq: i + 1, Kind: s.kind, Phase: s.phase, Data: data})
			}
			_, err := Fold(records)
			if tc.wrong == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("want %q, got %v", tc.wrong, err)
			}
		})
	}
}

// A file that is not a journal is not touched, neither itself nor through a link.
func TestForeignJournal(t *testing.T) {
	for _, text := range []string{"a secret without a line's end", "{\"seq\": 1", "x"} {
		for _, link := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), FileJournal)
			file := path
			if link {
				file = filepath.Join(t.TempDir(), "elsewhere")
				if err := os.Symlink(file, path); err != nil {
					t.Skip(err)
				}
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if j, _, err := Open(path); j != nil || !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(),
				path) {
				t.Errorf("%q, a link: %v: %v", text, link, err)
			}
			if data, err := os.ReadFile(file); string(data) != text {
				t.Errorf("%q has become %q, %v", text, data, err)
			}
		}
	}
	// A link to a journal of our own is refused too.
	path, data := written(t, 2)
	link := filepath.Join(t.TempDir(), FileJournal)
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if _, _, err := Open(link); !errors.Is(err, ErrJournal) {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); !bytes.Equal(after, data) {
		t.Error("it was changed", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
