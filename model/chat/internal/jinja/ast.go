package jinja

// expr is an expression.
type expr interface {
	eval(r *run) any
	// walk calls f for the direct parts, in Jinja2's order.
	walk(f func(expr))
}

// stmt is a statement.
type stmt interface{ exec(r *run) flow }

// flow is how a statement ended.
type flow uint8

const (
	onward flow = iota
	broken
	continued
)

// Expressions. Those that can fail on their own carry a line.
type (
	literal struct{ value any }
	name    struct {
		line int
		id   string
		hops int // to the scope that has the variable
		slot int
	}
	attrExpr struct {
		line int
		x    expr
		name str
	}
	itemExpr struct {
		line   int
		x, key expr
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
		f    filter
		args arguments
	}
	testExpr struct {
		line int
		x    expr
		name string
		f    test
		args arguments
	}
	unaryExpr struct {
		line     int
		negative bool
		x        expr
	}
	binaryExpr struct {
		line int
		op   string // + - * / // % **
		l, r expr
	}
	// compareExpr is a chain: a < b <= c holds if each pair does, and b is evaluated once.
	compareExpr struct {
		line int
		x    expr
		ops  []comparison
	}
	concatExpr struct {
		line  int
		parts []expr // joined by ~
	}
	notExpr   struct{ x expr }
	logicExpr struct {
		and  bool
		l, r expr
	}
	condExpr struct {
		test, then, other expr // other may be nil
	}
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct {
		line         int
		keys, values []expr
	}
)

type comparison struct {
	op string
	x  expr
}

// arguments are those of a call, a filter or a test.
type arguments struct {
	pos    []expr
	names  []str
	named  []expr
	star   expr // *args, or nil
	double expr // **kwargs, or nil
}

// Statements.
type (
	textStmt struct{ text str }
	outStmt  struct {
		line int
		x    expr
	}
	ifStmt struct {
		tests  []expr
		bodies [][]stmt
		other  []stmt
	}
	forStmt struct {
		line                        int
		target, condTarget          target
		iter, cond                  expr
		recursive                   bool
		body, other                 []stmt
		bodyFrame, condFrame, elses *frame
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	// setBlockStmt assigns what its body prints.
	setBlockStmt struct {
		line    int
		target  target
		filters *filterExpr // or nil
		body    []stmt
		frame   *frame
	}
	macroStmt struct {
		name *name
		macroDef
	}
	callStmt struct {
		line int
		call *callExpr
		body macroDef
	}
	// generationStmt is {% generation %}: what it prints is the assistant's.
	generationStmt struct {
		line int
		body macroDef
	}
	filterStmt struct {
		line    int
		filters *filterExpr
		body    []stmt
		frame   *frame
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
		frame   *frame
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// target is what is assigned to: a name, an attribute of a namespace, or several of them.
type target struct {
	line  int
	name  *name
	attr  string // of the namespace in name, or empty
	tuple []target
	multi bool // tuple counts
}

// macroDef is a macro's parameters and body.
type macroDef struct {
	label    string // empty for the body of {% call %}
	params   []*name
	defaults []expr // of the last len(defaults) parameters
	body     []stmt
	frame    *frame
	// A macro takes what it mentions and does not assign. slots hold it, or -1.
	caller, varargs, kwargs int
	takesCaller, ownCaller  bool // ownCaller: it is one of the parameters
	mentioned               *mentions
}

func (e *literal) walk(func(expr)) {}

func (e *name) walk(func(expr)) {}

func (e *attrExpr) walk(f func(expr)) { f(e.x) }

func (e *itemExpr) walk(f func(expr)) { f(e.x); f(e.key) }

func (e *sliceExpr) walk(f func(expr)) { walkAll(f, e.x, e.from, e.to, e.step) }

func (e *callExpr) walk(f func(expr)) { f(e.f); e.args.walk(f) }

func (e *filterExpr) walk(f func(expr)) { walkAll(f, e.x); e.args.walk(f) }

func (e *testExpr) walk(f func(expr)) { f(e.x); e.args.walk(f) }

func (e *unaryExpr) walk(f func(expr)) { f(e.x) }

func (e *binaryExpr) walk(f func(expr)) { f(e.l); f(e.r) }

func (e *compareExpr) walk(f func(expr)) {
	f(e.x)
	for _, op := range e.ops {
		f(op.x)
	}
}

func (e *concatExpr) walk(f func(expr)) { walkAll(f, e.parts...) }

func (e *notExpr) walk(f func(expr)) { f(e.x) }

func (e *logicExpr) walk(f func(expr)) { f(e.l); f(e.r) }

func (e *condExpr) walk(f func(expr)) { walkAll(f, e.test, e.then, e.other) }

func (e *listExpr) walk(f func(expr)) { walkAll(f, e.items...) }

func (e *tupleExpr) walk(f func(expr)) { walkAll(f, e.items...) }

func (e *dictExpr) walk(f func(expr)) {
	for i := range e.keys {
		f(e.keys[i])
		f(e.values[i])
	}
}

func (a *arguments) walk(f func(expr)) {
	walkAll(f, a.pos...)
	walkAll(f, a.named...)
	walkAll(f, a.star, a.double)
}

func walkAll(f func(expr), es ...expr) {
	for _, e := range es {
		if e != nil {
			f(e)
		}
	}
}
