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

// Log is a journal together with the state that its records add up to.
type Log struct {
	State *State
	File  *File            // nil if records are dropped
	Now   func() time.Time // the time of the next record

	refuse error // returned by Append, if not nil
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
	return &Log{State: state, File: f, Now: time.Now}, nil
}

// Unwritten returns a log of a state that is written nowhere. Append returns refuse; if refuse is
// nil, Append drops the record.
func Unwritten(s *State, refuse error) *Log {
	return &Log{State: s, Now: time.Now, refuse: refuse}
}

// Append writes a record and adds it to the state. It returns a StorageError if the record cannot
// be written.
func (l *Log) Append(kind Kind, p Phase, data any) error {
	if l.refuse != nil {
		return l.refuse
	}
	if l.File == nil {
		return nil
	}
	r, err := l.File.Append(l.Now(), kind, p, data)
	if err != nil {
		return StorageError{err}
	}
	return l.State.Add(r)
}

// Close closes the journal. Append returns ErrClosed from then on.
func (l *Log) Close() error {
	if errors.Is(l.refuse, ErrClosed) || l.File == nil {
		l.refuse = ErrClosed
		return nil
	}
	l.refuse = ErrClosed
	return l.File.Close()
}
