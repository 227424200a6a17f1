package npu

import (
	"context"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Device executes programs. Its methods are safe for concurrent use; concurrent calls of Submit are
// executed one after the other.
type Device interface {
	// Info returns the properties that a planner needs. They never change.
	Info() Info
	// Load prepares a program. An error names the launch that the device cannot execute, and why.
	Load(ctx context.Context, p *Program) (Executable, error)
	// Alloc returns a zeroed buffer.
	Alloc(ctx context.Context, bytes int) (Buffer, error)
	// Const returns a read-only buffer with a weight in the requested layout. It may alias the
	// source's memory, which must then outlive it, and equal requests share one buffer.
	Const(ctx context.Context, src Source) (Buffer, error)
	// Submit executes the runs in order and returns when the last has finished. A run sees the
	// writes of earlier ones without Sync. If ctx is canceled, Submit returns its error within 100
	// ms, and the outputs of the runs are undefined.
	Submit(ctx context.Context, runs []Run) error
	// Close releases the device after waiting for a running Submit. Further calls do nothing.
	Close() error
}

// Info describes a device.
type Info struct {
	Name string `json:"name"` // for people: "cpu (2 threads, avx512)", with its options in brackets
	Kind string `json:"kind"` // "cpu", "sim", "xdna"
	// Array is the array whose plans the device executes, such as "xdna2"; "" if it executes any
	// plan.
	Array string `json:"array"`

	// AnyRows reports whether the device takes symbolic dimensions, any number of rows at any
	// position, and several segments.
	AnyRows bool `json:"any_rows"`

	// InPlace are the weight types that the device reads from the source's memory; others are
	// converted when a Const is made.
	InPlace []dtype.Type `json:"in_place,omitempty"`
	// Repacked are the weight types that the device stores without loss in another order, in about
	// as many bytes. A type in none of InPlace, Repacked and Compressed becomes BF16.
	Repacked []dtype.Type `json:"repacked,omitempty"`

	// Rounded are the Repacked types whose values are rounded to BF16 by products of more than
	// FewRows rows with BF16 activations, which multiply BF16 with BF16.
	Rounded []dtype.Type `json:"rounded,omitempty"`

	// Compressed are the weight types whose matrices the device stores losslessly in three quarters
	// of the bytes if Compresses reports true. It reads other weights of these types, and
	// embeddings, in place.
	Compressed []dtype.Type `json:"compressed,omitempty"`

	Threads int `json:"threads"` // compute threads; 0 if the device has none of its own

	// FewRows divides runs into two classes, of at most FewRows rows and of more; likewise their
	// picked rows. Each class may use kernels that sum in a different order. Within a class a
	// segment's results do not depend on the other segments, to the bit. 0 means that there is only
	// one class.
	FewRows int `json:"few_rows"`
}

// Held returns the type in which the device stores weights of type t: t if it is in InPlace,
// Repacked or Compressed, otherwise BF16.
func (i Info) Held(t dtype.Type) dtype.Type {
	if slices.Contains(i.InPlace, t) || slices.Contains(i.Repacked, t) ||
		slices.Contains(i.Compressed, t) {
		return t
	}
	return dtype.BF16
}

// A matrix compresses if its rows have a multiple of 32 elements, and at most 16384.
const (
	compressedColumns    = 32
	maxCompressedColumns = 16384
)

// Compresses reports whether the device stores weights of this type and shape in three quarters of
// the bytes. A few rare weights turn out not to be compressible.
func (i Info) Compresses(t dtype.Type, shape []int) bool {
	return slices.Contains(i.Compressed, t) && len(shape) == 2 && shape[0] > 0 &&
		shape[1] > 0 && shape[1]%compressedColumns == 0 && shape[1] <= maxCompressedColumns
}

// WeightBytes returns the bytes that a product reads of a weight, without the few values that do
// not compress.
func (i Info) WeightBytes(t dtype.Type, shape []int) int {
	held := i.Held(t).Bytes(op.Size{}.Elements(shape))
	if i.Compresses(t, shape) {
		return held / 4 * 3
	}
	return held
}

// Executable is a program loaded on a device.
type Executable interface {
	// Program returns the loaded program, which callers must not change.
	Program() *Program
	// Close releases the device's resources for the program. Devices of this module refuse its runs
	// with ErrClosed afterwards. Further calls do nothing.
	Close() error
}

// Direction is the direction of a sync.
type Direction uint8

const (
	// ToDevice makes host writes visible to the device, before a Submit that reads them.
	ToDevice   Direction = iota
	FromDevice           // FromDevice makes device writes visible to the host
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

// CheckSync returns an error if dir is invalid or [offset, offset+n) is outside a buffer of size
// bytes. Devices call it before a sync.
func CheckSync(dir Direction, offset, n, size int) error {
	switch {
	case dir != ToDevice && dir != FromDevice:
		return fmt.Errorf("sync: invalid direction %s, want ToDevice or FromDevice", dir)
	case offset < 0 || n < 0 || offset > size-n:
		return fmt.Errorf("sync: %d bytes at offset %d, the buffer has %d", n, offset, size)
	}
	return nil
}

// Buffer is memory that host and device can both access. It is coherent only after a Sync.
type Buffer interface {
	// Len returns the size in bytes.
	Len() int
	// Bytes returns the host's view. It must not be used after Close.
	Bytes() []byte
	// Sync makes n bytes from offset visible to the other side.
	Sync(dir Direction, offset, n int) error
	// Close frees the memory after waiting for a running Submit. Devices of this module refuse Sync
	// and runs with it with ErrClosed afterwards. Further calls do nothing.
	Close() error
}

// Run is one dispatch: a loaded program with its buffers.
type Run struct {
	Name string // prefix of its launches' tap names, such as "layer.3"
	Exec Executable
	// Args has one buffer per argument: nil for State, which is in Segments, and for Scratch that
	// the device provides.
	Args []Buffer
	// Segments divide the rows among sessions, in order. A program of fixed shape without state has
	// none.
	Segments []Segment
	Picks    int // number of picked rows
}

// Segment is the part of a run's rows that belongs to one session.
type Segment struct {
	Rows  int      // number of rows
	Pos   int      // position of the first row
	State []Buffer // one per State argument of the program, in order
}

// maxPosition bounds rows and positions of a segment, so that their sums cannot overflow.
const maxPosition = 1 << 30

// rows returns the number of rows of the run: the sum over its segments or, if it has none, the
// rows of its program's first Out argument, whose shape is then fixed. A vector is one row there,
// as in [View.Matrix].
func (r *Run) rows() int {
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

// segmentRows returns the sum over the segments.
func (r *Run) segmentRows() int {
	n := 0
	for _, s := range r.Segments {
		n += s.Rows
	}
	return n
}

// Size returns the values of a program's symbols for this run. Rows is the sum over the segments,
// and 0 if there are none. Capacity and Pos differ between segments and are zero here.
func (r *Run) Size() op.Size { return op.Size{Rows: r.segmentRows(), Picks: r.Picks} }

// Check returns a [RunError] if the run does not fit its program. Devices call it before they
// execute anything.
func (r *Run) Check() error {
	if r.Exec == nil {
		return &RunError{Run: r.Name, Reason: "no executable"}
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
		return bad(Arg{}, "%d picks", r.Picks)
	}
	state := 0
	for i, a := range p.Args {
		for _, d := range a.Shape {
			if d < 0 && d != op.Capacity && size.Resolve(d) <= 0 {
				return bad(a, "shape %s, but the run has %d rows and %d picks", op.ShapeString(a.Shape),
					size.Rows,
					size.Picks)
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
				return bad(a, "no buffer")
			}
			continue
		}
		if one, _ := elements(a.Shape); max(size.Rows, size.Picks) > maxElements/one {
			return bad(a, "shape %s is too large for %d rows and %d picks", op.ShapeString(a.Shape),
				size.Rows,
				size.Picks)
		}
		// The device may hold a Const in another type than the program's.
		if need := a.Type.Bytes(size.Elements(a.Shape)); a.Kind != Const && r.Args[i].Len() < need {
			return bad(a, "%s %s needs %d bytes, the buffer has %d", a.Type, op.ShapeString(a.Shape), need,
				r.Args[i].Len())
		}
	}
	for i, s := range r.Segments {
		if len(s.State) != state {
			return bad(Arg{}, "the program has %d state arguments, segment %d has %d", state, i,
				len(s.State))
		}
	}
	return nil
}

// checkState checks the index-th State argument in every segment.
func (r *Run) checkState(a Arg, index int, bad func(Arg, string, ...any) error) error {
	for i, s := range r.Segments {
		if index >= len(s.State) || s.State[index] == nil {
			return bad(a, "no buffer in segment %d", i)
		}
		if c := StateCapacity(a, s.State[index].Len()); s.Pos+s.Rows > c {
			return bad(a, "segment %d needs %d positions, its buffer holds %d", i, s.Pos+s.Rows, c)
		}
	}
	return nil
}

// StateCapacity returns the number of positions of a State argument that fit into a buffer.
func StateCapacity(a Arg, bytes int) int {
	return bytes / a.Type.Bytes((op.Size{Capacity: 1, Rows: 1, Picks: 1}).Elements(a.Shape))
}
