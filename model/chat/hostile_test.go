package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

const hello = `{"messages": [{"role": "user", "content": "hi"}], "s": "0123456789abcdef", "l": [1, 2, 3]}`

// variables returns a template that assigns n variables.
func variables(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{%%set a%x=1%%}", i)
	}
	return b.String()
}

// arguments returns n names separated by commas, each followed by value.
func arguments(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%x%s,", i, value)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// nested returns 1 within n pairs of open and closing.
func nested(open, closing string, n int) string {
	return strings.Repeat(open, n) + "1" + strings.Repeat(closing, n)
}

// grow returns a template that executes step 99 times. It can use the namespace n with the string s
// and the lists l and m.
func grow(step string) string {
	return "{% set n = namespace(s=s, l=l, m=l) %}{% for i in range(99) %}" + step + "{% endfor %}"
}

// often returns a template that executes body 10 million times, and before it first.
func often(first, body string) string {
	return first + "{% for i in range(99999) %}{% for j in range(99) %}" + body + "{% endfor %}{% endfor %}"
}

// exceeding are templates that exceed a limit on steps, time, memory or depth. The string s has 16
// bytes and the list l three integers.
var exceeding = map[string]string{
	"a huge range":           "{% for i in range(10**9) %}x{% endfor %}",
	"loops in loops":         often("", ""),
	"a repeated string":      "{{ 'a' * 10**10 }}",
	"a repeated list":        "{{ ([0] * 10**10) | length }}",
	"a long product":         "{{ 'aaaaaaaa' * 9223372036854775807 }}",
	"doubling a string":      grow("{% set n.s = n.s ~ n.s %}"),
	"doubling a list":        grow("{% set n.l = n.l + n.l %}"),
	"doubling by replace":    grow("{% set n.s = n.s.replace('', 'xxxxxxxx') %}"),
	"doubling by join":       grow("{% set n.s = n.s | join(n.s) %}"),
	"doubling by format":     grow("{% set n.s = '{}{}'.format(n.s, n.s) %}"),
	"doubling by percent":    grow("{% set n.s = '%s%s' % (n.s, n.s) %}"),
	"doubling by capture":    grow("{% set x %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = x %}"),
	"doubling by tojson":     grow("{% set n.s = ('\"' ~ n.s) | tojson %}"),
	"shared lists printed":   grow("{% set n.l = [n.l, n.l] %}") + "{{ n.l }}",
	"shared lists as JSON":   grow("{% set n.l = [n.l, n.l] %}") + "{{ n.l | tojson }}",
	"shared lists compared":  grow("{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}") + "{{ n.l == n.m }}",
	"a deep list printed":    grow(strings.Repeat("{% set n.l = [n.l] %}", 999)) + "{{ n.l }}",
	"a macro without end":    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"macros in turn":         "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
	"a macro that doubles":   "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(99) }}",
	"a caller without end":   "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
	"a recursive loop":       "{% for x in l recursive %}{{ loop(l) }}{% endfor %}",
	"a wide indent":          `{{ 'a\nb' | indent(2147483647) }}`,
	"searches":               often("{% set x = s * 1000000 %}", "{% if 'zz' in x %}{% endif %}"),
	"last characters":        often("{% set x = s * 1000000 %}", "{{ x[-1] }}{{ x | length }}"),
	"prefixes":               often(affixes, "{% if x.startswith(y) %}{% endif %}"),
	"suffixes":               often(affixes, "{% if x.endswith((z, z)) %}{% endif %}"),
	"prefixes removed":       often(affixes, "{{ x.removeprefix(y)[:0] }}"),
	"suffixes removed":       often(affixes, "{{ x.removesuffix(z)[:0] }}"),
	"huge keys":              often(affixes+"{% set d = {y: 1, z: 1} %}", "{{ d.get(x) }}{{ d[x] }}"),
	"huge keys not found":    often(affixes+"{% set d = {y: 1, z: 1} %}", "{% if x in d %}{% endif %}"),
	"huge keys compared":     often(affixes+"{% set d = {x: 1} %}", "{% if d != {x: 1} %}{% endif %}"),
	"huge attributes":        often(affixes, "{{ s[x] }}{{ loop[x] }}"),
	"many keywords":          many + often("", "{{ m(**dict(n.l)) }}"),
	"a long date":            "{{ strftime_now('%c' * 3000000) }}",
	"many dates":             often("", "{% set x = strftime_now('%c' * 500) %}"),
	"many variables":         often("", "{{ a1 }}") + variables(15_000),
	"a huge string, trimmed": often("{% set x = 'x' * 60000000 %}", "{{ x | trim | length }}"),
	"blanks":                 "{{ (' ' * 60000000) | trim }}",
	"characters":             "{{ ('é' * 30000000) | list | length }}",
	"case":                   "{{ ('é' * 30000000) | upper | lower | title }}",
	"a huge sort":            "{{ ('ab' * 9000000) | list | sort }}",
	"a long line":            often("{% set x = 'é' * 1000000 %}", "{% if x.splitlines() %}{% endif %}"),
	"a long line indented":   often("{% set x = 'é' * 1000000 %}", "{% if x | indent %}{% endif %}"),
	"ends of a long string":  often("{% set x = 'é' * 1000000 %}", "{{ x.strip('é') }}{{ x.rstrip('é') }}"),
	"reversed strings":       often("{% set x = s * 100000 %}", "{% if x[::-1] %}{% endif %}"),
}

// affixes sets x to 8 MB, y to a string that differs in the last byte, and z in the first one.
const affixes = "{% set x = s * 500000 %}{% set y = x[:-1] ~ '!' %}{% set z = '!' ~ x[1:] %}"

// many defines a macro with keyword arguments and a namespace with 500 pairs.
const many = "{% macro m() %}{{ kwargs | length }}{% endmacro %}{% set n = namespace(l=[]) %}" +
	"{% for i in range(500) %}{% set n.l = n.l + [('k' ~ i, i)] %}{% endfor %}"

// refused are templates that use what is not supported. They fail before the costly operation.
var refused = map[string]string{
	"shared tuples as a key":     grow("{% set n.l = (n.l, n.l) %}") + "{{ {n.l: 1} }}",
	"a wide format":              "{{ '%999999999999d' % 1 }}",
	"a wide field":               "{{ '{:999999999}'.format(1) }}",
	"a wide center":              "{{ 'a'.center(2147483647) }}",
	"a big power":                "{{ 9 ** 999999999 }}",
	"a wide batch":               "{{ l | batch(2147483647, 'x') | list }}",
	"a fraction of digits":       "{{ '%.9999999f' % 1 }}",
	"a path of dots":             "{{ l | map(attribute='.' * 60000000) | list }}",
	"sorted by a path of dots":   "{{ l | sort(attribute='.' * 8000000) }}",
	"a long path with a default": "{{ l | map(attribute='a.' * 100000, default='x') | list | length }}",
	"a huge format":              "{{ ('%s' * 9000000) % 1 }}",
	"braces":                     "{{ ('{{' * 20000000).format() | length }}",
	"percent signs":              "{{ ('%%' * 20000000) % () }}",
	"text to format":             often("{% set x = s * 1000000 %}", "{% set y = x.format() %}"),
}

// invalid are templates that cannot be parsed.
var invalid = map[string]string{
	"many named arguments":       "{{ f(" + arguments(90_000, "=1") + ") }}",
	"many parameters":            "{% macro m(" + arguments(120_000, "") + ") %}{% endmacro %}",
	"brackets":                   "{{ " + nested("(", ")", 100_000) + " }}",
	"lists":                      "{{ " + nested("[", "]", 100_000) + " }}",
	"minus signs":                "{{ " + nested("- ", "", 100_000) + " }}",
	"not":                        "{{ " + nested("not ", "", 100_000) + " }}",
	"a long sum":                 "{{ " + strings.Repeat("1+", 200_000) + "1 }}",
	"a long chain of attributes": "{{ s" + strings.Repeat(".a", 200_000) + " }}",
	"a long chain of filters":    "{{ s" + strings.Repeat("|trim", 100_000) + " }}",
	"a long chain of if":         "{{ 1" + strings.Repeat(" if 1 else 1", 50_000) + " }}",
	"nested tags":                strings.Repeat("{% if 1 %}", 50_000) + strings.Repeat("{% endif %}", 50_000),
	"nested targets":             "{% set " + strings.Repeat("(", 100_000) + "a = 1 %}",
	"a long template":            strings.Repeat("x", 2<<20),
	"open brackets":              "{{ " + strings.Repeat("{", 100_000),
	"a tag without end":          "{% " + strings.Repeat("if ", 100_000),
	"a tag of blanks":            "{%" + strings.Repeat(" ", 1<<19) + "raw" + strings.Repeat(" ", 1<<18),
	"many comments":              strings.Repeat("{#", 1<<19),
	"open raw blocks":            strings.Repeat("{% raw %}{% endraw", 40_000),
}

// A template is untrusted input. It must fail with a typed error, within the limits.
func TestHostileTemplates(t *testing.T) {
	for name, source := range exceeding {
		t.Run(name, func(t *testing.T) {
			if err := endsInTime(t, source); !errors.Is(err, ErrLimit) {
				t.Errorf("got %v, want an error that wraps ErrLimit", err)
			}
		})
	}
	for name, source := range refused {
		t.Run(name, func(t *testing.T) {
			err := endsInTime(t, source)
			if !failed(err) || errors.Is(err, ErrLimit) || len(err.Error()) > 500 {
				t.Errorf("got %.500v, want a short error of the rendering that does not wrap ErrLimit", err)
			}
		})
	}
	for name, source := range invalid {
		t.Run(name, func(t *testing.T) {
			err := endsInTime(t, source)
			if !errors.Is(err, ErrTemplate) || len(err.Error()) > 500 {
				t.Errorf("got %.500v, want a short ErrTemplate", err)
			}
		})
	}
}

// The message of raise_exception is clipped at a character.
func TestRefusalIsShort(t *testing.T) {
	_, err := parse(t, `{{ raise_exception('x' ~ 'é' * 10000000) }}`).Render(t.Context(), nil, nil)
	var e *Error
	if !errors.Is(err, ErrRefused) || !errors.As(err, &e) || len(e.Msg) > 400 || !utf8.ValidString(e.Msg) {
		t.Errorf("got %.500q, want an ErrRefused of at most 400 bytes", err)
	}
}

func TestLimitsAreNamed(t *testing.T) {
	tmpl := parse(t, "{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}")
	_, err := tmpl.Render(t.Context(), nil, nil)
	if !errors.Is(err, ErrLimit) {
		t.Errorf("%v does not wrap ErrLimit", err)
	}
	if !strings.Contains(err.Error(), "nest") {
		t.Errorf("%v does not name the limit", err)
	}
}

// watched is a context that records the longest CPU time between two calls of Err, and is cancelled at
// call number cancelAt, unless that is 0.
type watched struct {
	context.Context
	last, longest    time.Duration
	checks, cancelAt int
}

func (w *watched) Err() error {
	now, _ := cpuTime()
	if w.checks++; w.checks > 1 {
		w.longest = max(w.longest, now-w.last)
	}
	w.last = now
	if w.cancelAt > 0 && w.checks >= w.cancelAt {
		return context.Canceled
	}
	return w.Context.Err()
}

// A rendering checks its context about every 10 ms of CPU time, inside of long operations too. The
// bound is higher for the race detector and the garbage collector.
func TestRenderingChecksItsContext(t *testing.T) {
	for name, source := range map[string]string{
		"loops":   often("", ""),
		"trim":    often("{% set x = ' ' * 9000000 %}", "{% if x | trim %}{% endif %}"),
		"upper":   often("{% set x = 'é' * 3000000 %}", "{% if x | upper %}{% endif %}"),
		"replace": often("{% set x = 'ab' * 3000000 %}", "{{ x.replace('a', '')[:0] }}"),
		"sort":    often("{% set x = ('ab' * 300000) | list %}", "{% if x | sort %}{% endif %}"),
		"tojson":  often("{% set x = '\"' * 9000000 %}", "{% if x | tojson %}{% endif %}"),
	} {
		ctx := &watched{Context: t.Context()}
		tmpl := parse(t, source)
		if _, err := tmpl.Render(ctx, nil, nil); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v, want a limit", name, err)
		}
		// A cancelled rendering ends at the check that sees it.
		cancelled := &watched{Context: t.Context(), cancelAt: 50}
		if _, err := tmpl.Render(cancelled, nil, nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrLimit) ||
			!failed(err) || cancelled.checks != cancelled.cancelAt {
			t.Errorf("%s: cancelled at check %d of %d: %v", name, cancelled.cancelAt, cancelled.checks, err)
		}
		if _, measured := cpuTime(); !measured {
			t.Log("CPU time is not measured on this system: how far checks are apart is not tested")
		}
		t.Logf("%s: %d checks, at most %v apart", name, ctx.checks, ctx.longest)
		if ctx.checks < 100 || ctx.longest > 500*time.Millisecond {
			t.Errorf("%s: %d checks, up to %v of CPU time apart", name, ctx.checks, ctx.longest)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := parse(t, "x").Render(ctx, nil, nil)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrLimit) || !failed(err) {
		t.Errorf("cancelled: %v, want an error of the rendering that wraps context.Canceled", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if _, err := parse(t, "x").Render(ctx, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("out of time: %v", err)
	}
}

// Large templates without a fault render within the limits.
func TestLargeTemplates(t *testing.T) {
	for name, unit := range map[string]string{
		"prints":     "{{a}}",
		"conditions": "{%if a%}{%endif%}",
		"text":       "{ ",
		"lines":      "{{\n\na}}\n",
		"comments":   "{##}",
		"sets":       "{%set a=1%}",
		"raw":        "{%raw%}{%endraw%}",
		"sums":       "{{" + strings.Repeat("1+", 1000) + "1}}",
		"lists":      "{{[" + strings.Repeat("1,", 4000) + "]}}",
	} {
		t.Run(name, func(t *testing.T) {
			if err := endsInTime(t, strings.Repeat(unit, (1<<16)/len(unit))); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A long conversation is not hostile.
func TestLongConversation(t *testing.T) {
	var messages []Message
	for i := range 4000 {
		role := []string{"user", "assistant"}[i%2]
		messages = append(messages, Message{Role: role, Content: strings.Repeat("word ", 500)})
	}
	tmpl := parse(t, string(read(t, "templates/inherited.jinja")))
	if _, err := tmpl.Render(t.Context(), messages, &Options{AddGenerationPrompt: true}); err != nil {
		t.Error(err)
	}
}

func TestParseErrorsNameTheLine(t *testing.T) {
	for name, tc := range map[string]struct {
		source string
		line   int
	}{
		"an unknown filter":        {"a\nb\n{{ x | nope }}", 3},
		"an unknown tag":           {"a\r\nb\r\n\r\n{% nope %}", 4},
		"a tag over several lines": {"{% if a\n  and b\n  and ) %}", 3},
		"an unterminated string":   {"\n\n{{ 'abc", 3},
		"an invalid character":     {"\n{{ a\n ? b }}", 3},
		"an unterminated comment":  {"x\n{# abc", 2},
		"an include":               {"\n{% include 'x' %}", 2},
		"a misplaced argument":     {"\n\n\n{{ f(*a, b) }}", 4},
		"a wrong end tag":          {"{% for a in b %}\n{% endif %}", 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.source)
			var e *Error
			if !errors.Is(err, ErrTemplate) || !errors.As(err, &e) {
				t.Fatalf("got %v, want an ErrTemplate", err)
			}
			if e.Line != tc.line {
				t.Errorf("line %d, want %d: %v", e.Line, tc.line, err)
			}
		})
	}
}

// An unsupported construct must not render an approximation.
func TestUnsupportedIsAnError(t *testing.T) {
	for _, source := range []string{
		"{{ s | urlize }}", "{{ s | striptags }}", "{{ l | groupby('a') }}", "{{ s | filesizeformat }}",
		"{{ l | pprint }}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}",
		"{% block b %}{% endblock %}", "{% do f() %}", "{% autoescape true %}{% endautoescape %}",
		"{{ s.encode('utf-8') }}", "{{ s.translate({}) }}", "{{ s.find('a', 99) }}",
		"{{ ('%s' | safe) % 1 }}", "{{ ('{}' | safe).format(1) }}", "{{ '{0.a}'.format(l) }}",
		"{{ '{:{}}'.format(1, 2) }}", "{{ '%b' % 1 }}", "{{ f(*l) }}", "{{ f(**l) }}", "{{ s.upper }}",
		"{{ range }}",
		"{{ self.x() }}", "{{ joiner() }}", "{{ l | select }}", `{{ "\N{DASH}" }}`, "{{ strftime_now('%Q') }}",
		"{{ l is string if s }}", "{{ 1.5 | round(-1) }}", "{{ '{:08,}'.format(1) }}",
		"{{ (s ~ messages[0].content ~ 'Σ') | lower }}", "{{ ('Σ' * 600000).lower() | length }}",
		"{{ 'ΑΣ' | title }}", "{{ 'ΑΣ'.title() }}",
		"{{ 7 ** 3.5 }}", "{{ 49 ** -1 }}", "{{ 1.1 ** 2 }}", "{{ [0.1, 0.1, 0.1] | sum(start=0.0) }}",
	} {
		tmpl, err := Parse(source)
		if err == nil {
			var r Rendered
			if r, err = tmpl.RenderJSON(t.Context(), []byte(hello)); err == nil {
				t.Errorf("%s rendered %q", source, r.Text)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "chat: template line 1: ") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

func TestTemplateIsSafeForConcurrentUse(t *testing.T) {
	tmpl := parse(t, string(read(t, "templates/blocks.jinja")))
	call := FunctionCall{Name: "f", Arguments: json.RawMessage(`{"b": 1, "a": [1.0]}`)}
	messages := []Message{
		{Role: "user", Content: "a"}, {Role: "assistant", ToolCalls: []ToolCall{{Function: call}}},
	}
	want, err := tmpl.Render(t.Context(), messages, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				got, err := tmpl.Render(t.Context(), messages, nil)
				if err != nil || got.Text != want.Text || !slices.Equal(got.Content, want.Content) {
					t.Errorf("got %q, %v, want %q", got.Text, err, want.Text)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"{{ a|trim }}", "{% for x in l if x %}{{ loop.last }}{% endfor %}", "{%- set a.b = 1, -%}",
		"{% raw %}{{{% endraw %}", "{{ 'a\\'' ~ \"\\\\\" }}", "{# #}\n {%+ if 1 %}",
		"{% macro m(a, b=1) %}{% endmacro %}{{ m(1)[::-1] }}", "{{ '%5.2f' % 1 }}{{ '{:>5}'.format(s) }}",
		"{{ l | map('string') | join(',') | tojson(indent=2) }}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		var r Rendered
		var err error
		within(t, func() {
			var tmpl *Template
			if tmpl, err = Parse(source); err == nil {
				r, err = tmpl.RenderJSON(t.Context(), []byte(hello))
			}
		})
		if err != nil && strings.Contains(err.Error(), "internal error") {
			t.Fatal(err)
		}
		end := -1
		for _, s := range r.Content {
			if s.Start <= end || s.End <= s.Start || s.End > len(r.Text) {
				t.Fatalf("spans %v in a text of %d bytes", r.Content, len(r.Text))
			}
			end = s.End
		}
	})
}
