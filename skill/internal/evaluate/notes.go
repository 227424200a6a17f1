package evaluate

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
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
	"github.com/npukit/npukit/skill/internal/journal"
)

// notes let an evaluation resume that was killed. They are in a folder of the user's, not in the
// workspace, which is not trusted. Each line is authenticated with a key that only the user can
// read. They are about one plan, journal, checkpoint, device and program; if one of these changes,
// the evaluation begins anew. Neither refusals nor figures are noted.
type notes struct {
	file *os.File
	key  []byte
	last []byte // MAC of the line before
	kept map[string]note
}

// note is a step of an evaluation whose checks have all passed.
type note struct {
	Step   string                    `json:"step"`
	Time   time.Time                 `json:"time"`
	Checks []journal.EvaluationCheck `json:"checks"`
	Count  int                       `json:"count,omitempty"`
}

// sealedNote is a line of the notes.
type sealedNote struct {
	Note json.RawMessage `json:"note"`
	MAC  string          `json:"mac"` // over the previous MAC, or the subject, and the note
}

const (
	fileNotesKey = "key"
	notesKeySize = 32
	notesExt     = ".jsonl"
	notesFor     = 7 * 24 * time.Hour
	maxNotes     = 16 << 20
)

// openNotes opens the notes about a subject. It drops lines that this user's evaluator has not
// written, with all lines after them.
func openNotes(dir string, subject [sha256.Size]byte) (*notes, error) {
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := atomicfile.Sweep(dir); err != nil {
		return nil, err
	}
	if err := dropOldNotes(dir); err != nil {
		return nil, err
	}
	key, err := notesKey(filepath.Join(dir, fileNotesKey))
	if err != nil {
		return nil, err
	}
	n := &notes{key: key, last: subject[:], kept: map[string]note{}}
	path := filepath.Join(dir, hex.EncodeToString(subject[:])+notesExt)
	data, err := readfile.Regular(path, maxNotes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := 0
	for line := range bytes.Lines(data) {
		if !n.take(line) {
			break
		}
		whole += len(line)
	}
	if n.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|journal.NoFollow, 0o600); err != nil {
		return nil, err
	}
	err = n.file.Truncate(int64(whole))
	if err == nil {
		_, err = n.file.Seek(0, io.SeekEnd)
	}
	if err == nil {
		err = atomicfile.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, n.file.Close())
	}
	return n, nil
}

// dropOldNotes removes notes that have not changed for notesFor.
func dropOldNotes(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(e.Name()) != notesExt ||
			time.Since(info.ModTime()) < notesFor {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// notesKey reads the key, or creates it.
func notesKey(path string) ([]byte, error) {
	key, err := readfile.Regular(path, notesKeySize)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, notesKeySize)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			_, err = f.Write(key)
			err = errors.Join(err, f.Sync(), f.Close())
		}
	}
	if err == nil && len(key) != notesKeySize {
		err = fmt.Errorf("%s has %d bytes, want %d: remove it", path, len(key), notesKeySize)
	}
	return key, err
}

// mac returns the MAC of a note after the previous line.
func (n *notes) mac(note []byte) []byte {
	h := hmac.New(sha256.New, n.key)
	h.Write(n.last)
	h.Write(note)
	return h.Sum(nil)
}

// take reads a line, and reports whether this user's evaluator wrote it after the lines before.
func (n *notes) take(line []byte) bool {
	var s sealedNote
	if !bytes.HasSuffix(line, []byte("\n")) || strict(line, &s) != nil {
		return false
	}
	mac, err := hex.DecodeString(s.MAC)
	if want := n.mac(s.Note); err != nil || !hmac.Equal(mac, want) {
		return false
	}
	var note note
	if strict(s.Note, &note) != nil {
		return false
	}
	n.kept[note.Step], n.last = note, mac
	return true
}

// add writes a note.
func (n *notes) add(note note) error {
	data, err := json.Marshal(note)
	if err != nil {
		return err
	}
	mac := n.mac(data)
	line, err := json.Marshal(sealedNote{data, hex.EncodeToString(mac)})
	if err != nil {
		return err
	}
	if _, err = n.file.Write(append(line, '\n')); err == nil {
		err = n.file.Sync()
	}
	n.last = mac
	return err
}

// close keeps the notes, or removes them if there is a verdict.
func (n *notes) close(verdict bool) error {
	err := n.file.Close()
	if verdict {
		err = errors.Join(err, os.Remove(n.file.Name()))
	}
	return err
}

// startNotes opens the notes, if the options name a folder. The evaluation goes on without notes if
// they cannot be opened.
func (v *evaluation) startNotes() {
	if v.opts.Notes == "" {
		return
	}
	subject, err := v.notesSubject()
	if err == nil {
		v.notes, err = openNotes(v.opts.Notes, subject)
	}
	if err != nil {
		v.step("an evaluation that is interrupted will begin anew: %v", err)
	}
}

// notesSubject hashes everything that the result of a step depends on.
func (v *evaluation) notesSubject() (sum [sha256.Size]byte, err error) {
	path, err := os.Executable()
	if err != nil {
		return sum, err
	}
	program, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	_, err = io.Copy(h, program)
	if err = errors.Join(err, program.Close()); err != nil {
		return sum, err
	}
	plan, err := v.bench.PlanHash()
	if err != nil {
		return sum, err
	}
	var gates []string
	for _, g := range v.opts.Gates {
		gates = append(gates, g.Name)
	}
	// The records of evaluations that were interrupted do not count.
	var records []journal.Record
	for _, r := range v.records {
		if r.Phase != journal.Evaluation {
			r.Seq, r.Sum = 0, ""
			records = append(records, r)
		}
	}
	s := v.opened.Subject
	err = json.NewEncoder(h).Encode([]any{s.Weights, s.Config, s.GoldenSum, s.SeqLen, s.Thresholds, v.info, plan,
		records,
		v.opts.Positions, v.opts.Repetitions, gates})
	return [sha256.Size]byte(h.Sum(nil)), err
}
