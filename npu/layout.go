package npu

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/npukit/npukit/npu/dtype"
)

// Tensor is a weight in memory: row-major, whole blocks per row.
type Tensor struct {
	Type  dtype.Type
	Shape []int
	Data  []byte // not in the Go heap: devices may read it in place
}

// Tensors returns weights by name: a checkpoint, or tables computed for it.
type Tensors interface {
	Tensor(name string) (Tensor, error)
}

// Source describes the content of a Const buffer: a layout over named tensors.
type Source struct {
	Layout Layout
	From   Tensors
	Lookup bool // used by embedding only, so the device need not prepare it for products
}

// Layout is an expression over checkpoint tensors, written as a call such as "interleave(a.weight,
// b.weight)". It describes the memory layout that a program needs, and lets a device create it once
// and share it.
//
//	NAME                    the tensor itself
//	transpose(x)            [r c] to [c r]
//	rows(x, from, to)       rows from (inclusive) to to (exclusive)
//	pad(x, r, c)            x padded with zeros to [r c]
//	interleave(x, y)        row 0 of x, row 0 of y, row 1 of x, ...
//	stack(x, y, ...)        the rows of x, then those of y, ...
//	repeat(x, n)            every row n times in a row: [r c] to [r n*c]
//	bf16(x)                 x in BF16, rounded to nearest even; quantized blocks are dequantized
//	zeros(r, c)             zeros
//
// A vector counts as one row.
type Layout struct {
	Op      string   // "" for a tensor
	Name    string   // of the tensor
	Args    []Layout // operands
	Numbers []int    // numbers after the operands
}

// T returns the layout of a tensor itself.
func T(name string) Layout { return Layout{Name: name} }

// Identity returns the tensor's name if the layout is the tensor itself.
func (l Layout) Identity() (name string, ok bool) { return l.Name, l.Op == "" }

// layoutOps has the number of operands (-1: one or more) and of numbers of each operation.
var layoutOps = map[string]struct{ args, numbers int }{
	"transpose":  {1, 0},
	"rows":       {1, 2},
	"pad":        {1, 2},
	"interleave": {2, 0},
	"stack":      {-1, 0},
	"repeat":     {1, 1},
	"bf16":       {1, 0},
	"zeros":      {0, 2},
}

// String returns the layout in the form that ParseLayout reads.
func (l Layout) String() string {
	if l.Op == "" {
		return l.Name
	}
	var parts []string
	for _, a := range l.Args {
		parts = append(parts, a.String())
	}
	for _, n := range l.Numbers {
		parts = append(parts, strconv.Itoa(n))
	}
	return l.Op + "(" + strings.Join(parts, ", ") + ")"
}

// maxLayoutDepth bounds nesting; real layouts nest two or three deep.
const maxLayoutDepth = 16

// ParseLayout parses a layout. It returns a [LayoutError] for bad text.
func ParseLayout(s string) (Layout, error) {
	l, rest, err := parseLayout(strings.TrimSpace(s), 0)
	if err == nil && rest != "" {
		err = fmt.Errorf("unexpected %q at the end", rest)
	}
	if err != nil {
		return Layout{}, &LayoutError{strconv.Quote(s), err.Error()}
	}
	return l, nil
}

func parseLayout(s string, depth int) (l Layout, rest string, err error) {
	if depth > maxLayoutDepth {
		return l, "", fmt.Errorf("nested deeper than %d", maxLayoutDepth)
	}
	end := strings.IndexAny(s, "(), ")
	if end < 0 {
		end = len(s)
	}
	word, rest := s[:end], strings.TrimLeft(s[end:], " ")
	if word == "" {
		return l, "", fmt.Errorf("expected a tensor name or an operation at %q", s)
	}
	if !strings.HasPrefix(rest, "(") {
		return T(word), rest, nil
	}
	want, ok := layoutOps[word]
	if !ok {
		return l, "", fmt.Errorf("unknown operation %q", word)
	}
	l.Op = word
	rest = strings.TrimLeft(rest[1:], " ")
	for !strings.HasPrefix(rest, ")") {
		if want.args >= 0 && len(l.Args) == want.args {
			var n int
			end := strings.IndexAny(rest, "), ")
			if end < 0 {
				return l, "", fmt.Errorf("missing )")
			}
			if n, err = strconv.Atoi(rest[:end]); err != nil || n < 0 || n > 1<<31 {
				return l, "", fmt.Errorf("%s: %q is not a number in range", word, rest[:end])
			}
			l.Numbers = append(l.Numbers, n)
			rest = rest[end:]
		} else {
			var a Layout
			if a, rest, err = parseLayout(rest, depth+1); err != nil {
				return l, "", err
			}
			l.Args = append(l.Args, a)
		}
		rest = strings.TrimLeft(rest, " ")
		if strings.HasPrefix(rest, ",") {
			rest = strings.TrimLeft(rest[1:], " ")
		} else if !strings.HasPrefix(rest, ")") {
			return l, "", fmt.Errorf("expected , or ) at %q", rest)
		}
	}
	if err := l.wellFormed(); err != nil {
		return l, "", err
	}
	return l, strings.TrimLeft(rest[1:], " "), nil
}

// wellFormed checks the operation and its numbers of operands and numbers.
func (l Layout) wellFormed() error {
	want, ok := layoutOps[l.Op]
	if !ok {
		return fmt.Errorf("unknown operation %q", l.Op)
	}
	if want.args >= 0 && len(l.Args) != want.args || want.args < 0 && len(l.Args) == 0 ||
		len(l.Numbers) != want.numbers {
		return fmt.Errorf("%s: wrong arguments: %d operands and %d numbers", l.Op, len(l.Args),
			len(l.Numbers))
	}
	for _, n := range l.Numbers {
		if n < 0 || n > 1<<31 {
			return fmt.Errorf("%s: %d is not a number in range", l.Op, n)
		}
	}
	return nil
}

// MarshalText encodes the layout as text.
func (l Layout) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses a layout.
func (l *Layout) UnmarshalText(b []byte) (err error) {
	*l, err = ParseLayout(string(b))
	return err
}

func badLayout(l Layout, format string, args ...any) error {
	return &LayoutError{l.String(), fmt.Sprintf(format, args...)}
}

// tensor returns a tensor of the source.
func (s Source) tensor(name string) (Tensor, error) {
	if s.From == nil {
		return Tensor{}, badLayout(s.Layout, "Source.From is nil: there is nowhere to find tensor %q",
			name)
	}
	return s.From.Tensor(name)
}

// Stat returns the type and shape of the weight without creating it.
func (s Source) Stat() (dtype.Type, []int, error) {
	m, err := s.whole()
	return m.typ, m.shape, err
}

// Key identifies the weight by its layout and its tensors' addresses, so that a device can share
// one buffer among equal requests without mixing up checkpoints with equal names. It is valid while
// the tensors' memory is not freed.
func (s Source) Key() (string, error) {
	var b strings.Builder
	var walk func(l Layout) error
	walk = func(l Layout) error {
		if name, ok := l.Identity(); ok {
			t, err := s.tensor(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%p:%d:%v:%v", unsafe.SliceData(t.Data), len(t.Data), t.Type, t.Shape)
			return nil
		}
		fmt.Fprintf(&b, "%s%v(", l.Op, l.Numbers)
		for _, a := range l.Args {
			if err := walk(a); err != nil {
				return err
			}
			b.WriteByte(',')
		}
		b.WriteByte(')')
		return nil
	}
	err := walk(s.Layout)
	return b.String(), err
}

// Materialize writes the weight to dst, whose length must be its size (see Stat). All tensors of a
// layout must have one type; transpose, column padding and repeat need one that is not quantized.
func (s Source) Materialize(dst []byte) error {
	m, err := s.whole()
	if err != nil {
		return err
	}
	if len(dst) != m.rows()*m.rowBytes() {
		return badLayout(s.Layout, "needs %d bytes, dst has %d", m.rows()*m.rowBytes(), len(dst))
	}
	for r := range m.rows() {
		m.row(dst[r*m.rowBytes():][:m.rowBytes()], r)
	}
	return nil
}

// matrix is a weight that is produced row by row. Rows are independent, so only the result takes
// memory.
type matrix struct {
	typ   dtype.Type
	shape []int
	row   func(dst []byte, r int)
}

func (m matrix) cols() int     { return m.shape[len(m.shape)-1] }
func (m matrix) rowBytes() int { return m.typ.Bytes(m.cols()) }

func (m matrix) rows() int {
	n := 1
	for _, d := range m.shape[:len(m.shape)-1] {
		n *= d
	}
	return n
}

// transposeRows is the number of rows per transposed band: of two bytes each, they fill a cache
// line of every column.
const transposeRows = 32

// transposed returns the transposed matrix. Its type must not be quantized.
func (m matrix) transposed() []byte {
	rows, cols, size, n := m.rows(), m.cols(), m.typ.Bytes(1), m.rowBytes()
	dst := make([]byte, rows*n)
	band := make([]byte, transposeRows*n)
	for from := 0; from < rows; from += transposeRows {
		count := min(transposeRows, rows-from)
		for r := range count {
			m.row(band[r*n:][:n], from+r)
		}
		for c := range cols {
			line := dst[(c*rows+from)*size:][:count*size]
			at := c * size
			if size == 2 { // the type of nearly all weights
				for i := 0; i < len(line); i += 2 {
					line[i], line[i+1] = band[at], band[at+1]
					at += n
				}
				continue
			}
			for i := 0; i < len(line); i += size {
				copy(line[i:i+size], band[at:])
				at += n
			}
		}
	}
	return dst
}

// whole returns the matrix of the whole layout, which must have a type.
func (s Source) whole() (matrix, error) {
	m, err := s.matrix(s.Layout)
	if err == nil && m.typ == dtype.Invalid {
		err = badLayout(s.Layout, "zeros alone have no element type: stack them with a tensor")
	}
	return m, err
}

// maxLayout bounds the elements of a layout and of its parts; the largest tensors of real models
// have about 2^31.
const maxLayout = 1 << 34

// matrix returns the weight that a layout describes. It allocates nothing of the weight's size
// before the first row.
func (s Source) matrix(l Layout) (matrix, error) {
	m, err := s.part(l)
	if err == nil && !inRange(m.shape) {
		err = badLayout(l, "shape %v is out of range", m.shape)
	}
	if m.typ == dtype.Invalid { // only zeros, which take the type of what they are combined with
		m.row = func(dst []byte, _ int) { clear(dst) }
	}
	return m, err
}

func inRange(shape []int) bool {
	n := 1
	for _, d := range shape {
		if d < 1 || d > maxLayout/n {
			return false
		}
		n *= d
	}
	return true
}

func (s Source) part(l Layout) (matrix, error) {
	bad := func(format string, args ...any) (matrix, error) {
		return matrix{}, badLayout(l, format, args...)
	}
	if l.Op == "" {
		t, err := s.tensor(l.Name)
		if err != nil {
			return matrix{}, err
		}
		m := matrix{typ: t.Type, shape: t.Shape}
		if len(t.Shape) == 0 || len(t.Data) != m.rows()*m.rowBytes() {
			return bad("a tensor of %s %v cannot have %d bytes", t.Type, t.Shape, len(t.Data))
		}
		n := m.rowBytes()
		m.row = func(dst []byte, r int) { copy(dst, t.Data[r*n:][:n]) }
		return m, nil
	}
	if err := l.wellFormed(); err != nil {
		return bad("%v", err)
	}
	args := make([]matrix, len(l.Args))
	for i, a := range l.Args {
		var err error
		if args[i], err = s.matrix(a); err != nil {
			return matrix{}, err
		}
	}
	for i := range args {
		if args[i].typ == dtype.Invalid { // zeros take the type of the other operands
			for _, b := range args {
				args[i].typ = max(args[i].typ, b.typ)
			}
		}
		if args[i].typ != args[0].typ && args[0].typ != dtype.Invalid {
			return bad("operands of different types: %s and %s", args[0].typ, args[i].typ)
		}
		if args[i].typ.Quantized() && (l.Op == "transpose" || l.Op == "repeat" || l.Op == "pad" &&
			l.Numbers[1] != args[i].cols()) {
			return bad("%s blocks cannot be split", args[i].typ)
		}
	}
	switch l.Op {
	case "zeros":
		return matrix{typ: dtype.Invalid, shape: l.Numbers}, nil
	case "transpose":
		x := args[0]
		if len(x.shape) != 2 {
			return bad("the operand has %d dimensions, want 2", len(x.shape))
		}
		y := matrix{typ: x.typ, shape: []int{x.shape[1], x.shape[0]}}
		n := y.rowBytes()
		whole := sync.OnceValue(x.transposed) // computed for the first row
		y.row = func(dst []byte, c int) { copy(dst, whole()[c*n:][:n]) }
		return y, nil
	case "rows":
		x, from, to := args[0], l.Numbers[0], l.Numbers[1]
		if from >= to || to > x.rows() {
			return bad("the operand has %d rows", x.rows())
		}
		return matrix{x.typ, []int{to - from, x.cols()}, func(dst []byte, r int) { x.row(dst, from+r) }},
			nil
	case "pad":
		x := args[0]
		if l.Numbers[0] < x.rows() || l.Numbers[1] < x.cols() {
			return bad("the operand is larger: [%d %d]", x.rows(), x.cols())
		}
		return matrix{x.typ, []int{l.Numbers[0], l.Numbers[1]}, func(dst []byte, r int) {
			clear(dst)
			if r < x.rows() {
				x.row(dst[:x.rowBytes()], r)
			}
		}}, nil
	case "interleave":
		x, y := args[0], args[1]
		if x.rows() != y.rows() || x.cols() != y.cols() {
			return bad("the operands differ: %v and %v", x.shape, y.shape)
		}
		return matrix{x.typ, []int{2 * x.rows(), x.cols()},
			func(dst []byte, r int) { args[r%2].row(dst, r/2) }}, nil
	case "stack":
		var end []int
		rows := 0
		for _, x := range args {
			if x.cols() != args[0].cols() {
				return bad("the operands' rows differ: %d and %d elements", args[0].cols(), x.cols())
			}
			rows += x.rows()
			end = append(end, rows)
		}
		return matrix{args[0].typ, []int{rows, args[0].cols()}, func(dst []byte, r int) {
			i := 0
			for r >= end[i] {
				i++
			}
			args[i].row(dst, r-(end[i]-args[i].rows()))
		}}, nil
	case "repeat":
		x, n := args[0], l.Numbers[0]
		if n < 1 {
			return bad("repeat count %d, want 1 or more", n)
		}
		return matrix{x.typ, []int{x.rows(), n * x.cols()}, func(dst []byte, r int) {
			x.row(dst[:x.rowBytes()], r)
			for i := 1; i < n; i++ {
				copy(dst[i*x.rowBytes():], dst[:x.rowBytes()])
			}
		}}, nil
	case "bf16":
		x := args[0]
		if x.typ == dtype.BF16 || x.typ == dtype.Invalid {
			return x, nil
		}
		return matrix{dtype.BF16, x.shape, func(dst []byte, r int) {
			row, values := make([]byte, x.rowBytes()), make([]float32, x.cols())
			x.row(row, r)
			// It fails only for a wrong length or type, which part has checked.
			_ = dtype.Dequantize(values, x.typ, row)
			dtype.F32ToBF16(dtype.BFloat16s(dst), values)
		}}, nil
	}
	return bad("unknown operation")
}
