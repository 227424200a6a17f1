package main

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// called calls a tool and returns its text.
func called(t *testing.T, c *sdk.ClientSession, tool string, arguments map[string]any) string {
	t.Helper()
	r, err := c.CallTool(context.Background(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	text := r.Content[0].(*sdk.TextContent).Text
	if r.IsError {
		t.Fatalf("%s: %s", tool, text)
	}
	return text
}

// An agent that starts the command drives a deployment over stdin and stdout. A second process
// continues it over HTTP without a MODEL argument.
func TestMCPCommand(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "work")
	client := sdk.NewClient(&sdk.Implementation{Name: "tester", Version: "1"}, nil)

	c, err := client.Connect(ctx, &sdk.CommandTransport{Command: process(t, "mcp", tiny("smollm-mha"), "--dir", dir,
		"--seq", "40")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := called(t, c, "run_phase", map[string]any{"phase": "reference"}); !strings.Contains(text,
		`"passed":true`) {
		t.Errorf("phase 0: %s", text)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the command ends with %v when its client disconnects", err)
	}

	cmd := process(t, "mcp", "--dir", dir, "--http", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if c, err = client.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: strings.TrimSpace(url)}, nil); err != nil {
		t.Fatal(err)
	}
	if text := called(t, c, "state", nil); !strings.Contains(text, `"waiting_for_approval":true`) {
		t.Errorf("the second server finds %s", text)
	}
	c.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

// Invalid input is an error before the server starts.
func TestMCPRefuses(t *testing.T) {
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "journal.jsonl"), []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"mcp"}, 2, "--dir is missing"},
		{[]string{"mcp", "--dir", t.TempDir()}, 2, "MODEL is missing"},
		{[]string{"mcp", tiny("smollm-mha"), "--dir", t.TempDir(), "--seq", "-1"}, 2, "--seq"},
		{[]string{"mcp", tiny("smollm-mha"), "--dir", t.TempDir(), "--http", "0.0.0.0:0"}, 2, "loopback"},
		{[]string{"mcp", tiny("smollm-mha"), "--dir", t.TempDir(), "--device", "gpu"}, 2, "gpu"},
		{[]string{"mcp", "no-such-model", "--dir", t.TempDir()}, 1, "no-such-model"},
		{[]string{"mcp", "--dir", broken}, 1, "line 1"},
	} {
		if r := command("", tc.args...); r.code != tc.code || !strings.Contains(r.stderr, tc.want) || r.out != "" {
			t.Errorf("%v: code %d, out %q, stderr %q", tc.args, r.code, r.out, r.stderr)
		}
	}
}
