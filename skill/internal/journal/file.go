package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/internal/readfile"
)

// Record is one line of the journal: something that happened in a deployment. Records are never
// changed, and everything else in a workspace is derived from them.
type Record struct {
	Seq   int             `json:"seq"` // from 1, without gaps
	Time  time.Time       `json:"time"`
	Kind  Kind            `json:"kind"`
	Phase Phase           `json:"phase"`          // the phase in which it happened
	Data  json.RawMessage `json:"data,omitempty"` // a value of the kind's type
	Sum   string          `json:"sum"`            // SHA-256 of the previous sum and this line without Sum
}

// Kind is the kind of a record.
type Kind string

// The kinds of records, with the type of Data.
const (
	KindDeployment Kind = "deployment" // Subject: the first record, and only that
	KindStart      Kind = "start"      // Start: an attempt at a phase begins
	KindResume     Kind = "resume"     // Resume: a process resumes the deployment
	KindGate       Kind = "gate"       // GateResult
	KindPart       Kind = "part"       // PartNote: a part of a gate that has no result yet
	KindKernel     Kind = "kernel"     // KernelNote: the findings about a kernel
	KindPlan       Kind = "plan"       // PlanNote: the plan from here on
	KindMeasure    Kind = "measure"    // Measurement
	KindTurns      Kind = "turns"      // TurnsNote: turns of a comparison that is not complete
	KindAttempt    Kind = "attempt"    // Attempt: an optimisation step, kept or not
	KindSkill      Kind = "skill"      // SkillNote: the outcome of a skill for a symptom
	KindIssue      Kind = "issue"      // Issue
	KindQuestion   Kind = "question"   // Question: to the user
	KindChoice     Kind = "choice"     // Choice: the user's answer
	KindFinish     Kind = "finish"     // Finish: the attempt at a phase has ended
	KindDecision   Kind = "decision"   // Decision: the user's answer to a phase's report
	KindEvaluation Kind = "evaluation" // EvaluationReport
)

// ErrJournal is wrapped by errors about a journal that was changed after it was written. Such a
// journal cannot be resumed: deploy into another folder. For an empty journal, see [ReadState].
var ErrJournal = errors.New("skill: the journal is not as it was written")

// maxLine bounds a line of the journal.
const maxLine = 16 << 20

// checkJournal returns an error if the journal cannot be read safely. Reading from a pipe would not
// return, and a link in a foreign workspace must not make Open truncate another file.
func checkJournal(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("skill: journal: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a regular file (%v); use another folder", ErrJournal, path, info.Mode())
	case info.Size() > MaxFile:
		return fmt.Errorf("%w: %s has %d bytes, a journal has at most %d; use another folder", ErrJournal, path,
			info.Size(), MaxFile)
	}
	return nil
}

// Read reads and checks a journal. It drops a last line without newline, which a process leaves
// that was killed while it wrote, and a last line with NUL bytes, which some file systems leave if
// the power fails. Whole is the length in bytes of the complete lines. Any other damage is an error
// that wraps [ErrJournal] and names the line.
func Read(path string) (records []Record, whole int64, err error) {
	if err := checkJournal(path); err != nil {
		return nil, 0, err
	}
	data, err := readfile.Regular(path, MaxFile)
	if err != nil {
		return nil, 0, fmt.Errorf("skill: journal: %w", err)
	}
	return Parse(path, data)
}

// Parse is [Read] of a file's content.
func Parse(path string, data []byte) (records []Record, whole int64, err error) {
	sum := ""
	for len(data) > 0 {
		line, rest, complete := bytes.Cut(data, []byte("\n"))
		if lost := bytes.IndexByte(line, 0) >= 0; !complete || lost && len(rest) == 0 {
			begin, text := fmt.Appendf(nil, `{"seq":%d,`, len(records)+1), bytes.TrimRight(line, "\x00")
			switch {
			case lost && len(records) > 0: // the sums before it are right, so the file is ours
			case lost && len(text) == 0:
				return nil, 0, fmt.Errorf("%w: %s contains only zeros, as after a power failure before the first "+
					"record was written: remove the file if that is so, or use another folder", ErrJournal, path)
			case !bytes.HasPrefix(text, begin) && !bytes.HasPrefix(begin, text):
				return nil, 0, fmt.Errorf("%w: %s, line %d: not the start of a record; is this another program's "+
					"file? use another folder", ErrJournal, path, len(records)+1)
			}
			break
		}
		r, err := readRecord(line, sum, len(records)+1)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %s, line %d: %w; start again in another folder", ErrJournal, path,
				len(records)+1, err)
		}
		records, sum, data, whole = append(records, r), r.Sum, rest, whole+int64(len(line))+1
	}
	return records, whole, nil
}

// readRecord parses a line and checks its form, its number and its sum.
func readRecord(line []byte, before string, seq int) (Record, error) {
	var r Record
	if len(line) > maxLine {
		return r, fmt.Errorf("it has %d bytes, a record has at most %d", len(line), maxLine)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	if r.Seq != seq {
		return r, fmt.Errorf("its number is %d, want %d: a line was removed or inserted", r.Seq, seq)
	}
	want, err := r.Seal(before)
	if err != nil {
		return r, err
	}
	if !bytes.Equal(want, line) {
		return r, errors.New("its checksum is wrong: it, or a line before it, was changed")
	}
	if (r.Kind == KindDeployment) != (seq == 1) {
		return r, fmt.Errorf("kind %q: only the first line names the deployment", r.Kind)
	}
	return r, nil
}

// Seal fills in the sum and returns the line without its newline.
func (r *Record) Seal(before string) ([]byte, error) {
	r.Sum = ""
	plain, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	h.Write([]byte(before))
	h.Write(plain)
	r.Sum = hex.EncodeToString(h.Sum(nil))
	return json.Marshal(r)
}

// Disk is the file of a journal. Tests replace it by one whose disk is full, see [Log.WrapDisk].
type Disk interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Close() error
}

// File is a journal that is open for appending. When Append returns, the record has been synced to
// the disk.
type File struct {
	path string
	disk Disk
	size int64
	seq  int
	sum  string
	bad  error // of an append that failed and could not be undone
}

// Open opens a journal for appending, and removes an incomplete last line.
func Open(path string) (*File, []Record, error) {
	if err := checkJournal(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND|NoFollow, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("skill: journal: %w", err)
	}
	records, whole, err := Read(path)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil && whole == 0 { // the file may be new
		err = atomicfile.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	j := &File{path: path, disk: f, size: whole, seq: len(records)}
	if j.seq > 0 {
		j.sum = records[j.seq-1].Sum
	}
	return j, records, nil
}

// Append writes a record and returns it as it was written. If the disk is full, Append removes
// the incomplete record, so that the journal stays valid.
func (j *File) Append(at time.Time, kind Kind, phase Phase, data any) (Record, error) {
	if j.bad != nil {
		return Record{}, j.bad
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return Record{}, fmt.Errorf("skill: journal: a record of kind %s: %w", kind, err)
	}
	r := Record{Seq: j.seq + 1, Time: at.UTC().Truncate(time.Millisecond), Kind: kind, Phase: phase, Data: raw}
	line, err := r.Seal(j.sum)
	if err != nil {
		return Record{}, fmt.Errorf("skill: journal: a record of kind %s: %w", kind, err)
	}
	if len(line) > maxLine {
		return Record{}, fmt.Errorf("skill: journal: a record of kind %s has %d bytes, at most %d are allowed",
			kind, len(line), maxLine)
	}
	if _, err = j.disk.Write(append(line, '\n')); err == nil {
		err = j.disk.Sync()
	}
	if err != nil {
		err = fmt.Errorf("skill: journal %s: %w; nothing is lost: free some space and run this again", j.path, err)
		if cut := j.disk.Truncate(j.size); cut != nil {
			j.bad = errors.Join(err, cut)
		}
		return Record{}, err
	}
	j.seq, j.sum, j.size = r.Seq, r.Sum, j.size+int64(len(line))+1
	return r, nil
}

func (j *File) Close() error { return j.disk.Close() }
