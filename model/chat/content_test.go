package chat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The results of filters, methods, operators and tags on content are content. No other text is.
func TestContent(t *testing.T) {
	const request = `{"messages": [], "s": "aBc dEf", "p": " x\ty ", "l": ["x", "y"], "d": {"k": "v"},
		"q": "a\"<é", "n": 7, "w": "one\ntwo", "bos_token": "<s>", "date_string": "now"}`
	for source, want := range map[string]string{
		// Printed and joined.
		"[{{ s }}]":                            "[«aBc dEf»]",
		"{{ s ~ '-' ~ s }}":                    "«aBc dEf»-«aBc dEf»",
		"{{ '-' ~ s ~ n }}":                    "-«aBc dEf»7",
		"{{ s + '-' }}":                        "«aBc dEf»-",
		"{{ '-' + s + s }}":                    "-«aBc dEfaBc dEf»",
		"{{ ('-' + l[0]) * 3 }}":               "-«x»-«x»-«x»",
		"{{ l[0] * 3 }}":                       "«xxx»",
		"{{ '-' * 3 }}":                        "---",
		"{{ bos_token }}{{ date_string }}":     "<s>now",
		"{{ strftime_now('%Y') }}":             "now",
		"{{ n }}{{ none }}{{ true }}{{ 1.5 }}": "7NoneTrue1.5",
		// Formatted.
		"{{ '%s-%5s|%-3s|%.1s' % (s, l[0], l[1], s) }}": "«aBc dEf»-    «x»|«y»  |«a»",
		"{{ '%d%%' % n }}":                     "7%",
		"{{ l[0] % () }}":                      "«x»",
		"{{ (l[0] ~ '%s') % '-' }}":            "«x»-",
		"{{ '{}-{a}{{'.format(s, a=l[0]) }}":   "«aBc dEf»-«x»{",
		"{{ '%s-' | format(s) }}":              "«aBc dEf»-",
		"{{ (l[0] ~ '{}' ~ l[1]).format(1) }}": "«x»1«y»",
		// As JSON and as Python writes it.
		"{{ s | tojson }}":                                  `"«aBc dEf»"`,
		"{{ q | tojson }}":                                  `"«a\"<é»"`,
		"{{ q | tojson(ensure_ascii=true) }}":               `"«a\"<\u00e9»"`,
		"{{ ['-', s] | tojson }}":                           `["-", "«aBc dEf»"]`,
		"{{ d | tojson(indent=1) }}":                        "{\n \"«k»\": \"«v»\"\n}",
		"{{ {'b': l[0], 'a': '-'} | tojson(sort_keys=1) }}": `{"a": "-", "b": "«x»"}`,
		"{{ l | tojson(separators=(l[0], '')) }}":           `["«x»"«x»"«y»"]`,
		"{{ l }}{{ d }}{{ (s, '-') }}":                      "['«x»', '«y»']{'«k»': '«v»'}('«aBc dEf»', '-')",
		"{{ d.items() }}":                                   "dict_items([('«k»', '«v»')])",
		"{{ l | string }}{{ s | string }}":                  "['«x»', '«y»']«aBc dEf»",
		// Parts.
		"{{ s[1:3] }}{{ s[0] }}{{ s[-1] }}":                                       "«Bcaf»",
		"{{ ('-' ~ s)[:3] }}":                                                     "-«aB»",
		"{{ s[::-1] }}":                                                           "«fEd cBa»",
		"{{ ('-' ~ l[0])[::-1] }}":                                                "«x»-",
		"{{ s | first }}{{ s | last }}":                                           "«af»",
		"{{ s.split(' ') | join('-') }}":                                          "«aBc»-«dEf»",
		"{{ s.split() | join }}":                                                  "«aBcdEf»",
		"{{ s.rsplit(' ', 1)[0] }}":                                               "«aBc»",
		"{{ s.partition('d') | join('-') }}":                                      "«aBc »-«d»-«Ef»",
		"{{ w.splitlines() | join('-') }}":                                        "«one»-«two»",
		"{{ s.removeprefix('aB') }}":                                              "«c dEf»",
		"{{ s.removesuffix('Ef') }}":                                              "«aBc d»",
		"{{ p.strip() }}|{{ p | trim }}":                                          "«x\ty»|«x\ty»",
		"{{ p.lstrip() }}|{{ p.rstrip() }}":                                       "«x\ty »|« x\ty»",
		"{{ ('-' ~ p).strip('- ') }}":                                             "«x\ty»",
		"{{ l[0] }}{{ l | last }}":                                                "«xy»",
		"{{ d.k }}{{ d['k'] }}{{ d.get('k') }}{{ d.get('z', '-') }}":              "«vvv»-",
		"{{ d.keys() | first }}{{ d.values() | first }}":                          "«kv»",
		"{{ d | items | first | join('-') }}{{ (d | dictsort)[0][1] }}":           "«k»-«vv»",
		"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}":                  "«k»=«v»",
		"{% for c in s[:2] %}{{ c }},{{ loop.index }}{% endfor %}":                "«a»,1«B»,2",
		"{% for c in l %}{{ loop.previtem }}{{ loop.cycle('-', c) }}{% endfor %}": "-«xy»",
		// Changed.
		"{{ s | upper }}{{ s.upper() }}{{ ('-a' ~ s) | upper }}": "«ABC DEFABC DEF»-A«ABC DEF»",
		"{{ s | lower }}{{ ('A' ~ s).lower() }}":                 "«abc def»a«abc def»",
		"{{ 'Σ' | lower ~ s | lower }}":                          "σ«abc def»",
		"{{ s | capitalize }}{{ ('a' ~ s).capitalize() }}":       "«Abc def»A«abc def»",
		"{{ s | title }}":                                               "«Abc Def»",
		"{{ s | replace('B', '-') }}":                                   "«a»-«c dEf»",
		"{{ s.replace('c', l[0]) }}":                                    "«aBx dEf»",
		"{{ 'a-b'.replace('-', s) }}":                                   "a«aBc dEf»b",
		"{{ q | e }}":                                                   "«a&#34;&lt;é»",
		"{{ s | safe }}{{ (s | safe) + '<' }}":                          "«aBc dEfaBc dEf»&lt;",
		"{{ w | indent(2) }}{{ w | indent(1, true) }}":                  "«one»\n  «two» «one»\n «two»",
		"{{ l | reverse | join('-') }}{{ s | reverse }}":                "«y»-«xfEd cBa»",
		"{{ l | sort(reverse=true) | join }}{{ l | min }}{{ l | max }}": "«yxxy»",
		"{{ l | map('upper') | join('-') }}":                            "«X»-«Y»",
		"{{ [d] | map(attribute='k') | join }}":                         "«v»",
		"{{ [d] | map(attribute='z', default='-') | join }}":            "-",
		"{{ l | select('eq', 'x') | join }}":                            "«x»",
		"{{ [d] | selectattr('k') | map(attribute='k') | join }}":       "«v»",
		"{{ '-'.join(l) }}{{ l[0].join(['-', '+']) }}":                  "«x»-«y»-«x»+",
		"{{ l | join(', ') }}{{ (l + ['-']) | list | join }}":           "«x», «yxy»-",
		"{{ z | default(s) }}{{ s | default('-') }}{{ z | d('-') }}":    "«aBc dEfaBc dEf»-",
		"{{ s if n else '-' }}{{ s and '-' }}{{ '' or s }}":             "«aBc dEf»-«aBc dEf»",
		"{{ ('a' ~ l[0] ~ 'b').replace('', '.') }}":                     ".a.«x».b.",
		"{{ (s ~ 'Z') | lower }}":                                       "«abc def»z",
		// Mixed texts, keys and separators.
		"{{ ('ab' ~ w ~ 'cd')[1:5] }}|{{ ('ab' ~ w ~ 'cd')[4:] }}":      "b«one»|«e\ntwo»cd",
		"{{ [\"it's\" ~ s ~ '\n'] }}":                                   `["it's«aBc dEf»\n"]`,
		"{{ d | tojson(indent=l[0]) }}":                                 "{\n«x»\"«k»\": \"«v»\"\n}",
		"{{ {'x': '<|user|>'}[l[0]] }}":                                 "<|user|>",
		"{{ dict(**d).keys() | first }}":                                "«k»",
		"{% macro m() %}{{ kwargs | first }}{% endmacro %}{{ m(**d) }}": "«k»",
		// Numbers of content are not content.
		"{{ s | length }}{{ s.find('c') }}{{ s.count('a') }}{{ '7' | int }}": "7217",
		// Statements.
		"{% set x %}-{{ s }}-{% endset %}{{ x }}":                                 "-«aBc dEf»-",
		"{% set x | upper %}-{{ s }}-{% endset %}{{ x }}":                         "-«ABC DEF»-",
		"{% filter upper %}a{{ s }}{% endfilter %}":                               "A«ABC DEF»",
		"{% macro m(a, b='-') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(s) }}":         "<«aBc dEf»->",
		"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(s, a='-') }}": "('«aBc dEf»',){'a': '-'}",
		"{% generation %}-{{ s }}{% endgeneration %}":                             "-«aBc dEf»",
		"{% with x = s %}{{ x }}-{% endwith %}":                                   "«aBc dEf»-",
		"{{ dict(a=s) | tojson }}":                                                `{"a": "«aBc dEf»"}`,
		"{{ dict([(s, '-')]) }}":                                                  "{'«aBc dEf»': '-'}",

		"{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ s }}{% endcall %}": "<«aBc dEf»>",

		"{% set n = namespace(x='-') %}{% for c in l %}{% set n.x = n.x ~ c %}{% endfor %}{{ n.x }}": "-«xy»",

		"{% for x in [[l]] recursive %}" +
			"{{ loop(x) if x is not string and loop.depth < 3 else x }}{% endfor %}": "«xy»",
	} {
		r, err := parse(t, source).RenderJSON(t.Context(), []byte(request))
		if got := marked(r); err != nil || got != want {
			t.Errorf("%s\ngot  %q, %v\nwant %q", source, got, err, want)
		}
	}
}

// A role of published templates may be part of a token. Any other role is content.
func TestRoleCompletesNoToken(t *testing.T) {
	tmpl := parse(t, "{% for m in messages %}<|{{ m.role }}|>{% endfor %}")
	for role, want := range map[string]string{
		"user": "<|user|>", "system": "<|system|>", "observation": "<|observation|>",
		"im_end": "<|«im_end»|>", "endoftext": "<|«endoftext»|>",
		"User": "<|«User»|>", "user ": "<|«user »|>",
	} {
		r, err := tmpl.Render(t.Context(), []Message{{Role: role}}, nil)
		if got := marked(r); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		conversation := fmt.Appendf(nil, `{"messages": [{"role": %q}]}`, role)
		if r, err = tmpl.RenderJSON(t.Context(), conversation); err != nil || marked(r) != want {
			t.Errorf("JSON: got %q, %v, want %q", marked(r), err, want)
		}
	}
}

// replaced returns v with all letters of its strings replaced by letter, except in the values that
// templates compare. It adds these, and all keys, to words in lower case.
func replaced(v any, key, letter string, words map[string]bool) any {
	switch v := v.(type) {
	case string:
		if slices.Contains([]string{"role", "type"}, key) {
			words[strings.ToLower(v)] = true
			return v
		}
		return strings.Repeat(letter, len([]rune(v)))
	case []any:
		for i := range v {
			v[i] = replaced(v[i], key, letter, words)
		}
	case map[string]any:
		for k := range v {
			words[strings.ToLower(k)] = true
			v[k] = replaced(v[k], k, letter, words)
		}
	}
	return v
}

// In the output of published templates, every byte from the conversation is content, and no byte
// from the template is.
func TestContentOfRealTemplates(t *testing.T) {
	c := loadCorpus(t)
	type request struct {
		data  []byte
		words []string // longest first
	}
	var requests [2]map[string]request
	for i, letter := range []string{"ж", "ю"} {
		requests[i] = map[string]request{}
		for name, raw := range c.Requests {
			var fields map[string]any
			if err := json.Unmarshal(raw, &fields); err != nil {
				t.Fatal(err)
			}
			words := map[string]bool{}
			for key, v := range fields {
				switch s, isString := v.(string); {
				case !isString:
					fields[key] = replaced(v, key, letter, words)
				case !strings.HasSuffix(key, "_token") && key != "date_string":
					words[s] = true
				}
			}
			data, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			var list []string
			for w := range words {
				list = append(list, w)
			}
			slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
			requests[i][name] = request{data, list}
		}
	}
	letters := regexp.MustCompile(`[жюЖЮ]|\\u04(?:36|4e|16|2e)`)
	rendered, found := 0, 0
	for _, source := range c.Templates {
		tmpl, err := Parse(source.Text)
		if err != nil {
			continue // TestRealTemplates counts these
		}
		if letters.MatchString(source.Text) {
			t.Fatalf("%s has the letters of the test", source.Name)
		}
		for name := range c.Requests {
			var outside [2]string
			var failed [2]bool
			for i := range requests {
				r, err := tmpl.RenderJSON(t.Context(), requests[i][name].data)
				if failed[i] = err != nil; failed[i] {
					continue
				}
				rendered++
				done := 0
				for _, s := range r.Content {
					outside[i] += r.Text[done:s.Start] + "\x00"
					done = s.End
					span := r.Text[s.Start:s.End]
					found += len(letters.FindAllString(span, -1))
					rest := strings.ToLower(letters.ReplaceAllString(span, ""))
					for _, w := range requests[i][name].words {
						rest = strings.ReplaceAll(rest, w, "")
					}
					if rest != "" {
						t.Errorf("%s, %s: content %q has %q from the template", source.Name, name, span, rest)
					}
				}
				outside[i] += r.Text[done:]
				if at := letters.FindStringIndex(outside[i]); at != nil {
					t.Errorf("%s, %s: %q is not in Content", source.Name, name, outside[i])
				}
			}
			if outside[0] != outside[1] || failed[0] != failed[1] {
				t.Errorf("%s, %s: the text outside of content depends on content:\n%q\n%q", source.Name,
					name, outside[0], outside[1])
			}
		}
	}
	t.Logf("%d renderings with %d letters of content", rendered, found)
	if rendered < 8000 || found < 1_000_000 {
		t.Errorf("%d renderings with %d letters of content", rendered, found)
	}
}
