package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/skill"
)

// deployProgress shows a deployment on a terminal: a line for each phase and each gate that
// matters, and below them the current step. If stderr is not a terminal, it prints nothing.
type deployProgress struct {
	w       io.Writer
	on      bool
	started time.Time

	lines sync.Mutex  // serializes events; none is printed after the last line
	over  atomic.Bool // the last line has been printed

	mu    sync.Mutex
	doing string
	since time.Time
	stop  chan struct{} // closed to end the status line; nil if there is none
	ended chan struct{}
}

func newDeployProgress(w io.Writer) *deployProgress {
	return &deployProgress{w: w, on: terminal.Is(w), started: time.Now()}
}

// event handles an event of the deployment.
func (p *deployProgress) event(e skill.Event) {
	p.lines.Lock()
	defer p.lines.Unlock()
	if !p.on || p.over.Load() {
		return
	}
	place := ""
	if e.Total > 0 {
		place = fmt.Sprintf(" [%d of %d]", e.Done+1, e.Total)
	}
	switch e.What {
	case "phase":
		p.line("", terminal.Styled(p.w, terminal.Bold, e.Phase.Title())+"  ", e.Text)
	case "note":
		p.line("  "+e.Text, "", "")
	case "step":
		p.step(e.Text + place)
	case "gate":
		if !e.Gate.OK {
			p.line("  FAIL "+e.Gate.Name+": "+e.Text, "", "")
		} else if !e.Gate.OfKernel() { // kernel gates come by the dozen
			p.line("  pass "+e.Gate.Name, "", "  "+shortened(e.Text))
		}
	case "attempt", "skill":
		p.line("  "+e.Text, "", "")
	case "finish":
		p.line("  "+e.Text, "", "  "+output.Seconds(time.Since(p.started))+" so far")
	}
}

// line prints a permanent line: plain text, styled text, and dimmed details.
func (p *deployProgress) line(text, ready, less string) {
	p.clear()
	if less = terminal.Printable(p.w, less); less != "" {
		less = terminal.Styled(p.w, terminal.Dim, less)
	}
	fmt.Fprintln(p.w, terminal.Printable(p.w, text)+ready+less)
}

// longestLine is the maximum width of a gate's figures. The report has the full text.
const longestLine = 160

func shortened(text string) string {
	if r := []rune(text); len(r) > longestLine {
		return string(r[:longestLine-1]) + "…"
	}
	return text
}

// step shows the current step with its elapsed seconds.
func (p *deployProgress) step(text string) {
	if !p.on || terminal.IsDumb() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over.Load() {
		return
	}
	p.doing, p.since = text, time.Now()
	if p.stop != nil {
		return
	}
	p.stop, p.ended = make(chan struct{}), make(chan struct{})
	go p.tick(p.stop, p.ended)
}

func (p *deployProgress) tick(stop, ended chan struct{}) {
	defer close(ended)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			terminal.WipeStatus(p.w)
			return
		case <-tick.C:
			p.mu.Lock()
			text, took := p.doing, time.Since(p.since)
			p.mu.Unlock()
			terminal.ShowStatus(p.w, "  "+text, took)
		}
	}
}

// last prints a line after which nothing else is shown.
func (p *deployProgress) last(text string) {
	p.lines.Lock()
	defer p.lines.Unlock()
	p.over.Store(true)
	p.clear()
	if p.on {
		fmt.Fprintln(p.w, text)
	}
}

// clear ends the status line and erases it. Calling it again does nothing.
func (p *deployProgress) clear() {
	p.mu.Lock()
	stop, ended := p.stop, p.ended
	p.stop = nil
	p.mu.Unlock()
	if stop != nil {
		close(stop)
		<-ended
	}
}

// approve asks the user at the end of a phase. The end of the input stops the deployment.
func (d *deployer) approve(ctx context.Context, r skill.PhaseReport) (skill.Decision, error) {
	d.live.clear()
	for {
		answer, err := d.question(ctx, fmt.Sprintf("phase %s has passed. Enter goes on, a number goes back to that "+
			"phase, s stops: ", r.Phase.Title()))
		if err != nil && err != io.EOF {
			return skill.Decision{}, err
		}
		switch n, notNumber := strconv.Atoi(answer); {
		case answer == "s" || err == io.EOF:
			return skill.Decision{Action: skill.Stop}, nil
		case answer == "" || answer == "y":
			return skill.Decision{Action: skill.Approve}, nil
		case notNumber == nil && n >= 0 && n <= int(r.Phase):
			return skill.Decision{Action: skill.Redirect, Phase: skill.Phase(n)}, nil
		case r.Phase == 0:
			d.again("%q is not one of Enter, 0 and s", answer)
		default:
			d.again("%q is not Enter, a number from 0 to %d, or s", answer, int(r.Phase))
		}
	}
}

// ask asks the user to choose how to handle a failure.
func (d *deployer) ask(ctx context.Context, q skill.Question) (skill.Choice, error) {
	d.live.clear()
	w := d.app.err
	fmt.Fprintf(w, "\n%s\n", terminal.Printable(w, q.Symptom.String()))
	for i, dir := range q.Directions {
		fmt.Fprintf(w, "  %d  %s: %s\n", i+1, dir.Name, dir.What)
	}
	for {
		answer, err := d.question(ctx, "which way? ")
		if err == io.EOF {
			return skill.Choice{Direction: "stop"}, nil
		}
		if err != nil {
			return skill.Choice{}, err
		}
		if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(q.Directions) {
			return skill.Choice{Direction: q.Directions[n-1].Name}, nil
		}
		for _, dir := range q.Directions {
			if answer == strings.ToLower(dir.Name) {
				return skill.Choice{Direction: dir.Name}, nil
			}
		}
		d.again("%q is not a number from 1 to %d", answer, len(q.Directions))
	}
}

// again prints why a question is repeated.
func (d *deployer) again(format string, args ...any) {
	fmt.Fprintf(d.app.err, format+"\n", args...)
}

// question reads one answer. It returns an error if ctx ends, and io.EOF at the end of the input
// (Ctrl-D).
func (d *deployer) question(ctx context.Context, text string) (string, error) {
	fmt.Fprint(d.app.err, text)
	type line struct {
		text string
		err  error
	}
	got := make(chan line, 1)
	go func() {
		s, err := d.in.ReadString('\n')
		got <- line{s, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case l := <-got:
		if l.err != nil {
			fmt.Fprintln(d.app.err)
		}
		return strings.ToLower(strings.TrimSpace(l.text)), l.err
	}
}
