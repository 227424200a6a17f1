package jinja

// expr is an expression and stmt a statement. Nodes whose own evaluation can fail carry a line.
type (
	expr interface{ eval(r *run) any }
	stmt interface{ exec(r *run) flow }
)

// flow is the control flow after a statement. {% break %} and {% continue %} are values of it.
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
		x, from, to, step expr // nil if omitted
	}
	callExpr struct {
		line int
		f    expr
		args arguments
	}
	filterExpr struct {
		line int
		x    expr // nil in {% filter %} and {% set %}, which filter the text of a body
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
	// compareExpr is a chain: a < b <= c is true if every pair is, and b is evaluated once.
	compareExpr struct {
		line int
		ops  []string
		xs   []expr
	}
	// opExpr is an operator: or, and, not, if, + - * / // % ** ~; the signs neg and pos; the list
	// [] and the tuple (); or item, which is x[key].
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

// arguments are the arguments of a call, a filter or a test.
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
		bodies [][]stmt // one more than tests if the statement has an else
	}
	forStmt struct {
		line, loop  int // loop is the id of the variable loop
		target      target
		iter, cond  expr // cond is nil if there is none
		condFrame   *frame
		recursive   bool
		body, other block
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	// setBlockStmt assigns the output of its body. For {% filter %} it prints the output.
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
	// callStmt is {% call %}, or {% generation %}, which calls its own body.
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

// block is a list of statements with a scope of its own.
type block struct {
	frame *frame
	stmts []stmt
}

// target is the left side of an assignment: a name, a namespace attribute, or several targets.
type target struct {
	name  *name
	attr  string // attribute of the namespace name, or empty
	tuple []target
}

// macroDef is a macro's parameters and body. A macro accepts the special arguments that it reads.
type macroDef struct {
	label    string // empty for the body of {% call %}
	params   []*name
	defaults []expr // of the last len(defaults) parameters
	body     block
	// The variables of the special arguments; nil if the body does not use them.
	caller, varargs, kwargs *name
}
