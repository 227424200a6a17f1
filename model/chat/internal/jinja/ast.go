package jinja

// expr is an expression and stmt a statement. Those that can fail on their own carry a line.
type (
	expr interface{ eval(r *run) any }
	stmt interface{ exec(r *run) flow }
)

// flow is how a statement ended. {% break %} and {% continue %} are statements that end so.
type flow uint8

const (
	onward flow = iota
	broken
	continued
)

type (
	literal struct{ value any }
	name    struct {
		text string
		id   int
	}
	attrExpr struct {
		line int
		x    expr
		name str
	}
	sliceExpr struct {
		line              int
		x, from, to, step expr // nil where left out
	}
	callExpr struct {
		line int
		f    expr
		args arguments
	}
	filterExpr struct {
		line int
		x    expr // nil in {% filter %} and {% set %}, whose text goes in
		name string
		f    filter // nil if there is no filter of that name
		args arguments
	}
	testExpr struct {
		line int
		x    expr
		name string
		f    test
		args arguments
	}
	// compareExpr is a chain: a < b <= c holds if each pair does, and b is evaluated once.
	compareExpr struct {
		line int
		ops  []string
		xs   []expr
	}
	// opExpr is an operator: or, and, not, if, + - * / // % ** ~, and - + before an operand as neg
	// and pos; and what brackets make: [] () and x[key], which is item.
	opExpr struct {
		line int
		op   string
		xs   []expr
	}
	dictExpr struct {
		line         int
		keys, values []expr
	}
)

// arguments are those of a call, a filter or a test.
type arguments struct {
	pos          []expr
	names        []str
	named        []expr
	star, double expr // *args and **kwargs, or nil
}

type (
	textStmt struct{ text string }
	outStmt  struct {
		line int
		x    expr
	}
	ifStmt struct {
		tests  []expr
		bodies [][]stmt // one more than tests if there is an else
	}
	forStmt struct {
		line, loop  int // loop is the variable loop
		target      target
		iter, cond  expr // cond may be nil
		condFrame   *frame
		recursive   bool
		body, other block
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	// setBlockStmt assigns what its body prints, or prints it for {% filter %}.
	setBlockStmt struct {
		line    int
		target  target
		prints  bool
		filters *filterExpr // or nil
		body    block
	}
	macroStmt struct {
		name *name
		def  *macroDef
	}
	// callStmt is {% call %}, or {% generation %}, which calls its body itself.
	callStmt struct {
		line int
		call *callExpr // or nil
		body *macroDef
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    block
	}
)

// block is statements with a scope of their own.
type block struct {
	frame *frame
	stmts []stmt
}

// target is what is assigned to: a name, an attribute of a namespace, or several targets.
type target struct {
	name  *name
	attr  string // of the namespace in name, or empty
	tuple []target
}

// macroDef is a macro's parameters and body. A macro takes the special arguments that it reads.
type macroDef struct {
	label    string // empty for the body of {% call %}
	params   []*name
	defaults []expr // of the last len(defaults) parameters
	body     block
	// The variables of the special arguments, or nil.
	caller, varargs, kwargs *name
}
