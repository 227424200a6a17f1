package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/terminal"
	"golang.org/x/sys/unix"
)

// session is the command on a terminal.
type session struct {
	t    *testing.T
	keys *os.File // the user's side of the terminal
	cmd  *exec.Cmd

	mu   sync.Mutex
	text strings.Builder // all output so far
	seen int             // number of bytes of it that see has consumed
}

// onTerminal starts the command on a new pseudo-terminal.
func onTerminal(t *testing.T, args ...string) *session {
	t.Helper()
	return onTerminalOf(t, 200, args...)
}

// onTerminalOf is onTerminal with a given width.
func onTerminalOf(t *testing.T, columns uint16, args ...string) *session {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	defer tty.Close()
	s := &session{t: t, keys: keys, cmd: process(t, args...)}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := keys.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// see waits until new output matches the pattern, and returns the output up to the end of the
// match.
func (s *session) see(pattern string) string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	for until := time.Now().Add(10 * patient); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		rest := s.text.String()[s.seen:]
		at := re.FindStringIndex(rest)
		if at != nil {
			s.seen += at[1]
		}
		s.mu.Unlock()
		if at != nil {
			return rest[:at[1]]
		}
		if time.Now().After(until) {
			s.t.Fatalf("no %q in %q", pattern, rest)
		}
	}
}

func (s *session) press(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ended waits for the command and checks its exit code.
func (s *session) ended(code int) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * patient):
		s.t.Fatal("the command still runs")
	}
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("exit code %d, want %d", got, code)
	}
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
)

// A conversation on a terminal: prompt, answer and figures. Ctrl-C stops the answer; the
// conversation continues.
func TestChatOnATerminal(t *testing.T) {
	s := onTerminal(t, "chat", chatty(t), "--ignore-eos", "--ctx", "2000")
	s.see(`chatty on cpu .* /help`)
	s.see(`> `)
	s.press("Hello\r")
	s.see("Hello\r\n")
	s.see(`(?s)..........`) // an answer has begun
	s.press(ctrlC)
	s.see(`stopped`)
	s.see(`> `)
	s.press("/help\r")
	s.see(`/clear .*new conversation`)
	s.see(`> `)
	s.press("/nosuch\r")
	s.see(`unknown command /nosuch`)
	s.see(`> `)
	s.press("/clear\r")
	s.see(`a new conversation`)
	s.see(`> `)
	s.press("one\\\rtwo")
	s.see(`… .*two`)
	s.press(ctrlC) // drops the line
	s.see(`\^C`)
	s.see(`> `)
	s.press(ctrlC) // leaves
	s.ended(0)
}

// Ctrl-D leaves, and the arrow key recalls the last message.
func TestChatHistoryAndCtrlD(t *testing.T) {
	s := onTerminal(t, "chat", chatty(t), "--ignore-eos", "-n", "4")
	s.see(`> `)
	s.press("Hello\r")
	s.see(`first token .* 4 tokens in .* tokens/s`)
	s.see(`> `)
	s.press("\x1b[A\r")
	s.see("Hello\r\n")
	s.see(`prompt tokens, \d+ known`) // the prefix that the session reuses
	s.see(`> `)
	s.press(ctrlD)
	s.ended(0)
}

// Input that is not text is rejected as from a pipe, and later input is read: bytes of another
// encoding, an Esc, half a character. Ctrl-C works after each of them.
func TestChatTakesAllKeys(t *testing.T) {
	s := onTerminal(t, "chat", chatty(t), "--ignore-eos", "-n", "2")
	for _, tc := range []struct{ name, keys, echo, says string }{
		{"Latin-1", "caf\xe9 au lait\r", "caf\ufffd au lait", `the message is not valid UTF-8: byte 3 is 0xe9`},
		{"Latin-1 at the end", "caf\xe9\r", "caf\ufffd", `the message is not valid UTF-8: byte 3 is 0xe9`},
		{"Latin-1, pasted", "\x1b[200~na\xefve\x1b[201~\r", "na\ufffdve",
			`the message is not valid UTF-8: byte 2 is 0xef`},
		{"a replacement character", "a\ufffdb\r", "a\ufffdb", `first token`},
		{"Esc and digits", "\x1b\r1 + 1\r", `1 \+ 1`, `first token`},
	} {
		s.see(`> `)
		s.press(tc.keys)
		s.see(tc.echo + `(\x1b\[[0-9]*[A-Z])*\r\n`)
		s.see(tc.says)
	}
	s.see(`> `)
	s.press("é"[:1]) // two halves, one after the other
	time.Sleep(50 * time.Millisecond)
	s.press("é"[1:])
	s.see(`é`)
	s.press("\xe9") // waits for more
	s.press(ctrlC)
	s.see(`\^C`)
	s.see(`> `)
	s.press("\x1b")
	time.Sleep(50 * time.Millisecond)
	s.press(ctrlC)
	s.see(`\^C`) // Esc is a key too
	s.see(`> `)
	s.press(ctrlC)
	s.ended(0)
}

// A wrong answer repeats the question of a deployment with a reason. A number returns to a phase,
// and Ctrl-D stops the deployment, which the same command resumes.
func TestDeployAsks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	s := onTerminal(t, "deploy", tiny("smollm-mha"), "--dir", dir, "--seq", "64")
	s.see(`0 reference has passed\..*: `)
	s.press("7\n")
	s.see(`"7" is not one of Enter, 0 and s\r\n`)
	s.see(`0 reference has passed\..*: `)
	s.press("0\n")
	s.see(`0 reference has passed\..*: `)
	s.press("\n")
	s.see(`1 kernel validation has passed\..*: `)
	s.press("maybe\n")
	s.see(`"maybe" is not Enter, a number from 0 to 1, or s\r\n`)
	s.see(`1 kernel validation has passed\..*: `)
	s.press(ctrlD)
	s.see(`^\r\n(.*\r\n)*npukit deploy: skill: stopped at the checkpoint .*run again to go on`)
	s.ended(1)
}

// On a terminal the verdict is styled.
func TestVerifyOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	s := onTerminal(t, "verify", tiny("smollm-mha"), "--positions", "16")
	s.see(`\r\n\x1b\[1mPASS\x1b\[0m: the device computes this model`)
	s.ended(0)
}

// Text from a model's files cannot control the terminal, not even in an error.
func TestErrorsSteerNoTerminal(t *testing.T) {
	m := chatty(t)
	template := "{{ raise_exception('\x1b]0;owned\x07') }}"
	write(t, filepath.Join(m, "tokenizer_config.json"), map[string]any{"bos_token": "<|begin|>",
		"eos_token": "<|end|>", "chat_template": template})
	s := onTerminal(t, "run", m, "Hello")
	if text := s.see(`owned.*\r\n`); strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("the terminal gets %q", text)
	}
	s.ended(1)
}

// A dumb terminal gets no escapes and no progress line. On a narrow terminal, lines fit.
func TestSmallTerminals(t *testing.T) {
	escapes := regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	for _, dumb := range []bool{true, false} {
		if t.Setenv("TERM", "xterm"); dumb {
			t.Setenv("TERM", "dumb")
		}
		s := onTerminalOf(t, 20, "deploy", tiny("smollm-mha"), "--dir", filepath.Join(t.TempDir(), "w"), "--seq", "64",
			"--yes")
		text := s.see(`(?s)0 reference.*2 single block.*pass`)
		s.press(ctrlC)
		s.ended(130)
		if dumb && strings.ContainsAny(strings.ReplaceAll(text, "\r\n", ""), "\x1b\r") {
			t.Errorf("a dumb terminal gets %q", text)
		}
		lines := strings.Split(text, "\r\x1b[K")
		if !dumb && len(lines) < 3 {
			t.Errorf("no progress in %q", text)
		}
		for _, line := range lines[1:] {
			if line, _, more := strings.Cut(line, "\n"); !more &&
				terminal.Columns(escapes.ReplaceAllString(line, "")) >= 20 {
				t.Errorf("%q is longer than 20 columns", line)
			}
		}
	}
	t.Setenv("TERM", "dumb")
	s := onTerminal(t, "chat", chatty(t), "--ignore-eos", "-n", "4")
	text := s.see(`> `)
	s.press("Hello\\\nyou\n")
	text += s.see(`(?s)… .*first token.*> `)
	s.press(ctrlD)
	s.see(`^\r\n`)
	s.ended(0)
	if strings.Contains(text, "\x1b") {
		t.Errorf("a dumb terminal gets %q", text)
	}
}

// On a terminal run prints its figures below the answer, and escapes control characters.
func TestRunOnATerminal(t *testing.T) {
	m := chatty(t)
	s := onTerminal(t, "run", m, "Hello", "-n", "60", "--ignore-eos", "--temp", "5", "--seed", "2")
	text := s.see(`load .* first token .* 60 tokens in .* tokens/s, .* each · ended by --max-tokens · seed 2`)
	s.ended(0)
	answer, _, _ := strings.Cut(text, "\x1b[2m")
	for _, c := range strings.ReplaceAll(answer, "\r\n", "\n") {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			t.Errorf("control character %q in %q", c, answer)
		}
	}
	s = onTerminal(t, "run", m, "Hello", "--ignore-eos")
	s.see(`(?s)..........`)
	s.press(ctrlC)
	s.ended(130)
}
