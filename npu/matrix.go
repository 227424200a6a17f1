package npu

// Matrix is the part of an argument that a view covers: rows of Width elements, Stride elements
// apart, starting at Offset.
type Matrix struct {
	Offset int
	Rows   int // or its symbol
	Width  int // a symbol among the inner dimensions counts as 1
	Stride int // Width for a single row
}

// Matrix returns the view of an argument with the given shape. Leading ones are ignored. A vector
// is one row; one of symbolic length has a row per element.
func (v View) Matrix(shape []int) Matrix {
	if v.Shape != nil {
		shape = v.Shape
	}
	shape = withoutOnes(shape)
	m := Matrix{Offset: v.Offset, Rows: 1, Width: 1}
	if len(shape) > 1 || len(shape) == 1 && shape[0] < 0 {
		m.Rows, shape = shape[0], shape[1:]
	}
	for _, d := range shape {
		m.Width *= max(d, 1)
	}
	m.Stride = m.Width
	if v.Stride != 0 && m.Rows != 1 {
		m.Stride = v.Stride
	}
	return m
}

// withoutOnes drops leading ones of a shape.
func withoutOnes(shape []int) []int {
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	return shape
}

// matrix returns the part of its argument that a view covers.
func (p *Program) matrix(v View) Matrix { return v.Matrix(p.Args[v.Arg].Shape) }

// end returns the offset after the last element; after the first row if the number of rows is open.
func (m Matrix) end() int { return m.Offset + (max(m.Rows, 1)-1)*m.Stride + m.Width }

// dense reports whether rows are contiguous.
func (m Matrix) dense() bool { return m.Rows <= 1 || m.Stride == m.Width }

// overlaps reports whether two views of one argument share an element. For different strides it
// compares ranges only.
func (m Matrix) overlaps(n Matrix) bool {
	if m.Rows >= 0 && (m.Offset >= n.end() || n.Offset >= m.end()) {
		return false
	}
	stride := m.Stride
	switch {
	case m.Rows == 1 && n.Rows == 1:
		return true
	case m.Rows == 1:
		stride = n.Stride
	case n.Rows != 1 && n.Stride != stride:
		return true
	}
	// distance from m's first column to n's, modulo the stride
	d := ((n.Offset-m.Offset)%stride + stride) % stride
	return d < m.Width || stride-d < n.Width
}
