package npu

// Matrix is what a view covers of its argument: rows of Width elements that lie Stride elements apart, from Offset on.
type Matrix struct {
	Offset int
	Rows   int // or the symbol that stands for them
	Width  int // a symbol among the inner dimensions counts as 1
	Stride int // Width for a single row
}

// Matrix is the view of an argument of a shape. Leading ones do not count, as nowhere, and a vector is one row; of an open number it is a row
// for each element.
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

// withoutOnes is a shape without leading ones.
func withoutOnes(shape []int) []int {
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	return shape
}

// matrix is what a view covers of its argument.
func (p *Program) matrix(v View) Matrix { return v.Matrix(p.Args[v.Arg].Shape) }

// end is where the elements end; where the number of rows is open, those of the first.
func (m Matrix) end() int { return m.Offset + (max(m.Rows, 1)-1)*m.Stride + m.Width }

// dense reports that there are no gaps between the rows, or only one row that stands for all.
func (m Matrix) dense() bool { return m.Rows <= 1 || m.Stride == m.Width }

// overlaps reports whether two views of one argument share an element. Of rows that lie in different distances only beginning and end are
// looked at.
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
	d := ((n.Offset-m.Offset)%stride + stride) % stride // how far n's columns begin after m's, around the row
	return d < m.Width || stride-d < n.Width
}
