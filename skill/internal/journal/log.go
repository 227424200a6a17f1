package journal

import (
	"errors"
	"time"
)

// Errors of a log that cannot be written.
var (
	ErrClosed   = errors.New("skill: the deployment is used after Close: open the folder again with NewDeployment")
	ErrForecast = errors.New("skill: a forecast has no checkpoint and no device, and writes nothing")
)

// StorageError is an error of the disk that a workspace is on. No skill can repair it.
type StorageError struct{ Err error }

func (e StorageError) Error() string { return e.Err.Error() }
func (e StorageError) Unwrap() error { return e.Err }

// IsStorage reports whether err comes from the disk that a workspace is on.
func IsStorage(err error) bool {
	var storage StorageError
	return errors.As(err, &storage)
}

// Log is a journal together with the state that its records add up to. [OpenLog] writes records to
// a file, [Discard] drops them, and [Refuse] returns an error.
type Log struct {
	State *State
	Now   func() time.Time // the time of the next record

	file *File // nil for Discard and Refuse
	err  error // returned by Append, if not nil
}

// OpenLog opens the journal at path for appending and folds its records.
func OpenLog(path string) (*Log, error) {
	f, records, err := Open(path)
	if err != nil {
		return nil, err
	}
	state, err := Fold(records)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Log{State: state, Now: time.Now, file: f}, nil
}

// Discard returns a log of a state whose Append drops records.
func Discard(s *State) *Log { return &Log{State: s, Now: time.Now} }

// Refuse returns a log of a state whose Append returns err.
func Refuse(s *State, err error) *Log { return &Log{State: s, Now: time.Now, err: err} }

// WrapDisk replaces the disk of the journal's file by a wrapped one, for tests of full disks.
func (l *Log) WrapDisk(wrap func(Disk) Disk) { l.file.disk = wrap(l.file.disk) }

// Append writes a record and adds it to the state. It returns a StorageError if the record cannot
// be written.
func (l *Log) Append(kind Kind, p Phase, data any) error {
	if l.err != nil || l.file == nil {
		return l.err
	}
	r, err := l.file.Append(l.Now(), kind, p, data)
	if err != nil {
		return StorageError{err}
	}
	return l.State.Add(r)
}

// Close closes the journal. Append returns ErrClosed from then on.
func (l *Log) Close() error {
	f := l.file
	l.file, l.err = nil, ErrClosed
	if f == nil {
		return nil
	}
	return f.Close()
}
