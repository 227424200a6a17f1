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

// Record is one line of the journal: something that happened in a deployment, and cannot be unsaid. Everything else in a workspace is derived from records.
type Record struct {
	Seq   int             `json:"seq"` // from 1, without gaps
	Time  time.Time       `json:"time"`
	Kind  Kind            `json:"kind"`
	Phase Phase           `json:"phase"`          // in which it happened
	Data  json.RawMessage `json:"data,omitempty"` // a value of the kind's type
	Sum   string          `json:"sum"`            // SHA-256 over the sum of the line before and this line without its own sum
}

// Kind says what a record is about.
type Kind string

// The kinds of records, with the type of their data.
const (
	KindDeployment Kind = "deployment" // Subject: what is deployed; always the first record, and only there
	KindStart      Kind = "start"      // Start: an attempt at a phase begins
	KindResume     Kind = "resume"     // Resume: a process has taken the deployment up again
	KindGate       Kind = "gate"       // GateResult
	KindPart       Kind = "part"       // PartNote: a part of a gate that has not spoken yet
	KindKernel     Kind = "kernel"     // KernelNote: what phase 1 learnt of a kernel
	KindPlan       Kind = "plan"       // PlanNote: the plan from here on
	KindMeasure    Kind = "measure"    // Measurement
	KindTurns      Kind = "turns"      // TurnsNote: a part of a comparison that was not complete
	KindAttempt    Kind = "attempt"    // Attempt: an optimisation step, kept or not
	KindSkill      Kind = "skill"      // SkillNote: a skill was asked about a symptom
	KindIssue      Kind = "issue"      // Issue
	KindQuestion   Kind = "question"   // Question: put to the user
	KindChoice     Kind = "choice"     // Choice: the answer
	KindFinish     Kind = "finish"     // Finish: the attempt at a phase has ended
	KindDecision   Kind = "decision"   // Decision: what the user said to a phase's report
	KindEvaluation Kind = "evaluation" // EvaluationReport
)

// ErrJournal is wrapped by the errors about a journal that is not what this program wrote: a line changed, left out or put in. There is no way to go on from
// such a file; start again in another folder. Of an empty one see [ReadState].
var ErrJournal = errors.New("skill: the journal is not as it was written")

// maxLine bounds a line of the journal.
const maxLine = 16 << 20

// checkJournal refuses what is there in a journal's place and none: reading from a pipe would never end, and a link in a foreign workspace must not name the file that is cut.
func checkJournal(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("skill: journal: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is no regular file (%v); use another folder", ErrJournal, path, info.Mode())
	case info.Size() > MaxFile:
		return fmt.Errorf("%w: %s has %d bytes, %d at most are written; use another folder", ErrJournal, path, info.Size(), MaxFile)
	}
	return nil
}

// ReadJournal reads and checks a journal. A last line without its end is what a process leaves that was killed while it wrote, and one with NUL bytes, which no record has, what some file
// systems leave of it when the power fails. It counts as not written, and whole is the length in bytes of what comes before it. Everything else that is wrong is an error that wraps
// [ErrJournal] and names the line.
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

// parseJournal is [ReadJournal] of a file's content.
func Parse(path string, data []byte) (records []Record, whole int64, err error) {
	sum := ""
	for len(data) > 0 {
		line, rest, complete := bytes.Cut(data, []byte("\n"))
		if lost := bytes.IndexByte(line, 0) >= 0; !complete || lost && len(rest) == 0 {
			begin, text := fmt.Appendf(nil, `{"seq":%d,`, len(records)+1), bytes.TrimRight(line, "\x00")
			switch {
			case lost && len(records) > 0: // behind records whose sums hold: the file is ours
			case lost && len(text) == 0:
				return nil, 0, fmt.Errorf("%w: %s has nothing but zeros, as when the power fails before the first record is on the disk: remove the file if that is so, or use another folder", ErrJournal, path)
			case !bytes.HasPrefix(text, begin) && !bytes.HasPrefix(begin, text):
				return nil, 0, fmt.Errorf("%w: %s, line %d: it does not begin as a record does: is this another program's file? use another folder", ErrJournal, path, len(records)+1)
			}
			break
		}
		r, err := readRecord(line, sum, len(records)+1)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %s, line %d: %w; start again in another folder", ErrJournal, path, len(records)+1, err)
		}
		records, sum, data, whole = append(records, r), r.Sum, rest, whole+int64(len(line))+1
	}
	return records, whole, nil
}

// readRecord parses a line and holds it to its checksum, its number and its form.
func readRecord(line []byte, before string, seq int) (Record, error) {
	var r Record
	if len(line) > maxLine {
		return r, fmt.Errorf("it has %d bytes, %d at most are written", len(line), maxLine)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	if r.Seq != seq {
		return r, fmt.Errorf("it is number %d, number %d was due: a line was left out or put in", r.Seq, seq)
	}
	want, err := r.Seal(before)
	if err != nil {
		return r, err
	}
	if !bytes.Equal(want, line) {
		return r, errors.New("its checksum does not hold: it, or a line before it, was changed")
	}
	if (r.Kind == KindDeployment) != (seq == 1) {
		return r, fmt.Errorf("kind %q: the deployment is named in the first line and nowhere else", r.Kind)
	}
	return r, nil
}

// seal fills in the sum and gives the line without its end.
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

// journalFile is what a journal is written to: an *os.File, or in tests one whose disk is full.
type Disk interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Close() error
}

// journal appends records to a file. A record is there when append has returned: it has been synced to the disk.
type File struct {
	path string
	Disk Disk
	size int64
	seq  int
	sum  string
	bad  error // an append that failed and could not be taken back
}

// openJournal opens a journal for appending, and cuts off a line that was not completed.
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
	j := &File{path: path, Disk: f, size: whole, seq: len(records)}
	if j.seq > 0 {
		j.sum = records[j.seq-1].Sum
	}
	return j, records, nil
}

// append writes a record and gives it as it was written. When the disk is full what was written of it is taken back, so that the journal stays whole.
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
		return Record{}, fmt.Errorf("skill: journal: a record of kind %s has %d bytes, %d at most can be written", kind, len(line), maxLine)
	}
	if _, err = j.Disk.Write(append(line, '\n')); err == nil {
		err = j.Disk.Sync()
	}
	if err != nil {
		err = fmt.Errorf("skill: journal %s: %w; nothing is lost: make room, and run this again", j.path, err)
		if cut := j.Disk.Truncate(j.size); cut != nil {
			j.bad = errors.Join(err, cut)
		}
		return Record{}, err
	}
	j.seq, j.sum, j.size = r.Seq, r.Sum, j.size+int64(len(line))+1
	return r, nil
}

func (j *File) Close() error { return j.Disk.Close() }
