package jinja

// Expressions. Those that can fail on their own carry a line.
type (
	expr    interface{}
	literal struct{ value any }
	name    struct {
		line int
		id   string
	}
	attrExpr struct {
		line int
		x    expr
		name string
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
		x    expr
		name string
		args arguments
	}
	testExpr struct {
		line   int
		x      expr
		name   string
		args   arguments
		negate bool
	}
	unaryExpr struct {
		line int
		op   string // - +
		x    expr
	}
	binaryExpr struct {
		line int
		op   string // + - * / // % **
		l, r expr
	}
	// compareExpr is a chain: a < b <= c holds when each pair does, and b is evaluated once.
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
	op string // == != < <= > >= in notin
	x  expr
}

type arguments struct {
	pos   []expr
	names []string
	named []expr
}

// Statements.
type (
	stmt     interface{}
	textStmt struct{ text string }
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
		line       int
		target     target
		iter, cond expr
		recursive  bool
		body       []stmt
		other      []stmt
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	// setBlockStmt keeps what its body prints.
	setBlockStmt struct {
		line    int
		target  target
		filters func(expr) expr // wraps the captured text in the filters written behind the name, or nil
		body    []stmt
	}
	macroStmt struct {
		line int
		name string
		sig  signature
	}
	callStmt struct {
		line int
		call *callExpr
		sig  signature
	}
	filterStmt struct {
		line int
		wrap func(expr) expr
		body []stmt
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// target is what is assigned to: a name, a namespace's attribute, or several of them.
type target struct {
	line  int
	id    string
	attr  string // of the namespace id
	tuple []target
}

// signature is a macro's parameters and body.
type signature struct {
	params   []string
	defaults []expr // of the last len(defaults) parameters
	body     []stmt
	// Python gives a macro that mentions these the extra arguments; without the mention extra arguments are an error.
	usesVarargs, usesKwargs, usesCaller bool
}
