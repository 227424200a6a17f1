package chat

import (
	"errors"
	"fmt"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// compile parses a template with gonja. Its expressions then become calls of our own operation (see operations.go), because gonja's
// operators, lookups, filters and tests take numbers, dicts, None and undefined values otherwise than Python does, and pass over errors. What
// is left to gonja is its parser, its scopes, "and" and "or", {% if %}, macros, and the walk.
func compile(text string) (*exec.Template, error) {
	text, marks, err := rewrite(text)
	if err != nil {
		return nil, err
	}
	c := &compiler{marks: marks}
	structures := map[string]parser.ControlStructureParser{"for": c.parseFor, "set": c.parseSet}
	for _, name := range []string{"if", "macro", "break", "continue"} {
		structures[name], _ = builtins.ControlStructures.Get(name)
	}
	for name, parse := range structures {
		structures[name] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
			if args.Current() != nil {
				c.last = args.Current().Pos
			}
			return parse(p, args)
		}
	}
	conf := config.New()
	conf.KeepTrailingNewline = true // what is to go has gone
	loader, err := loaders.NewMemoryLoader(map[string]string{"/t": text})
	if err != nil {
		return nil, err
	}
	t, err := exec.NewTemplate("/t", conf, loader, &exec.Environment{
		Context:           exec.NewContext(map[string]any{noneName: none{}, "none": none{}}),
		Filters:           exec.NewFilterSet(nil),
		Tests:             exec.NewTestSet(nil),
		ControlStructures: exec.NewControlStructureSet(structures),
		Methods:           builtins.Methods,
	})
	if err != nil {
		return nil, c.parseError(text, err)
	}
	return t, c.block(t.Root().Nodes)
}

// compiler turns the nodes of one template.
type compiler struct {
	marks []mark
	last  int // where the tag stands that is parsed
}

// parseError finds the line that gonja means.
func (c *compiler) parseError(text string, err error) error {
	var syntax *parser.SyntaxError
	if errors.As(err, &syntax) {
		offset := 0
		for i, line := 0, 1; i < len(text) && line < syntax.Line; i++ {
			if text[i] == '\n' {
				offset, line = i+1, line+1
			}
		}
		return &ParseError{lineAt(c.marks, offset+max(0, syntax.Column-1)), syntax.Message}
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return &ParseError{lineAt(c.marks, c.last), err.Error()}
		}
		err = inner
	}
}

func (c *compiler) line(t *tokens.Token) int { return lineAt(c.marks, t.Pos) }

func (c *compiler) block(list []nodes.Node) error {
	for _, n := range list {
		var err error
		switch n := n.(type) {
		case *nodes.Output:
			if n.Expression, err = c.output(n.Expression); err == nil && n.Condition != nil {
				err = &ParseError{c.line(n.Start), "unexpected \"if\""}
			}
		case *nodes.ControlStructureBlock:
			err = c.structure(n.ControlStructure)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) wrapper(w *nodes.Wrapper) error {
	if w == nil {
		return nil
	}
	return c.block(w.Nodes)
}

func (c *compiler) structure(n nodes.ControlStructure) error {
	var err error
	switch n := n.(type) {
	case *controlStructures.IfControlStructure:
		for i := range n.Conditions {
			if n.Conditions[i], err = c.expression(n.Conditions[i]); err != nil {
				return err
			}
			n.Conditions[i] = c.call(n.Conditions[i].Position(), "true", "", n.Conditions[i])
		}
		for _, w := range n.Wrappers {
			if err := c.wrapper(w); err != nil {
				return err
			}
		}
	case *controlStructures.MacroControlStructure:
		for _, p := range n.Kwargs {
			if none, ok := p.Value.(*nodes.None); ok && none.Location.Val != "None" {
				continue // gonja's mark for an argument without a default
			}
			if p.Value, err = c.expression(p.Value); err != nil {
				return err
			}
		}
		return c.wrapper(n.Wrapper)
	case *forLoop:
		if n.items, err = c.expression(n.items); err != nil {
			return err
		}
		if n.condition != nil {
			if n.condition, err = c.expression(n.condition); err != nil {
				return err
			}
		}
		return errors.Join(c.wrapper(n.body), c.wrapper(n.otherwise))
	case *setting:
		if n.value != nil {
			if n.value, err = c.expression(n.value); err != nil {
				return err
			}
		}
		return c.wrapper(n.body)
	}
	return nil
}

// output is an expression that is printed. Only there does the filter safe nothing.
func (c *compiler) output(e nodes.Expression) (nodes.Expression, error) {
	if f, ok := e.(*nodes.FilteredExpression); ok {
		if last := len(f.Filters) - 1; f.Filters[last].Name == "safe" && len(f.Filters[last].Args) == 0 {
			f.Filters = f.Filters[:last]
		}
	}
	x, err := c.expression(e)
	if err != nil {
		return nil, err
	}
	return c.call(e.Position(), "print", "", x), nil
}

// Names that no template can write.
const (
	operationName = " operation"
	noneName      = " none"
)

func name(at *tokens.Token, name string) *nodes.Name {
	return &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: name, Pos: at.Pos, Line: at.Line, Col: at.Col}}
}

// call makes the call of an operation: its line, its name, the name of what is looked up or applied, and the values.
func (c *compiler) call(at *tokens.Token, operation, of string, args ...nodes.Expression) *nodes.Call {
	return &nodes.Call{
		Location: at,
		Func:     name(at, operationName),
		Args: append([]nodes.Expression{
			&nodes.Integer{Location: at, Val: c.line(at)}, &nodes.String{Location: at, Val: operation}, &nodes.String{Location: at, Val: of},
		}, args...),
	}
}

// expressions turns arguments in place.
func (c *compiler) expressions(list []nodes.Expression, named map[string]nodes.Expression) error {
	var err error
	for i := range list {
		if list[i], err = c.expression(list[i]); err != nil {
			return err
		}
	}
	for k := range named {
		if named[k], err = c.expression(named[k]); err != nil {
			return err
		}
	}
	return nil
}

// node turns an operand that may be left out.
func (c *compiler) node(at *tokens.Token, n nodes.Node) (nodes.Expression, error) {
	if n == nil {
		return name(at, noneName), nil
	}
	return c.expression(n)
}

func (c *compiler) refuse(at *tokens.Token, format string, args ...any) error {
	return &ParseError{c.line(at), fmt.Sprintf(format, args...)}
}

func (c *compiler) expression(e nodes.Expression) (nodes.Expression, error) {
	switch n := e.(type) {
	case *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool:
		return e, nil
	case *nodes.None:
		if n.Location.Val == "nil" { // a name like any other
			return name(n.Location, "nil"), nil
		}
		return name(n.Location, noneName), nil
	case *nodes.Name:
		switch n.Name.Val {
		case "self", "varargs", "kwargs", "joiner", "cycler", "lipsum":
			return nil, c.refuse(n.Name, "%s is not supported", n.Name.Val)
		}
		return e, nil
	case *nodes.List:
		err := c.expressions(n.Val, nil)
		return c.call(n.Location, "list", "", n.Val...), err
	case *nodes.Tuple:
		err := c.expressions(n.Val, nil)
		return c.call(n.Location, "tuple", "", n.Val...), err
	case *nodes.Dict:
		var flat []nodes.Expression
		for _, p := range n.Pairs {
			flat = append(flat, p.Key, p.Value)
		}
		err := c.expressions(flat, nil)
		return c.call(n.Token, "dict", "", flat...), err
	case *nodes.Negation:
		x, err := c.expression(n.Term)
		return c.call(n.Operator, "not", "", x), err
	case *nodes.UnaryExpression:
		x, err := c.expression(n.Term)
		return c.call(n.Operator, "sign", n.Operator.Val, x), err
	case *nodes.BinaryExpression:
		return c.binary(n)
	case *nodes.TestExpression:
		return c.test(n)
	case *nodes.FilteredExpression:
		x, err := c.expression(n.Expression)
		for _, f := range n.Filters {
			if err == nil {
				x, err = c.filter(f, x)
			}
		}
		return x, err
	case *nodes.Call:
		return c.function(n)
	case *nodes.GetAttribute, *nodes.GetItem, *nodes.GetSlice:
		return c.lookup(n)
	}
	return nil, &ParseError{lineAt(c.marks, c.last), fmt.Sprintf("%T is not supported", e)}
}

func (c *compiler) binary(n *nodes.BinaryExpression) (nodes.Expression, error) {
	both := []nodes.Expression{n.Left, n.Right}
	if n.Left == nil || n.Right == nil {
		return nil, c.refuse(n.Operator.Token, "%q lacks an operand", n.Operator.Token.Val)
	}
	if err := c.expressions(both, nil); err != nil {
		return nil, err
	}
	if t := n.Operator.Token.Type; t == tokens.And || t == tokens.Or {
		n.Left, n.Right = both[0], both[1]
		return n, nil
	}
	return c.call(n.Operator.Token, "binary", n.Operator.Token.Val, both...), nil
}

func (c *compiler) test(n *nodes.TestExpression) (nodes.Expression, error) {
	if _, ok := tests[n.Test.Name]; !ok {
		return nil, c.refuse(n.Test.Token, "the test %q is not supported", n.Test.Name)
	}
	all := append([]nodes.Expression{n.Expression}, n.Test.Args...)
	err := c.expressions(all, nil)
	return c.call(n.Test.Token, "test", n.Test.Name, all...), err
}

func (c *compiler) filter(f *nodes.FilterCall, x nodes.Expression) (nodes.Expression, error) {
	if _, ok := filters[f.Name]; !ok {
		return nil, c.refuse(f.Token, "the filter %q is not supported", f.Name)
	}
	err := c.expressions(f.Args, f.Kwargs)
	call := c.call(f.Token, "filter", f.Name, append([]nodes.Expression{x}, f.Args...)...)
	call.Kwargs = f.Kwargs
	return call, err
}

func (c *compiler) function(n *nodes.Call) (nodes.Expression, error) {
	if err := c.expressions(n.Args, n.Kwargs); err != nil {
		return nil, err
	}
	operation, of, callee := "call", "", n.Func
	if get, ok := n.Func.(*nodes.GetAttribute); ok {
		operation, of, callee = "method", get.Attribute, get.Node
		if !methods[of] {
			return nil, c.refuse(n.Location, "the method %q is not supported", of)
		}
	} else if f, ok := n.Func.(*nodes.Name); ok {
		of = f.Name.Val
		if of == "dict" && len(n.Kwargs) > 1 { // gonja loses the order
			return nil, c.refuse(n.Location, "dict() with more than one name is not supported: write {'name': value, ...}")
		}
	}
	x, err := c.expression(callee)
	call := c.call(n.Location, operation, of, append([]nodes.Expression{x}, n.Args...)...)
	call.Kwargs = n.Kwargs
	return call, err
}

func (c *compiler) lookup(e nodes.Expression) (nodes.Expression, error) {
	switch n := e.(type) {
	case *nodes.GetAttribute:
		x, err := c.expression(n.Node)
		if n.Attribute == "" {
			return c.call(n.Location, "item", "", x, &nodes.Integer{Location: n.Location, Val: n.Index}), err
		}
		return c.call(n.Location, "attribute", n.Attribute, x), err
	case *nodes.GetItem:
		x, err := c.expression(n.Node)
		if err != nil {
			return nil, err
		}
		if n.Arg == nil {
			return nil, c.refuse(n.Location, "expected an index")
		}
		key, err := c.expression(n.Arg)
		return c.call(n.Location, "item", "", x, key), err
	}
	n := e.(*nodes.GetSlice)
	x, err := c.expression(n.Node)
	args := []nodes.Expression{x}
	for _, part := range []nodes.Node{n.Start, n.End, n.Step} {
		if err == nil {
			var v nodes.Expression
			v, err = c.node(n.Location, part)
			args = append(args, v)
		}
	}
	return c.call(n.Location, "slice", "", args...), err
}
