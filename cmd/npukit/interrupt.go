package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/npukit/npukit/internal/terminal"
	"github.com/spf13/cobra"
)

// interrupted is the error of work that Ctrl-C or SIGTERM ended.
type interrupted struct{ signal os.Signal }

func (e *interrupted) Error() string { return fmt.Sprintf("ended by %v", e.signal) }

// exitCode returns the shell's exit code for a command that a signal ended: 130 for Ctrl-C.
func (e *interrupted) exitCode() int {
	if n, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}

// grace is how long interrupted work may take to end. Work that observes its context needs less.
// Reading files and tokenizing a long text do not observe it and are abandoned, so that the command
// ends within 100 ms.
const grace = 50 * time.Millisecond

// interruptible runs work with a context that Ctrl-C and SIGTERM cancel. It returns an *interrupted
// if one of them arrives before work ends.
func interruptible(work func(ctx context.Context) error) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	select {
	case err := <-done:
		return err
	case s := <-signals:
		cancel()
		select {
		case err := <-done:
			if err == nil {
				return nil // work ended before it saw the signal
			}
		case <-time.After(grace):
		}
		return &interrupted{s}
	}
}

// progress shows on stderr that work takes long: see [terminal.ShowProgress].
func (a *app) progress(what string) (done func()) { return terminal.ShowProgress(a.err, what) }

// action adapts do to a cobra RunE. The context ends on Ctrl-C and SIGTERM.
func (a *app) action(do func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return interruptible(func(ctx context.Context) error { return do(ctx, cmd, args) })
	}
}
