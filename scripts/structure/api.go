package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
)

// api has the exported names of the module, without fields and methods of interfaces, and the number of
// methods of each type.
type api struct {
	names   []string       // "npu Device.Open": package, then the name; sorted
	methods map[string]int // by "package.Type", of internal types too
}

// readAPI parses the Go files of every package but commands' and tests'.
func readAPI(files []string) (*api, error) {
	a := &api{methods: map[string]int{}}
	for _, file := range files {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		a.add(path.Dir(file), tree)
	}
	slices.Sort(a.names)
	a.names = slices.Compact(a.names) // a name can stand in files for several systems
	return a, nil
}

func (a *api) add(pkg string, file *ast.File) {
	public := file.Name.Name != "main"
	for _, part := range strings.Split(pkg, "/") {
		public = public && part != "internal" && part != "examples" && part != "scripts"
	}
	name := func(id *ast.Ident) {
		if public && id.IsExported() {
			a.names = append(a.names, pkg+" "+id.Name)
		}
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				name(d.Name)
				break
			}
			receiver := typeName(d.Recv.List[0].Type)
			a.methods[pkg+"."+receiver]++
			if ast.IsExported(receiver) && d.Name.IsExported() {
				name(&ast.Ident{Name: receiver + "." + d.Name.Name})
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					name(s.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						name(id)
					}
				}
			}
		}
	}
}

// typeName returns the name of a receiver's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// unlisted returns a message for each name that the list lacks, and for each that it has in vain.
// A line of the list is a name; text after # explains it.
func unlisted(names []string, list string) (messages []string) {
	known := map[string]bool{}
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(line, "#")
		if name = strings.TrimSpace(name); name != "" {
			known[name] = true
		}
	}
	for _, name := range names {
		if !known[name] {
			messages = append(messages, fmt.Sprintf("%s: new exported name; if a user needs it, add it to "+
				"scripts/structure/names.txt", name))
		}
		delete(known, name)
	}
	for name := range known {
		messages = append(messages, fmt.Sprintf("%s: in scripts/structure/names.txt, but not exported", name))
	}
	return messages
}
