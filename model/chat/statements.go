package chat

import (
	"errors"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// setting is {% set %}. gonja's own sets neither several names at once nor an attribute of our namespace.
type setting struct {
	at      *tokens.Token
	line    int
	targets []string
	member  string // what follows the point in name.member
	value   nodes.Expression
	body    *nodes.Wrapper
}

func (n *setting) Position() *tokens.Token { return n.at }
func (n *setting) String() string          { return "set" }

func (c *compiler) parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	n := &setting{at: args.Current(), line: c.line(args.Current())}
	var err error
	if n.targets, err = parseTargets(args); err != nil {
		return nil, err
	}
	if len(n.targets) == 1 && args.Match(tokens.Dot) != nil {
		member := args.Match(tokens.Name)
		if member == nil {
			return nil, args.Error("expected a name behind the point", args.Current())
		}
		n.member = member.Val
	}
	if args.Match(tokens.Assign) != nil {
		n.value, err = args.ParseExpression()
	} else {
		if len(n.targets) > 1 || n.member != "" {
			return nil, args.Error("a block is set to one name", n.at)
		}
		n.body, _, err = p.WrapUntil("endset")
	}
	if err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, args.Error("unexpected text in {% set %}", args.Current())
	}
	return n, nil
}

// parseTargets reads names with commas between them, in brackets or not.
func parseTargets(args *parser.Parser) ([]string, error) {
	bracket := args.Match(tokens.LeftParenthesis)
	var names []string
	for {
		t := args.Match(tokens.Name)
		if t == nil {
			return nil, args.Error("expected a name", args.Current())
		}
		names = append(names, t.Val)
		if args.Match(tokens.Comma) == nil {
			break
		}
	}
	if bracket != nil && args.Match(tokens.RightParenthesis) == nil {
		return nil, args.Error("expected )", args.Current())
	}
	return names, nil
}

func (n *setting) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	state := stateOf(r)
	var v any
	if n.body != nil {
		var b strings.Builder
		sub := r.Inherit()
		sub.Output = &b
		if err := sub.ExecuteWrapper(n.body); err != nil {
			return err
		}
		state.charge(b.Len())
		v = b.String()
	} else {
		v = unwrap(r.Eval(n.value))
	}
	state.line = n.line
	switch {
	case n.member != "":
		ctx, _ := r.Environment.Context.Get(n.targets[0])
		ns, ok := unwrap(exec.ToValue(ctx)).(*namespace)
		if !ok {
			state.fail("cannot set attribute on non-namespace object")
		}
		ns.values.set(n.member, v)
	default:
		state.assign(r.Environment.Context, n.targets, v)
	}
	return nil
}

// assign sets one name, or takes a value apart for several.
func (r *state) assign(ctx *exec.Context, targets []string, v any) {
	if len(targets) == 1 {
		ctx.Set(targets[0], v)
		return
	}
	items := r.items(v)
	if len(items) != len(targets) {
		r.fail("%d values for %d names", len(items), len(targets))
	}
	for i, t := range targets {
		ctx.Set(t, items[i])
	}
}

// forLoop is {% for %}. gonja's own drops the errors of a condition, takes all conditions before the first turn, and takes
// pairs apart wrongly.
type forLoop struct {
	at        *tokens.Token
	line      int
	targets   []string
	items     nodes.Expression
	condition nodes.Expression
	body      *nodes.Wrapper
	otherwise *nodes.Wrapper
}

func (n *forLoop) Position() *tokens.Token { return n.at }
func (n *forLoop) String() string          { return "for" }

func (c *compiler) parseFor(p, args *parser.Parser) (nodes.ControlStructure, error) {
	n := &forLoop{at: args.Current(), line: c.line(args.Current())}
	var err error
	if n.targets, err = parseTargets(args); err != nil {
		return nil, err
	}
	if args.Match(tokens.In) == nil {
		return nil, args.Error("expected \"in\"", args.Current())
	}
	if n.items, err = args.ParseExpression(); err != nil {
		return nil, err
	}
	if args.MatchName("if") != nil {
		if n.condition, err = args.ParseExpression(); err != nil {
			return nil, err
		}
	}
	if !args.End() {
		return nil, args.Error("unexpected text in {% for %}", args.Current())
	}
	if n.body, _, err = p.WrapUntil("else", "endfor"); err == nil && n.body.EndTag == "else" {
		n.otherwise, _, err = p.WrapUntil("endfor")
	}
	return n, err
}

// loop is the variable of that name.
type loop struct {
	items   []any          // those that passed the condition so far
	rest    []any          // those that were not asked yet
	pass    func(any) bool // the condition
	index   int            // from 0
	changed []any          // what loop.changed saw last
}

// next makes sure that an item is there, if there are so many.
func (l *loop) next(i int) bool {
	for len(l.items) <= i && len(l.rest) > 0 {
		x := l.rest[0]
		l.rest = l.rest[1:]
		if l.pass(x) {
			l.items = append(l.items, x)
		}
	}
	return i < len(l.items)
}

// length asks for all items, and so the condition, as Python does.
func (l *loop) length() int {
	for l.next(len(l.items)) {
	}
	return len(l.items)
}

func (l *loop) attribute(name string) any {
	switch name {
	case "index":
		return l.index + 1
	case "index0":
		return l.index
	case "first":
		return l.index == 0
	case "last":
		return !l.next(l.index + 1)
	case "length":
		return l.length()
	case "revindex":
		return l.length() - l.index
	case "revindex0":
		return l.length() - l.index - 1
	case "depth": // only recursive loops count
		return 1
	case "depth0":
		return 0
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1]
		}
	case "nextitem":
		if l.next(l.index + 1) {
			return l.items[l.index+1]
		}
	}
	return nil
}

func (n *forLoop) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	state := stateOf(r)
	defer state.leave(state.enter())
	value := unwrap(r.Eval(n.items))
	state.line = n.line
	l := &loop{rest: state.items(value), pass: func(any) bool { return true }}
	if n.condition != nil {
		l.pass = func(x any) bool {
			state.tick(1)
			sub := r.Inherit()
			state.assign(sub.Environment.Context, n.targets, x)
			return truth(unwrap(sub.Eval(n.condition)))
		}
	}
	finished := false // one turn to its end
	for ; l.next(l.index); l.index++ {
		state.line = n.line
		state.tick(1)
		sub := r.Inherit()
		sub.Environment.Context.Set("loop", l)
		state.assign(sub.Environment.Context, n.targets, l.items[l.index])
		err := sub.ExecuteWrapper(n.body)
		var stop *controlStructures.LoopBreakError
		var skip *controlStructures.LoopContinueError
		if errors.As(err, &stop) {
			break
		}
		if err != nil && !errors.As(err, &skip) {
			return err
		}
		finished = finished || err == nil
	}
	if !finished && n.otherwise != nil { // also where all turns were cut short: that is Jinja2's way
		return r.Inherit().ExecuteWrapper(n.otherwise)
	}
	return nil
}
