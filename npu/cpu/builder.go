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

// builder turns runs into an array of commands. It serves one Submit after another and keeps its
// memory.
type builder struct {
	engine engine
	ctx    context.Context // of the current Submit
	lists  arena           // commands and segments: alive until the Submit ends
	work   arena           // scratch arguments and panels of the current run, which the next one overwrites

	cmds []kernel.Command // outside the Go heap
	tags []tag            // where each command comes from

	// Extents read and written since the last barrier, and those of the current command.
	reads, writes       []extent
	newReads, newWrites []extent

	// The current run.
	exec  *executable
	run   *npu.Run
	size  op.Size
	bound []bound

	failed error // the first error of resolving an operand

	// Memory for values between the commands of a launch, used round-robin. It has the hazards, and
	// gets the barriers, of any other memory.
	slots [3]struct {
		p    unsafe.Pointer
		size int64
	}
	slot int

	// The activations packed last, so that q, k and v share them. Valid while panels is not nil.
	packed struct {
		source extent
		key    kernel.Command
		panels unsafe.Pointer
	}
}

// tag tells which launches of which run a command belongs to: one, or a product and the launch that
// is fused with it.
type tag struct{ run, first, last int32 }

// extent is memory that a command accesses: from start to end, width bytes every stride bytes.
type extent struct {
	start, end    uintptr
	width, stride uintptr
}

// overlaps reports whether two extents share a byte. It tells column ranges of one matrix apart.
func (a extent) overlaps(b extent) bool {
	if a.start >= b.end || b.start >= a.end {
		return false
	}
	if a.stride != b.stride || a.stride == 0 {
		return true
	}
	// how far b's columns start after a's, modulo the stride
	d := (b.start + a.stride - a.start%a.stride) % a.stride
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
			err = b.lower(l)
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
	return nil
}

// sizeOf returns the bytes of a shape in a run of the given size. It returns an error if the shape
// is empty or too large.
func sizeOf(t dtype.Type, shape []int, size op.Size) (int, error) {
	n := 1
	for _, d := range shape {
		d = size.Resolve(d)
		if d < 1 || n > maxAlloc/d {
			return 0, fmt.Errorf("it is %s, and a run of %d rows and %d picks makes a dimension of it "+
				"empty or all of it larger than any memory",
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
				// Const expands blocks to BF16. Any other weight must have the type of its
				// argument.
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
				return bad(i, fmt.Errorf("it is %s %s and needs %d bytes as %s, the buffer has %d",
					a.Type, op.ShapeString(a.Shape), need, x.typ, buf.Len()))
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
			return bad(i, fmt.Errorf("no kernel reads %s from a plain buffer: make it with "+
				"Device.Const, which expands it", x.typ))
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

// own returns the device's own buffer behind b.
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

// ref is an operand with its memory.
type ref struct {
	p      unsafe.Pointer
	code   int32
	stride int64
	block  int64  // first block of a weight in BF12
	extent extent // zero for a constant, which nothing writes
}

// appendTo appends the extent of r to list, unless r is a constant.
func (r ref) appendTo(list []extent) []extent {
	if r.extent == (extent{}) {
		return list
	}
	return append(list, r.extent)
}

// same reports whether two operands of one shape, neither of them constant, are the same elements
// of the same type.
func (r ref) same(s ref) bool {
	return r.p == s.p && r.code == s.code && r.extent.end == s.extent.end && r.extent.width == s.extent.width
}

// widen makes sure that an argument has memory: a late weight is expanded to BF16. An error is kept
// in b.failed, which the callers of lower check.
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

// weight resolves an operand whose kernel reads quantized weights in groups, in rows of k elements.
// Views other than of whole rows from the start of a group are BF16, as for ops without such a
// kernel.
func (b *builder) weight(o *operand, k int64) ref {
	g := b.bound[o.arg].grouped
	if g == nil || k != g.Cols || o.stride != k || o.offset%(k*kernel.GroupRows) != 0 {
		return b.at(o)
	}
	group := o.offset / k / kernel.GroupRows
	p := unsafe.Add(g.Ptr(), group*kernel.FormOf(g.Code).GroupBytes(k))
	return ref{p: p, code: g.Code, stride: k}
}

// factor resolves a transposed weight of a product, in rows of k elements, for activations of type
// a. Views of BF12 start at a block, and BF12x16 needs BF16 activations.
func (b *builder) factor(o *operand, k int64, a int32) ref {
	w := b.bound[o.arg].bf12
	if w == nil || k != w.Cols || o.stride != k || o.offset%(k*int64(w.Group)) != 0 ||
		w.Code == kernel.BF12x16 && a != kernel.BF16 {
		return b.weight(o, k)
	}
	block := o.offset / k / int64(w.Group)
	return ref{p: unsafe.Pointer(w.Head), code: w.Code, stride: k, block: block}
}

// factors resolves the operands that a product multiplies.
func (b *builder) factors(m op.MatMul, l *launch) (a, w ref) {
	a = b.at(&l.operands[0])
	if m.TransB {
		return a, b.factor(&l.operands[1], int64(m.K), a.code)
	}
	return a, b.at(&l.operands[1])
}

// at resolves an operand and records its extent as read or written by the current command.
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

// extent returns the memory of rows of width elements that are stride elements apart.
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

// between returns n bytes for values between commands, valid until the third call after this one.
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

// maxPending bounds the extents that are remembered between barriers: another barrier costs less
// than more comparisons.
const maxPending = 48

// push appends a command whose operands have been resolved with at. It inserts a barrier before the
// command if the command reads memory written since the last barrier, or writes memory read or
// written since.
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

// apart returns an error if an output overlaps an input, which might be overwritten before it is
// read.
func (b *builder) apart() error {
	for _, w := range b.newWrites {
		if overlapAny(b.newReads, w) {
			return fmt.Errorf("its output overlaps an input: this op does not work in place: bind memory of its own")
		}
	}
	return nil
}

// inPlace is apart for an op whose output y may alias the inputs in over exactly.
func (b *builder) inPlace(y ref, over ...ref) error {
	for _, r := range b.newReads {
		aliases := func(x ref) bool { return x.extent == r && x.same(y) }
		if r.overlaps(y.extent) && !slices.ContainsFunc(over, aliases) {
			return fmt.Errorf("its output overlaps an input, and is not the same elements of the " +
				"same type: bind the very same, or memory of its own")
		}
	}
	return nil
}
