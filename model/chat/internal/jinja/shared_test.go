package jinja

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
)

// corpus has the results of Jinja2 for published templates: see the README of the shared test data.
type corpus struct {
	Templates []struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
		Text string `json:"text"`
	} `json:"templates"`
	Requests map[string]json.RawMessage `json:"requests"`
	Cases    []struct {
		Template int     `json:"template"`
		Request  string  `json:"request"`
		Expect   *string `json:"expect"`
		Raises   string  `json:"raises"`
	} `json:"cases"`
}

func loadCorpus(t testing.TB) *corpus {
	t.Helper()
	file, err := os.Open(filepath.Join(testenv.Shared(t, "chat"), "templates.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &corpus{}
	if err := json.NewDecoder(unzipped).Decode(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// variables are a request's fields as the corpus gives them to a template.
func (c *corpus) variables(t testing.TB, request string) (*Dict, Environment) {
	t.Helper()
	v, err := DecodeJSON(c.Requests[request])
	if err != nil {
		t.Fatal(err)
	}
	vars := NewDict()
	for _, name := range []string{"messages", "tools", "documents"} {
		vars.Set(name, nil)
	}
	vars.Set("add_generation_prompt", false)
	vars.Merge(v.(*Dict), nil)
	date, _ := vars.Get("date_string")
	return vars, Environment{
		Strftime: func(string) (string, error) { s, _ := String(date); return s, nil },
		Size:     len(c.Requests[request]),
	}
}

// Published templates render to the same bytes as in Jinja2, and fail if they fail there.
func TestRealTemplates(t *testing.T) {
	c := loadCorpus(t)
	templates := map[int]*Template{}
	parseErrors := map[int]error{}
	for _, tmpl := range c.Templates {
		if templates[tmpl.ID], parseErrors[tmpl.ID] = Parse(tmpl.Text); parseErrors[tmpl.ID] != nil {
			t.Logf("%d %s: %v", tmpl.ID, tmpl.Name, parseErrors[tmpl.ID])
		}
	}
	equal, refused := 0, 0
	for _, k := range c.Cases {
		var text string
		err := parseErrors[k.Template]
		if err == nil {
			vars, env := c.variables(t, k.Request)
			text, _, err = templates[k.Template].Render(t.Context(), vars, env)
		}
		switch {
		case err != nil && k.Expect == nil, err == nil && k.Expect != nil && text == *k.Expect:
			equal++
		case err != nil:
			refused++
			t.Logf("template %d, %s: %v", k.Template, k.Request, err)
		case k.Expect == nil:
			t.Errorf("template %d, %s: rendered %q; the reference raises %s",
				k.Template, k.Request, text, k.Raises)
		default:
			t.Errorf("template %d, %s:\ngot  %q\nwant %q", k.Template, k.Request, text, *k.Expect)
		}
	}
	if equal != 5018 || refused != 0 {
		t.Errorf("%d of %d equal, %d refused; want 5018 and 0", equal, len(c.Cases), refused)
	}
}
