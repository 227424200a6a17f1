package cpu

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// builder turns runs into an array of commands. It is used for one Submit after the other and keeps its memory.
type builder struct {
	engine engine
	ctx    context.Context // of the Submit at hand
	lists  arena           // commands and segments: alive until the Submit ends
	work   arena           // scratch arguments and panels of the current run; the next run overwrites them

	cmds []kernel.Command // outside the Go heap
	tags []tag            // where each command comes from

	// What has been read and written since the last barrier, and what the command at hand reads and writes.
	reads, writes       []extent
	newReads, newWrites []extent

	// The run at hand.
	exec  *executable
	run   *npu.Run
	size  op.Size
	bound []bound

	failed error // what went wrong where an operand was resolved

	// Memory for values between the commands of a launch, used in turn: what lies in the oldest is given up. The hazards are the same as for
	// any other memory, and so are the barriers.
	slots [3]struct {
		p    unsafe.Pointer
		size int64
	}
	slot int

	// The activations that were packed last, so that q, k and v share them. Valid while panels is not nil.
	packed struct {
		source extent
		key    kernel.Command
		panels unsafe.Pointer
	}

	calls []hostCall // of programs with a defect
}

// tag says which launches of which run a command belongs to: one, or a product and the launch that goes on with it.
type tag struct{ run, first, last int32 }

// extent is memory that a command touches: from start on, width bytes every stride bytes, up to end.
type extent struct {
	start, end    uintptr
	width, stride uintptr
}

// overlaps reports whether two extents share a byte. Column ranges of one matrix are told apart.
func (a extent) overlaps(b extent) bool {
	if a.start >= b.end || b.start >= a.end {
		return false
	}
	if a.stride != b.stride || a.stride == 0 {
		return true
	}
	d := (b.start + a.stride - a.start%a.stride) % a.stride // how far b's columns start after a's, around the row
	return d < a.width || a.stride-d < b.width
}

func overlapAny(list []extent, e extent) bool {
	for _, x := range list {
		if x.overlaps(e) {
			return true
		}
	}
	return false
}

func (b *builder) free() {
	b.lists.free()
	b.work.free()
}

// start prepares for runs of at most so many launches.
func (b *builder) start(launches int) error {
	if err := b.lists.reset(); err != nil {
		return err
	}
	if err := b.work.reset(); err != nil {
		return err
	}
	n := launches * maxCommands
	p, err := b.lists.alloc(max(n, 1) * int(unsafe.Sizeof(kernel.Command{})))
	if err != nil {
		return err
	}
	b.cmds = unsafe.Slice((*kernel.Command)(p), n)[:0]
	b.tags = b.tags[:0]
	b.reads, b.writes = b.reads[:0], b.writes[:0]
	b.packed.panels = nil
	b.calls = b.calls[:0]
	b.failed = nil
	return nil
}

// add appends the commands of a run.
func (b *builder) add(index int, r *npu.Run, d *Device) error {
	if err := r.Check(); err != nil {
		return err
	}
	e, ok := r.Exec.(*executable)
	if !ok || e.d != d {
		return fmt.Errorf("npu/cpu: run %q: program %s was loaded on another device", r.Name, r.Exec.Program().Name)
	}
	if e.closed.Load() {
		return fmt.Errorf("npu/cpu: run %q of program %s: %w", r.Name, e.p.Name, npu.ErrClosed)
	}
	b.exec, b.run, b.size = e, r, r.Size()
	b.work.rewind()
	b.packed.panels = nil
	clear(b.slots[:])
	if err := b.bind(); err != nil {
		return err
	}
	lower := b.lower
	if e.defect != nil {
		lower = b.lowerDefect
	}
	for i := 0; i < len(e.launches); i++ {
		l, last := &e.launches[i], i
		from := len(b.cmds)
		var joined bool
		var err error
		if l.join != nil {
			joined, err = b.joined(l)
		}
		if joined {
			last++
		} else if err == nil {
			err = lower(l)
		}
		if err == nil {
			err = b.failed
		}
		if err != nil {
			return fmt.Errorf("npu/cpu: run %q, program %s, launch %q: %w", r.Name, e.p.Name, l.name, err)
		}
		for range len(b.cmds) - from {
			b.tags = append(b.tags, tag{int32(index), int32(i), int32(last)})
		}
		i = last
	}
	if e.defect != nil {
		e.before = append(e.before[:0], b.bound[:len(e.p.Args)]...)
	}
	return nil
}

// sizeOf is the bytes of a shape in a run of the given size. A shape that is empty in it, or larger than any memory, is an error.
func sizeOf(t dtype.Type, shape []int, size op.Size) (int, error) {
	n := 1
	for _, d := range shape {
		d = size.Resolve(d)
		if d < 1 || n > maxAlloc/d {
			return 0, fmt.Errorf("it is %s, and a run of %d rows and %d picks makes a dimension of it empty or all of it larger than any memory",
				op.ShapeString(shape), size.Rows, size.Picks)
		}
		n *= d
	}
	return t.Bytes(n), nil
}

// bind finds the memory of every argument.
func (b *builder) bind() error {
	e, r := b.exec, b.run
	bad := func(i int, err error) error {
		return fmt.Errorf("npu/cpu: run %q of program %s, argument %q: %w", r.Name, e.p.Name, e.p.Args[i].Name, err)
	}
	b.bound = b.bound[:0]
	for i, a := range e.p.Args {
		x := bound{typ: a.Type, constant: a.Kind == npu.Const}
		switch {
		case a.Kind == npu.State:
			for _, s := range r.Segments {
				buf, err := e.d.own(s.State[e.states[i]])
				if err == nil && buf.fixed {
					err = fmt.Errorf("it is a state, and its buffer is a read-only weight")
				}
				if err != nil {
					return bad(i, err)
				}
			}
		case r.Args[i] == nil:
			n, err := sizeOf(a.Type, a.Shape, b.size)
			if err != nil {
				return bad(i, err)
			}
			p, err := b.work.alloc(n)
			if err != nil {
				return bad(i, err)
			}
			x.mem = (*byte)(p)
		default:
			buf, err := e.d.own(r.Args[i])
			if err != nil {
				return bad(i, err)
			}
			if e.written[i] && buf.fixed {
				return bad(i, fmt.Errorf("it is written, and its buffer is a read-only weight"))
			}
			if buf.typ != dtype.Invalid {
				// Blocks are expanded to BF16 when a weight is made; otherwise a weight has its own type, and read as another it is noise.
				if buf.typ != a.Type && (a.Kind != npu.Const || buf.typ != dtype.BF16 || !a.Type.Quantized()) {
					return bad(i, fmt.Errorf("it is %s, and its buffer holds a weight of %s", a.Type, buf.typ))
				}
				x.typ = buf.typ
			}
			need, err := sizeOf(x.typ, a.Shape, b.size)
			if err != nil {
				return bad(i, err)
			}
			if buf.Len() < need {
				return bad(i, fmt.Errorf("it is %s %s and needs %d bytes as %s, the buffer has %d", a.Type, op.ShapeString(a.Shape), need, x.typ, buf.Len()))
			}
			x.mem = unsafe.SliceData(buf.data)
			if buf.late {
				x.weight, x.bf12 = buf.from, buf.bf12
				if a.Type.Quantized() {
					x.grouped = buf.grouped
				}
			}
		}
		code, ok := kernel.Types[x.typ]
		if !ok && b.exec.uses(i) {
			return bad(i, fmt.Errorf("no kernel reads %s from a plain buffer: make it with Device.Const, which expands it", x.typ))
		}
		x.code = code
		b.bound = append(b.bound, x)
	}
	for _, x := range e.extra {
		of := b.bound[x.arg]
		p, err := b.work.alloc(of.typ.Bytes(x.elements))
		if err != nil {
			return bad(x.arg, err)
		}
		b.bound = append(b.bound, bound{mem: (*byte)(p), typ: of.typ, code: of.code})
	}
	return nil
}

// uses reports whether some launch has the argument as an operand.
func (e *executable) uses(arg int) bool {
	for i := range e.launches {
		for _, o := range e.launches[i].operands {
			if o.arg == arg {
				return true
			}
		}
	}
	return false
}

// own is the device's own buffer behind b.
func (d *Device) own(b npu.Buffer) (*buffer, error) {
	own, ok := b.(*buffer)
	switch {
	case !ok || own.d != d:
		return nil, fmt.Errorf("its buffer belongs to another device")
	case own.closed.Load():
		return nil, fmt.Errorf("its buffer: %w", npu.ErrClosed)
	}
	return own, nil
}

// ref is an operand with its memory: what a command says of it.
type ref struct {
	p      unsafe.Pointer
	code   int32
	stride int64
	block  int64  // first block of a weight in BF12
	extent extent // zero for a constant, which nothing writes
}

// appendTo adds what r touches to a list of extents.
func (r ref) appendTo(list []extent) []extent {
	if r.extent == (extent{}) {
		return list
	}
	return append(list, r.extent)
}

// same reports whether two operands of one shape, neither of them constant, are the same elements of the same type.
func (r ref) same(s ref) bool {
	return r.p == s.p && r.code == s.code && r.extent.end == s.extent.end && r.extent.width == s.extent.width
}

// widen makes sure that an argument has memory: a late weight's BF16. What goes wrong is kept in b.failed, which lower's callers look at.
func (b *builder) widen(x *bound) {
	if x.mem != nil || x.weight == nil || b.failed != nil {
		return
	}
	data, err := x.weight.expanded(b.ctx, b.exec.d)
	if err != nil {
		b.failed = err
		return
	}
	x.mem = unsafe.SliceData(data)
}

// weight resolves an operand whose kernel reads quantised weights in groups, in rows of k elements. Views other than of whole rows from the first of
// a group on are BF16, as for ops that have no such kernel.
func (b *builder) weight(o *operand, k int64) ref {
	g := b.bound[o.arg].grouped
	if g == nil || k != g.Cols || o.stride != k || o.offset%(k*kernel.GroupRows) != 0 {
		return b.at(o)
	}
	group := o.offset / k / kernel.GroupRows
	return ref{p: unsafe.Add(g.Ptr(), group*kernel.FormOf(g.Code).GroupBytes(k)), code: g.Code, stride: k}
}

// factor resolves a transposed weight of a product, in rows of k elements, for activations of a type. Views of BF12 begin with a block, and BF12x16 is for BF16.
func (b *builder) factor(o *operand, k int64, a int32) ref {
	w := b.bound[o.arg].bf12
	if w == nil || k != w.Cols || o.stride != k || o.offset%(k*int64(w.Group)) != 0 || w.Code == kernel.BF12x16 && a != kernel.BF16 {
		return b.weight(o, k)
	}
	return ref{p: unsafe.Pointer(w.Head), code: w.Code, stride: k, block: o.offset / k / int64(w.Group)}
}

// factors resolves the operands of a product that are multiplied.
func (b *builder) factors(m op.MatMul, l *launch) (a, w ref) {
	a = b.at(&l.operands[0])
	if m.TransB {
		return a, b.factor(&l.operands[1], int64(m.K), a.code)
	}
	return a, b.at(&l.operands[1])
}

// at resolves an operand and notes what the command at hand does with it.
func (b *builder) at(o *operand) ref {
	x := &b.bound[o.arg]
	b.widen(x)
	size := kernel.TypeBytes[x.code]
	r := ref{p: unsafe.Add(unsafe.Pointer(x.mem), o.offset*size), code: x.code, stride: o.stride}
	if !x.constant {
		rows, width := int64(1), int64(b.size.Elements(o.shape))
		if len(o.shape) > 1 && o.stride > 0 {
			rows = int64(b.size.Resolve(o.shape[0]))
			width /= rows
		}
		r.extent = b.extent(r.p, rows, width, o.stride, size)
	}
	if o.read {
		b.newReads = r.appendTo(b.newReads)
	}
	if o.write {
		b.newWrites = r.appendTo(b.newWrites)
	}
	return r
}

// extent is the memory of rows of width elements that lie stride elements apart.
func (b *builder) extent(p unsafe.Pointer, rows, width, stride, size int64) extent {
	start := uintptr(p)
	return extent{start, start + uintptr(((rows-1)*stride+width)*size), uintptr(width * size), uintptr(stride * size)}
}

func (b *builder) reading(p unsafe.Pointer, bytes int64) {
	b.newReads = append(b.newReads, extent{start: uintptr(p), end: uintptr(p) + uintptr(bytes)})
}

func (b *builder) writing(p unsafe.Pointer, bytes int64) {
	b.newWrites = append(b.newWrites, extent{start: uintptr(p), end: uintptr(p) + uintptr(bytes)})
}

// between gives n bytes for values between commands, valid until it has been called three times more.
func (b *builder) between(n int64) (unsafe.Pointer, error) {
	b.slot = (b.slot + 1) % len(b.slots)
	s := &b.slots[b.slot]
	if s.p != nil && s.p == b.packed.panels {
		b.packed.panels = nil
	}
	if s.size < n {
		p, err := b.work.alloc(int(n))
		if err != nil {
			return nil, err
		}
		s.p, s.size = p, n
	}
	return s.p, nil
}

// maxPending bounds the extents that are remembered between barriers; a barrier more costs less than comparing more.
const maxPending = 48

// push appends a command whose operands have been resolved with at, and puts a barrier before it if it needs what has been written since the
// last one, or overwrites what has been touched.
func (b *builder) push(c kernel.Command) {
	barrier := len(b.reads)+len(b.writes) > maxPending
	for _, r := range b.newReads {
		barrier = barrier || overlapAny(b.writes, r)
	}
	for _, w := range b.newWrites {
		barrier = barrier || overlapAny(b.writes, w) || overlapAny(b.reads, w)
		if b.packed.panels != nil && b.packed.source.overlaps(w) {
			b.packed.panels = nil
		}
	}
	if barrier {
		c.Barrier = 1
		b.reads, b.writes = b.reads[:0], b.writes[:0]
	}
	b.reads = append(b.reads, b.newReads...)
	b.writes = append(b.writes, b.newWrites...)
	b.newReads, b.newWrites = b.newReads[:0], b.newWrites[:0]
	b.cmds = append(b.cmds, c)
}

// apart reports an output that overlaps an input: what is read might be overwritten first.
func (b *builder) apart() error {
	for _, w := range b.newWrites {
		if overlapAny(b.newReads, w) {
			return fmt.Errorf("its output overlaps an input: this op does not work in place: bind memory of its own")
		}
	}
	return nil
}

// inPlace is apart for an op whose output y may be written over some inputs, element for element.
func (b *builder) inPlace(y ref, over ...ref) error {
	for _, r := range b.newReads {
		if r.overlaps(y.extent) && !slices.ContainsFunc(over, func(x ref) bool { return x.extent == r && x.same(y) }) {
			return fmt.Errorf("its output overlaps an input, and is not the same elements of the same type: bind the very same, or memory of its own")
		}
	}
	return nil
}
