package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// start opens a server for a new deployment of a tiny model.
func start(t *testing.T, opts *skill.Options) *Server {
	t.Helper()
	if opts == nil {
		opts = &skill.Options{}
	}
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	opts.SeqLen, opts.Positions, opts.Repetitions = 40, 32, 3
	s, err := New(skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// join connects a client of the SDK.
func join(t *testing.T, s *Server, opts *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.connect(ctx, there) }()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "tester", Version: "1"}, opts).Connect(ctx, here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); cancel(); <-done })
	return c
}

// call calls a tool and parses its result.
func call[T any](t *testing.T, c *sdk.ClientSession, tool string, arguments any) T {
	t.Helper()
	r, err := c.CallTool(context.Background(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if r.IsError {
		t.Fatalf("%s %v: %s", tool, arguments, text(r))
	}
	var v T
	if err := json.Unmarshal([]byte(text(r)), &v); err != nil {
		t.Fatalf("%s: %v in %.500s", tool, err, text(r))
	}
	return v
}

func text(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// refuse calls a tool that must return an error, of its own or of the protocol.
func refuse(t *testing.T, c *sdk.ClientSession, tool string, arguments any, want string) {
	t.Helper()
	r, err := c.CallTool(context.Background(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	got := fmt.Sprint(err)
	if err == nil {
		if got = text(r); !r.IsError {
			t.Errorf("%s %v: did it: %.300s", tool, arguments, got)
			return
		}
	}
	if !strings.Contains(got, want) {
		t.Errorf("%s %v: %q, want something about %q", tool, arguments, got, want)
	}
}

type object = map[string]any

// An agent that follows the calls of state finalises a plan, and cannot skip an approval.
func TestAgentFollowsState(t *testing.T) {
	c := join(t, start(t, nil), nil)
	for step := 0; ; step++ {
		v := call[deploymentView](t, c, "state", object{})
		if step > 40 || len(v.Next) == 0 {
			t.Fatalf("after %d calls: %+v", step, v)
		}
		next := v.Next[0]
		if v.Waiting {
			refuse(t, c, "run_phase", object{"phase": v.Due}, "waits for approval")
		}
		if next.Tool == "read_report" {
			if v.Due != "evaluation" {
				t.Errorf("%s is due at the end", v.Due)
			}
			if r := call[reportText](t, c, "read_report", next.Arguments); !strings.Contains(r.Text, "tokens/s") {
				t.Errorf("performance.md:\n%s", r.Text)
			}
			break
		}
		if r, err := c.CallTool(context.Background(), &sdk.CallToolParams{Name: next.Tool,
			Arguments: next.Arguments}); err != nil || r.IsError {
			t.Fatalf("%s %v: %v %s", next.Tool, next.Arguments, err, text(r))
		}
	}
	v := call[deploymentView](t, c, "state", nil)
	for _, p := range v.Phases[:7] {
		if p.Status != journal.Passed {
			t.Errorf("%s is %s", p.Phase, p.Status)
		}
	}
	if v.PlanStatus != "draft" || len(v.Gates) == 0 {
		t.Errorf("without an evaluation: %+v", v)
	}
	journal := call[reportText](t, c, "read_report", object{"name": "progress.md"})
	if !strings.Contains(journal.Text, `over MCP, by "tester"`) {
		t.Errorf("who approved is not in the record:\n%s", journal.Text)
	}
}

// Wrong calls are refused with a reason, and change nothing.
func TestWrongCalls(t *testing.T) {
	s := start(t, nil)
	c := join(t, s, nil)
	before := call[deploymentView](t, c, "state", nil)
	for _, tc := range []struct {
		tool      string
		arguments any
		want      string
	}{
		{"run_phase", object{}, "phase"},
		{"run_phase", object{"phase": 3}, "phase"},
		{"run_phase", object{"phase": "victory"}, "phase"},
		{"run_phase", object{"phase": "full-model"}, "reference"},
		{"run_phase", object{"phase": "reference", "verdict": "pass"}, "verdict"},
		{"run_phase", object{"phase": "reference", "passed": true}, "passed"},
		{"run_phase", []int{1}, ""},
		{"run_gate", object{"gate": "no-such"}, "architecture"},
		{"run_gate", object{"gate": "logits", "ok": true}, "ok"},
		{"diagnose", object{"gate": "no-such"}, "no-such"},
		{"approve", object{"action": "approve"}, "no phase waits"},
		{"approve", object{"action": "pass"}, "action"},
		{"approve", object{"action": "redirect"}, "needs a phase"},
		{"approve", object{"action": "redirect", "phase": "finalise"}, "cannot redirect"},
		{"approve", object{"action": "approve", "note": strings.Repeat("x", 5000)}, "at most"},
		{"propose_plan_change", object{"name": "x"}, "change"},
		{"propose_plan_change", object{"name": "", "change": object{}}, "name"},
		{"propose_plan_change", object{"name": "x", "change": object{"chunk": 16}}, "reference"},
		{"read_report", object{"name": "../../etc/passwd"}, "read_report without a name"},
		{"read_report", object{"name": "../x.md"}, "escapes"},
		{"read_report", object{"name": "/etc/x.md"}, "escapes"},
		{"read_report", object{"name": "link.md"}, "escapes"},
		{"read_report", object{"name": "folder.md"}, "not a regular file"},
		{"read_report", object{"name": "lock"}, "without a name"},
		{"read_report", object{"name": "journal.jsonl", "offset": -1}, "offset"},
		{"read_report", object{"name": "journal.jsonl", "offset": 1 << 40}, "offset"},
		{"set_verdict", object{"gate": "logits", "ok": true}, "set_verdict"},
	} {
		if tc.arguments != nil && tc.want == "escapes" {
			os.Symlink("/etc/hostname", filepath.Join(s.dir, "link.md"))
		}
		if tc.want == "not a regular file" {
			os.Mkdir(filepath.Join(s.dir, "folder.md"), 0o755)
		}
		refuse(t, c, tc.tool, tc.arguments, tc.want)
	}
	after := call[deploymentView](t, c, "state", nil)
	if fmt.Sprint(after.Phases, after.Due) != fmt.Sprint(before.Phases, before.Due) {
		t.Errorf("the state was %+v and is %+v", before, after)
	}
}

// No tool takes a verdict: this list has the arguments of every tool.
func TestNoToolSetsAVerdict(t *testing.T) {
	c := join(t, start(t, nil), nil)
	want := map[string][]string{
		"state": {}, "run_phase": {"answer", "phase"}, "run_gate": {"gate", "phase"}, "diagnose": {"gate", "phase"},
		"propose_plan_change": {"change", "name"},
		"read_report":         {"name", "offset"}, "approve": {"action", "note", "phase", "skill"},
	}
	list, err := c.ListTools(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		schema := tool.InputSchema.(map[string]any)
		var fields []string
		if p, ok := schema["properties"].(map[string]any); ok {
			for name := range p {
				fields = append(fields, name)
			}
		}
		slices.Sort(fields)
		if w, ok := want[tool.Name]; !ok || !slices.Equal(fields, w) && len(fields)+len(w) > 0 {
			t.Errorf("tool %s takes %q, want %q", tool.Name, fields, w)
		}
		if extra := fmt.Sprint(schema["additionalProperties"]); extra != "false" && extra != "map[not:map[]]" {
			t.Errorf("tool %s takes other fields too: %v", tool.Name, extra)
		}
		delete(want, tool.Name)
	}
	if len(want) > 0 {
		t.Errorf("tools that are missing: %v", want)
	}
}

// blocking is a gate that waits for its context while hold is set.
func blocking(hold *atomic.Bool, began chan<- struct{}) skill.Gate {
	return skill.Gate{Name: "slow", Phases: []skill.Phase{skill.Reference}, Check: func(ctx context.Context,
		e *skill.Env) (skill.Verdict, error) {
		if hold.Load() {
			began <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := skill.Checks{Name: "slow"}
		c.Hold(true, "slow", "done")
		return c, nil
	}}
}

// A call that its client cancels ends at once. The phase does not pass, and resumes when it is run
// again.
func TestCancel(t *testing.T) {
	var hold atomic.Bool
	hold.Store(true)
	began := make(chan struct{}, 1)
	c := join(t, start(t, &skill.Options{Gates: []skill.Gate{blocking(&hold, began)}}), nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "run_phase", Arguments: object{"phase": "reference"}})
		ended <- err
	}()
	<-began
	if v := call[deploymentView](t, c, "state", nil); !strings.Contains(v.Working, "run_phase reference") ||
		len(v.Next) != 0 {
		t.Errorf("while it works: %q, next %v", v.Working, v.Next)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled call has a result")
	}
	hold.Store(false)
	idle(t, c)
	if v := call[deploymentView](t, c, "state", nil); v.Phases[0].Status != journal.Running {
		t.Errorf("after cancelling the phase is %s", v.Phases[0].Status)
	}
	if r := call[phaseResult](t, c, "run_phase", object{"phase": "reference"}); !r.Report.Passed {
		t.Errorf("run again: %+v", r.Report)
	}
}

// idle waits until no call works.
func idle(t *testing.T, c *sdk.ClientSession) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); call[deploymentView](t, c, "state",
		nil).Working != ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the call that was cancelled still works")
		}
	}
}

// Two clients over HTTP see one state. While one works, the other gets an error, and neither can
// end the other's call.
func TestTwoClientsOverHTTP(t *testing.T) {
	var hold atomic.Bool
	hold.Store(true)
	began := make(chan struct{}, 1)
	s := start(t, &skill.Options{Gates: []skill.Gate{blocking(&hold, began)}})
	ctx, stop := context.WithCancel(context.Background())
	served, listening := make(chan error, 1), make(chan string, 1)
	go func() {
		served <- s.ListenAndServe(ctx, "localhost:0", func(addr net.Addr) error {
			listening <- "http://" + addr.String()
			return nil
		})
	}()
	var url string
	select {
	case url = <-listening:
	case err := <-served:
		t.Fatal(err)
	}
	dial := func() *sdk.ClientSession {
		c, err := sdk.NewClient(&sdk.Implementation{Name: "tester", Version: "1"}, nil).Connect(context.Background(),
			&sdk.StreamableClientTransport{Endpoint: url}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := dial(), dial()
	workCtx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := a.CallTool(workCtx, &sdk.CallToolParams{Name: "run_phase", Arguments: object{"phase": "reference"}})
		ended <- err
	}()
	<-began
	for _, tool := range []struct {
		name      string
		arguments object
	}{{"run_phase", object{"phase": "reference"}}, {"run_gate", object{"gate": "weights"}},
		{"approve", object{"action": "stop"}},
		{"propose_plan_change", object{"name": "x", "change": object{}}}, {"diagnose", object{}}} {
		refuse(t, b, tool.name, tool.arguments, "busy: run_phase reference")
	}
	if v := call[deploymentView](t, b, "state", nil); v.Working == "" {
		t.Error("the other client does not see that somebody works")
	}
	cancel()
	<-ended
	hold.Store(false)
	idle(t, b)
	if r := call[phaseResult](t, b, "run_phase", object{"phase": "reference"}); !r.Report.Passed {
		t.Errorf("the other client goes on: %+v", r.Report)
	}
	if v := call[deploymentView](t, a, "state", nil); !v.Waiting {
		t.Errorf("the first client sees %+v", v)
	}
	for header, value := range map[string]string{"Origin": "https://example.com", "Host": "example.com",
		"Sec-Fetch-Site": "cross-site"} {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if req.Header.Set(header, value); header == "Host" {
			req.Host = value
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("a request of a web page, %s %s: %s", header, value, resp.Status)
		}
	}
	stop()
	if err := <-served; err != context.Canceled {
		t.Errorf("serving ends with %v", err)
	}
}

// The server listens on this machine only.
func TestListenOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "7777", ""} {
		if l, err := listen(addr); err == nil {
			l.Close()
			t.Errorf("%q was listened to", addr)
		}
	}
}

// A phase that fails is a result, with the question and the possible calls. An answer is used once,
// and an unknown direction is an error.
func TestQuestion(t *testing.T) {
	broken := true
	opts := &skill.Options{Gates: []skill.Gate{{Name: "lamp", Phases: []skill.Phase{skill.Reference},
		Check: func(context.Context, *skill.Env) (skill.Verdict, error) {
			c := skill.Checks{Name: "lamp"}
			c.Hold(!broken, "lamp", "the lamp is on")
			return c, nil
		}}}}
	var events atomic.Int32
	c := join(t, start(t, opts), &sdk.ClientOptions{ProgressNotificationHandler: func(context.Context,
		*sdk.ProgressNotificationClientRequest) {
		events.Add(1)
	}})
	params := &sdk.CallToolParams{Name: "run_phase", Arguments: object{"phase": "reference"}}
	params.SetProgressToken("p")
	raw, err := c.CallTool(context.Background(), params)
	if err != nil || raw.IsError {
		t.Fatalf("%v %s", err, text(raw))
	}
	var r phaseResult
	if err := json.Unmarshal([]byte(text(raw)), &r); err != nil {
		t.Fatal(err)
	}
	if r.Report.Passed || r.State.Question == nil || len(r.State.Problems) == 0 {
		t.Fatalf("a failing phase: %+v", r)
	}
	if events.Load() == 0 {
		t.Error("no progress came")
	}
	if d := call[skill.Diagnosis](t, c, "diagnose", nil); d.Symptom == nil || d.Gate.Name != "lamp" {
		t.Errorf("diagnosis: %+v", d)
	}
	refuse(t, c, "approve", object{"action": "approve"}, "no phase waits")
	refuse(t, c, "run_phase", object{"phase": "reference", "answer": "no-such-direction"}, "none of the directions")
	if r := call[phaseResult](t, c, "run_phase", object{"phase": "reference", "answer": "again"}); r.Report.Passed {
		t.Error("it passed although nothing has changed")
	}
	broken = false
	if r := call[phaseResult](t, c, "run_phase", object{"phase": "reference"}); !r.Report.Passed || !r.State.Waiting {
		t.Errorf("mended: %+v", r.Report)
	}
}

// The manuals are resources.
func TestSkillsAreResources(t *testing.T) {
	c := join(t, start(t, nil), nil)
	list, err := c.ListResources(context.Background(), nil)
	if err != nil || len(list.Resources) != 15 {
		t.Fatalf("%d resources, %v", len(list.Resources), err)
	}
	r, err := c.ReadResource(context.Background(), &sdk.ReadResourceParams{URI: "skill://single-block"})
	if err != nil || !strings.Contains(r.Contents[0].Text, "name: single-block") {
		t.Errorf("%+v, %v", r, err)
	}
}

// Long files come in parts that end between characters and make up the whole.
func TestReadReportInPieces(t *testing.T) {
	s := start(t, nil)
	c := join(t, s, nil)
	want := "x" + strings.Repeat("ä€😀", 20_000)
	if err := os.WriteFile(filepath.Join(s.dir, "long.md"), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for offset := int64(0); ; {
		r := call[reportText](t, c, "read_report", object{"name": "long.md", "offset": offset})
		got.WriteString(r.Text)
		if offset = r.Next; offset == 0 {
			break
		}
	}
	if got.String() != want {
		t.Errorf("%d bytes came, want %d", got.Len(), len(want))
	}
	list := call[reportText](t, c, "read_report", nil)
	if !slices.ContainsFunc(list.Files, func(f reportFile) bool { return f.Name == "journal.jsonl" }) {
		t.Errorf("files: %v", list.Files)
	}
}

// Close ends a call that works and closes the workspace; later calls are refused.
func TestClose(t *testing.T) {
	var hold atomic.Bool
	hold.Store(true)
	began := make(chan struct{}, 1)
	opts := &skill.Options{Gates: []skill.Gate{blocking(&hold, began)}, Dir: t.TempDir()}
	s := start(t, opts)
	c := join(t, s, nil)
	ended := make(chan struct{})
	go func() {
		c.CallTool(context.Background(), &sdk.CallToolParams{Name: "run_phase",
			Arguments: object{"phase": "reference"}})
		close(ended)
	}()
	<-began
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	<-ended
	again := start(t, &skill.Options{Gates: opts.Gates, Dir: opts.Dir}) // the lock is free
	if v := call[deploymentView](t, join(t, again, nil), "state", nil); v.Phases[0].Status != journal.Running {
		t.Errorf("the next server finds phase 0 %s", v.Phases[0].Status)
	}
}

// An empty journal is an error, and no crash of the server.
func TestStateWithoutAJournal(t *testing.T) {
	s := start(t, nil)
	if err := os.Truncate(filepath.Join(s.dir, journal.FileJournal), 0); err != nil {
		t.Fatal(err)
	}
	refuse(t, join(t, s, nil), "state", nil, "is empty")
}
