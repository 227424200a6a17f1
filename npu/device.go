package npu

import (
	"context"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Device executes programs. Its methods are safe for concurrent use; runs submitted at once are executed one list after the other.
type Device interface {
	// Info is what a planner needs to know. It does not change.
	Info() Info
	// Load prepares a program. An error says which launch the device cannot execute, and why.
	Load(ctx context.Context, p *Program) (Executable, error)
	// Alloc makes a zeroed buffer of so many bytes.
	Alloc(ctx context.Context, bytes int) (Buffer, error)
	// Const makes a buffer with a weight in the layout asked for. It may alias the source's memory, which must then outlive it, and it is
	// shared with earlier requests for the same layout of the same tensors. It is read-only.
	Const(ctx context.Context, src Source) (Buffer, error)
	// Submit executes the runs in order and returns when the last has finished. A run sees what those before it have written, and needs no Sync for that. When ctx is
	// cancelled it returns its error within 100 ms, and what the runs were to write is undefined.
	Submit(ctx context.Context, runs []Run) error
	// Close gives up the device. It waits for a running Submit. Closing again does nothing.
	Close() error
}

// Info describes a device.
type Info struct {
	Name  string `json:"name"`  // for people: "cpu (2 threads, avx512)", with its options in brackets
	Kind  string `json:"kind"`  // "cpu", "sim", "xdna"
	Array string `json:"array"` // the array whose plans it executes: "xdna2"; "" if it executes any plan

	// AnyRows reports whether the device takes symbolic dimensions, any number of rows at any
	// position, and several segments.
	AnyRows bool `json:"any_rows"`

	// InPlace are the weight types that the device reads from the source's memory; others are
	// converted when a Const is made.
	InPlace []dtype.Type `json:"in_place,omitempty"`
	// Repacked are the weight types that the device stores without loss in another order, in about
	// as many bytes. A type in none of InPlace, Repacked and Compressed becomes BF16.
	Repacked []dtype.Type `json:"repacked,omitempty"`

	// Rounded are the repacked types whose values products of more than FewRows rows round to BF16 where
	// their activations are BF16, whatever the type of the results: they multiply BF16 with BF16.
	Rounded []dtype.Type `json:"rounded,omitempty"`

	// Compressed are weight types of which it keeps matrices in three quarters of the bytes, where Compresses says so; every bit can be had again. Others of these types, and
	// tables of which rows are looked up, it reads where they lie.
	Compressed []dtype.Type `json:"compressed,omitempty"`

	Threads int `json:"threads"` // compute threads; 0 if the device has none of its own

	// FewRows divides runs into two kinds, of at most so many rows and of more, and its picked rows likewise: each kind may have kernels of its own, which sum in another
	// order. Within a kind the results of a segment are the same bits whatever other segments are beside it. 0 means that there is one kind only.
	FewRows int `json:"few_rows"`
}

// Held is the type in which the device keeps weights of a type: those that it neither reads in place nor keeps as precise as they are become BF16.
func (i Info) Held(t dtype.Type) dtype.Type {
	if slices.Contains(i.InPlace, t) || slices.Contains(i.Repacked, t) || slices.Contains(i.Compressed, t) {
		return t
	}
	return dtype.BF16
}

// Rows of matrices that compress have a multiple of CompressedColumns elements, and no more than MaxCompressedColumns.
const (
	CompressedColumns    = 32
	MaxCompressedColumns = 16384
)

// Compresses reports whether the device keeps weights of a type and a shape in three quarters of the bytes. A few may turn out not to be compressible.
func (i Info) Compresses(t dtype.Type, shape []int) bool {
	return slices.Contains(i.Compressed, t) && len(shape) == 2 && shape[0] > 0 && shape[1] > 0 && shape[1]%CompressedColumns == 0 && shape[1] <= MaxCompressedColumns
}

// WeightBytes is the memory that products read of a weight, but for the few values that do not compress.
func (i Info) WeightBytes(t dtype.Type, shape []int) int {
	held := i.Held(t).Bytes(op.Size{}.Elements(shape))
	if i.Compresses(t, shape) {
		return held / 4 * 3
	}
	return held
}

// Executable is a program loaded on a device.
type Executable interface {
	// Program is what was loaded; callers must not change it.
	Program() *Program
	// Close gives up what the device holds for the program. Runs of it are refused from then on, by the devices of this module with ErrClosed. Closing again does nothing.
	Close() error
}

// Direction is the way of a sync.
type Direction uint8

const (
	ToDevice   Direction = iota // what the host has written, before a Submit that reads it
	FromDevice                  // what the device has written, before the host reads it
)

func (d Direction) String() string {
	switch d {
	case ToDevice:
		return "to device"
	case FromDevice:
		return "from device"
	}
	return fmt.Sprintf("Direction(%d)", uint8(d))
}

// CheckSync reports a sync that a buffer of size bytes has not: an unknown direction, or bytes outside. Devices call it before they move anything.
func CheckSync(dir Direction, offset, n, size int) error {
	switch {
	case dir != ToDevice && dir != FromDevice:
		return fmt.Errorf("a sync has no direction %s: want ToDevice or FromDevice", dir)
	case offset < 0 || n < 0 || offset > size-n:
		return fmt.Errorf("a sync of %d bytes at %d: the buffer has %d", n, offset, size)
	}
	return nil
}

// Buffer is a buffer object: memory that host and device both reach, coherent only where it has been synced.
type Buffer interface {
	// Len is the size in bytes.
	Len() int
	// Bytes is the host's view. It must not be used after Close.
	Bytes() []byte
	// Sync makes n bytes from offset on visible to the other side.
	Sync(dir Direction, offset, n int) error
	// Close gives the memory back, after a running Submit. Runs with it, and Sync, are refused from then on, by the devices of this module with ErrClosed. Closing again does
	// nothing.
	Close() error
}

// Run is a loaded program with its buffers: one dispatch.
type Run struct {
	Name     string // prefix of its launches' tap names: "layer.3"
	Exec     Executable
	Args     []Buffer  // one for each argument; nil for State, which segments bring, and for Scratch that the device is to provide
	Segments []Segment // whose rows these are; rows of one segment follow each other. None for a program of fixed shape without state.
	Picks    int       // number of picked rows
}

// Segment is the part of a run's rows that belongs to one session.
type Segment struct {
	Rows  int      // number of rows
	Pos   int      // position of the first
	State []Buffer // one for each State argument of the program, in order
}

// maxPosition bounds rows and positions of a segment, so that their sums cannot overflow: no context is near it.
const maxPosition = 1 << 30

// Rows returns the number of rows of the run: the sum over its segments or, if it has none, the rows
// of its program's first Out argument, whose shape is then fixed. A vector is one row there, as in
// [View.Matrix].
func (r *Run) Rows() int {
	if len(r.Segments) > 0 {
		return r.segmentRows()
	}
	if r.Exec == nil {
		return 0
	}
	for _, a := range r.Exec.Program().Args {
		if a.Kind == Out {
			return max(0, View{}.Matrix(a.Shape).Rows) // an open dimension needs segments
		}
	}
	return 0
}

func (r *Run) segmentRows() int {
	n := 0
	for _, s := range r.Segments {
		n += s.Rows
	}
	return n
}

// Size returns the values of a program's symbols for this run. Rows is the sum over the segments, and
// 0 if there are none. Capacity and Pos differ between segments and are zero here.
func (r *Run) Size() op.Size { return op.Size{Rows: r.segmentRows(), Picks: r.Picks} }

// Check reports a run that does not fit its program: buffers missing or too small, segments without state or beyond their capacity. Devices
// call it before they execute anything.
func (r *Run) Check() error {
	if r.Exec == nil {
		return &RunError{Run: r.Name, Reason: "it has no executable"}
	}
	p := r.Exec.Program()
	bad := func(a Arg, format string, args ...any) error {
		return &RunError{Run: r.Name, Program: p.Name, Arg: a.Name, Reason: fmt.Sprintf(format, args...)}
	}
	if len(r.Args) != len(p.Args) {
		return bad(Arg{}, "the program has %d arguments, got %d buffers", len(p.Args), len(r.Args))
	}
	for i, s := range r.Segments {
		if s.Rows <= 0 || s.Pos < 0 || s.Rows > maxPosition || s.Pos > maxPosition || i > maxPosition {
			return bad(Arg{}, "segment %d has %d rows at position %d", i, s.Rows, s.Pos)
		}
	}
	size := r.Size()
	if r.Picks < 0 || r.Picks > maxPosition {
		return bad(Arg{}, "it has %d picks", r.Picks)
	}
	state := 0
	for i, a := range p.Args {
		for _, d := range a.Shape {
			if d < 0 && d != op.Capacity && size.Resolve(d) <= 0 {
				return bad(a, "it is %s, and the run has %d rows and %d picks", op.ShapeString(a.Shape), size.Rows, size.Picks)
			}
		}
		if a.Kind == State {
			if err := r.checkState(a, state, bad); err != nil {
				return err
			}
			state++
			continue
		}
		if r.Args[i] == nil {
			if a.Kind != Scratch {
				return bad(a, "it has no buffer")
			}
			continue
		}
		if one, _ := elements(a.Shape); max(size.Rows, size.Picks) > maxElements/one {
			return bad(a, "it is %s, and the run has %d rows and %d picks: more than any buffer holds", op.ShapeString(a.Shape), size.Rows, size.Picks)
		}
		// A Const may be held in another type than the program names; the device that made it knows.
		if need := a.Type.Bytes(size.Elements(a.Shape)); a.Kind != Const && r.Args[i].Len() < need {
			return bad(a, "it is %s %s and needs %d bytes, the buffer has %d", a.Type, op.ShapeString(a.Shape), need, r.Args[i].Len())
		}
	}
	for i, s := range r.Segments {
		if len(s.State) != state {
			return bad(Arg{}, "the program has %d state arguments, segment %d brings %d", state, i, len(s.State))
		}
	}
	return nil
}

// checkState checks the index-th State argument in every segment. Its capacity is what its buffer has room for.
func (r *Run) checkState(a Arg, index int, bad func(Arg, string, ...any) error) error {
	for i, s := range r.Segments {
		if index >= len(s.State) || s.State[index] == nil {
			return bad(a, "segment %d brings no buffer for it", i)
		}
		if c := StateCapacity(a, s.State[index].Len()); s.Pos+s.Rows > c {
			return bad(a, "segment %d needs %d positions, its buffer has room for %d", i, s.Pos+s.Rows, c)
		}
	}
	return nil
}

// StateCapacity is the number of positions that a buffer of so many bytes holds of a State argument.
func StateCapacity(a Arg, bytes int) int {
	return bytes / a.Type.Bytes((op.Size{Capacity: 1, Rows: 1, Picks: 1}).Elements(a.Shape))
}
