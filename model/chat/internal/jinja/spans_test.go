package jinja

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mark writes content as «...», so that a test can say which bytes of a text are content.
func mark(text string, content []Span) string {
	var b strings.Builder
	done := 0
	for _, s := range content {
		b.WriteString(text[done:s.Start] + "«" + text[s.Start:s.End] + "»")
		done = s.End
	}
	return b.String() + text[done:]
}

// Content stays content through every filter, method and operator, and nothing else becomes it.
func TestSpans(t *testing.T) {
	vars := NewDict()
	for name, json := range map[string]string{
		"c": `"  Ab c,dé<\"x\">\n"`, "w": `"word"`, "l": `["x", "y"]`, "n": `7`,
		"d": `{"k": "v", "n": 1, "l": ["<a>", null]}`, "args": `{"<key>": "<value>"}`,
	} {
		v, err := DecodeJSON([]byte(json))
		if err != nil {
			t.Fatal(err)
		}
		vars.Set(name, v)
	}
	vars.Set("role", Literal("user"))
	for source, want := range map[string]string{
		"a{{ w }}b{{ role }}":                                                                                       "a«word»buser",
		"{{ w ~ w }}|{{ w ~ '-' ~ w }}":                                                                             "«wordword»|«word»-«word»",
		"{{ w + '!' }}{{ '<|' + w + '|>' }}":                                                                        "«word»!<|«word»|>",
		"{{ w * 2 }}{{ ('-' ~ w) * 2 }}":                                                                            "«wordword»-«word»-«word»",
		"{{ w[1:] }}{{ w[0] }}{{ w[::-1] }}{{ ('a' ~ w ~ 'b')[::-1] }}":                                             "«ordwdrow»b«drow»a",
		"{{ ('ab' ~ w ~ 'cd')[1:5] }}|{{ ('ab' ~ w ~ 'cd')[3:5] }}|{{ ('ab' ~ w)[:2] }}":                            "b«wor»|«or»|ab",
		"{{ c | trim }}|{{ c.strip().split(',')[0] }}|{{ (' ' ~ w ~ ' ') | trim }}":                                 "«Ab c,dé<\"x\">»|«Ab c»|«word»",
		"{{ w | upper }}{{ ('a' ~ w) | capitalize }}{{ ('a' ~ w) | title }}":                                        "«WORD»A«word»A«word»",
		"{{ (w ~ '-x') | replace('-', '+') }}|{{ w.replace('or', '<s>') }}|{{ 'a-b'.replace('-', w) }}":             "«word»+x|«w»<s>«d»|a«word»b",
		"{{ w.replace('', '.') }}":                                                                                  ".«w».«o».«r».«d».",
		"{{ l | join(', ') }}|{{ ', '.join(l) }}|{{ ['a', 'b'] | join(w) }}":                                        "«x», «y»|«x», «y»|a«word»b",
		"{{ w | list | join }}|{{ w | reverse }}|{{ w | first }}{{ w | last }}":                                     "«word»|«drow»|«wd»",
		"{{ ('a,' ~ w ~ ',b').split(',') | join('|') }}":                                                            "a|«word»|b",
		"{{ ('a\n' ~ w ~ '\nb').splitlines() | join('|') }}":                                                        "a|«word»|b",
		"{{ ('x ' ~ w ~ ' y').split() | join('|') }}|{{ ('x=' ~ w).partition('=') | join }}":                        "x|«word»|y|x=«word»",
		"{{ ('<' ~ w ~ '>').strip('<>') }}|{{ ('pre' ~ w).removeprefix('pre') }}|{{ (w ~ 's').removesuffix('s') }}": "«word»|«word»|«word»",
		"{{ w | indent(2, true) }}|{{ c | indent(1) | length }}":                                                    "  «word»|15",
		"{{ d | tojson }}": `{"«k»": "«v»", "«n»": 1, "«l»": ["«<a>»", null]}`,
		"{{ c | tojson }}": `"«  Ab c,dé<\"x\">\n»"`,
		"{{ ('a\"' ~ c) | tojson(ensure_ascii=true) }}":             `"a\"«  Ab c,d\u00e9<\"x\">\n»"`,
		"{{ d | tojson(indent=w) }}":                                "{\n«word»\"«k»\": \"«v»\",\n«word»\"«n»\": 1,\n«word»\"«l»\": [\n«wordword»\"«<a>»\",\n«wordword»null\n«word»]\n}",
		"{{ args }}|{{ [w, 'x'] }}":                                 "{'«<key>»': '«<value>»'}|['«word»', 'x']",
		"{{ ['it\\'s' ~ w ~ '\n'] }}":                               "[\"it's«word»\\n\"]",
		"{% for k, v in args.items() %}{{ k }}={{ v }}{% endfor %}": "«<key>»=«<value>»",
		"{% for k in args %}{{ k }}{% endfor %}|{% for k, v in args | dictsort %}{{ k ~ ':' ~ v }}{% endfor %}":               "«<key>»|«<key>»:«<value>»",
		"{{ dict(**args).keys() | list | first }}":                                                                            "«<key>»",
		"{% macro m() %}{{ kwargs | list | first }}{% endmacro %}{{ m(**args) }}":                                             "«<key>»",
		"{% macro m(x) %}<{{ x }}>{{ caller() }}{% endmacro %}{% call m(w) %}[{{ w }}]{% endcall %}":                          "<«word»>[«word»]",
		"{% set x %}a{{ w }}b{% endset %}{{ x | upper }}|{% filter upper %}a{{ w }}{% endfilter %}":                           "A«WORD»B|A«WORD»",
		"{% generation %}a{{ w }}{% endgeneration %}":                                                                         "a«word»",
		"{{ '%s-%5s' % (w, w) }}|{{ '{} {x}'.format(w, x=role) }}|{{ w % () }}":                                               "«word»- «word»|«word» user|«word»",
		"{{ ('<' ~ w) | escape }}|{{ c.strip()[5:] | e }}":                                                                    "&lt;«word»|«dé&lt;&#34;x&#34;&gt;»",
		"{{ ('<' | safe) + w }}|{{ w | safe }}":                                                                               "<«word»|«word»",
		"{{ w | default('x') }}{{ nope | default(w) }}{{ nope | default('lit') }}":                                            "«wordword»lit",
		"{{ l | map('upper') | join }}|{{ l | select('eq', 'x') | first }}|{{ l | max }}|{{ l | sort(reverse=true) | join }}": "«XY»|«x»|«y»|«yx»",
		"{% set ns = namespace(t='') %}{% for x in l %}{% set ns.t = ns.t ~ x ~ ';' %}{% endfor %}{{ ns.t }}":                 "«x»;«y»;",
		"{{ {'user': '<|user|>'}[role] }}{{ {'word': 'lit'}[w] }}":                                                            "<|user|>lit",
		"{{ n }}{{ n | string }}{{ w | length }}{{ w == 'word' }}{{ d.n }}":                                                   "774True1",
		"{{ w | string }}{{ (w, 'x') | join('') }}":                                                                           "«wordword»x",
		"{{ 'Σ' ~ w ~ 'Σ' | lower }}":                                                                                         "Σ«word»σ",
		"{{ (c ~ 'z') | lower }}":                                                                                             "«  ab c,dé<\"x\">\n»z",
	} {
		tmpl, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		text, content, err := tmpl.Render(t.Context(), vars, Environment{})
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got := mark(text, content); got != want {
			t.Errorf("%s\ngot  %q\nwant %q", source, got, want)
		}
		for i, s := range content {
			if s.Start >= s.End || i > 0 && s.Start <= content[i-1].End {
				t.Errorf("%s: spans %v are empty, adjacent or out of order", source, content)
			}
		}
	}
}

// Cutting a string agrees with cutting its bytes one by one.
func TestCut(t *testing.T) {
	b := &builder{}
	for i := range 20 {
		b.write(lit(strings.Repeat("l", i%3)), str{s: strings.Repeat("c", i%4), c: whole})
	}
	whole := b.str()
	is := func(s str) (out string) {
		b := &builder{}
		b.rewrite(s, func(part string) { b.raw(part) })
		marked := b.str()
		flags := []byte(strings.Repeat(".", len(marked.s)))
		if marked.c != nil && len(marked.c.spans) == 0 {
			return strings.Repeat("#", len(marked.s))
		}
		if marked.c != nil {
			for _, span := range marked.c.spans {
				for i := span.Start; i < span.End; i++ {
					flags[i] = '#'
				}
			}
		}
		return string(flags)
	}
	all := is(whole)
	for from := range len(whole.s) {
		for to := from; to <= len(whole.s); to++ {
			cut := whole.cut(from, to)
			if got := is(cut); cut.s != whole.s[from:to] || got != all[from:to] {
				t.Fatalf("[%d:%d] has %s, want %s", from, to, got, all[from:to])
			}
			mid := (to - from) / 2
			if got, want := is(cut.cut(mid, to-from)), all[from+mid:to]; got != want {
				t.Fatalf("[%d:%d][%d:] has %s, want %s", from, to, mid, got, want)
			}
		}
	}
}

// markers is v with a text that no template contains in the place of each string. Keys, and what
// templates compare, are not content.
func markers(v any, count *int) any {
	switch v := v.(type) {
	case str:
		if v.c == nil {
			return v
		}
		*count++
		return Content(fmt.Sprintf("⟦%d⟧", *count))
	case *List:
		out := &List{}
		for _, x := range v.Items {
			out.Items = append(out.Items, markers(x, count))
		}
		return out
	case *Dict:
		out := NewDict()
		for _, e := range v.entries {
			key, x := e.key.(str).s, e.value
			if s, ok := x.(str); ok && (key == "role" || key == "type") {
				x = lit(s.s)
			}
			out.Set(key, markers(x, count))
		}
		return out
	}
	return v
}

var marker = regexp.MustCompile(`⟦\d+⟧|[⟦⟧]`)

// In every real template and conversation, each byte of a marker is content, and without content
// nothing is.
func TestSpansOfRealTemplates(t *testing.T) {
	c := loadCorpus(t)
	rendered, found := 0, 0
	for _, tmpl := range c.Templates {
		parsed, err := Parse(tmpl.Text)
		if err != nil {
			continue
		}
		for name := range c.Requests {
			vars, env := c.variables(t, name)
			n := 0
			for _, field := range slices.Clone(vars.entries) {
				name, v := field.key.(str).s, field.value
				if s, ok := v.(str); ok {
					v = lit(s.s) // a token, the date, or a variable
				}
				vars.Set(name, markers(v, &n))
			}
			text, content, err := parsed.Render(t.Context(), vars, env)
			if err != nil {
				continue
			}
			rendered++
			inside := func(at int) bool {
				i, _ := slices.BinarySearchFunc(content, at, func(s Span, at int) int { return s.End - at - 1 })
				return i < len(content) && content[i].Start <= at
			}
			// A template may take a marker apart, so each of its brackets counts, and what stands
			// between them if that is a number.
			for _, m := range marker.FindAllStringIndex(text, -1) {
				for at := m[0]; at < m[1]; at++ {
					if !inside(at) {
						t.Fatalf("template %d, %s: byte %d of %q is not content", tmpl.ID, name, at,
							text[max(0, at-20):min(len(text), at+20)])
					}
				}
				found++
			}
			for _, s := range content {
				if part := text[s.Start:s.End]; strings.Trim(part, "⟦⟧0123456789") != "" {
					t.Errorf("template %d, %s: %q of the template is content", tmpl.ID, name, part)
				}
			}
		}
	}
	if rendered < 2000 || found < 5000 {
		t.Errorf("only %d renderings with %d markers", rendered, found)
	}
}
