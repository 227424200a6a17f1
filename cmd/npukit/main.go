// Command npukit runs language models from the command line and shows how they run.
//
//	npukit run SmolLM2-135M-Instruct-Q4_1 "What is the capital of France?"
//	npukit chat ./Qwen3-0.6B
//	npukit info model.gguf
//
// Each subcommand is a function in the file of its name: runCommand in run.go, benchCommand in
// bench.go. Function commands lists them. A subcommand parses flags, calls the library and prints.
//
// Results go to stdout. Messages go to stderr, and progress only if it is a terminal. The exit code
// is 0 on success, 1 on failure or a negative verdict, 2 on wrong usage, and 130 after Ctrl-C.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/skill"
)

func main() {
	skill.Main(openDeviceText, nil)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes the command line args and returns the exit code. Tests call it in place of main.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{in: stdin, out: stdout, err: stderr}
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetIn(stdin)
	help := &firstError{w: stdout}
	root.SetOut(help)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil && help.err != nil {
		a.started, err = true, help.err
	}
	return a.exitCode(cmd, err)
}

// firstError writes the help of package cobra, which ignores write errors.
type firstError struct {
	w   io.Writer
	err error
}

func (f *firstError) Write(p []byte) (int, error) {
	if f.err == nil {
		_, f.err = f.w.Write(p)
	}
	return len(p), nil
}

// app is one execution of the command.
type app struct {
	in       io.Reader
	out, err io.Writer
	started  bool // a subcommand has valid arguments and runs; earlier errors are usage errors
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "npukit",
		Short: "Run language models on this machine",
		Long: `npukit runs language models on this machine.

MODEL is a Hugging Face folder, a folder of the Hugging Face cache (models--org--name), a
.gguf file, or the name of a model in npukit's cache: the folder $NPUKIT_CACHE/models, by
default npukit/models in the user's cache folder (~/.cache on Linux). A wrong name lists
the models in the cache.`,
		Example: `  npukit run SmolLM2-135M-Instruct-Q4_1 "What is the capital of France?"
  npukit chat ./Qwen3-0.6B
  npukit bench model.gguf --pp 512 --tg 64`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if strings.HasPrefix(err.Error(), "unknown shorthand flag") && strings.Contains(cmd.Use, " [") {
			err = fmt.Errorf("%w; write -- before a text that begins with -", err)
		}
		return numberError(err)
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q", strings.Join(args, " "))
			}
			if err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag() // adds --help to the text
			return cmd.Help()
		},
	})
	root.AddCommand(commands(a)...)
	return root
}

// commands returns the subcommands. Each is defined in the file of its name.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		// Generation
		runCommand(a),
		chatCommand(a),
		tokenizeCommand(a),
		templateCommand(a),

		// The model and the machine
		infoCommand(a),
		devicesCommand(a),
		doctorCommand(a),

		// Correctness and speed
		verifyCommand(a),
		benchCommand(a),
		estimateCommand(a),
		planCommand(a),

		// Deployment
		deployCommand(a),
		evaluateCommand(a),
		skillsCommand(a),
		mcpCommand(a),

		versionCommand(a),
	}
}

// arguments returns a check that there is one argument per name. Names in brackets are optional.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		for i, name := range names {
			if i >= len(args) && name[0] != '[' {
				return fmt.Errorf("%s is missing", name)
			}
			if i < len(args) && args[i] == "" && (name == "DIR" || name == "W" || name == "NAME") {
				return fmt.Errorf("%s is empty", name) // "" would mean the current folder
			}
		}
		if len(args) > len(names) {
			hint := ""
			if len(names) > 0 {
				hint = ": quote text of several words"
			}
			return fmt.Errorf("unexpected argument %q%s", args[len(names)], hint)
		}
		return nil
	}
}

// usageError is an error of the command line that a subcommand finds while it runs.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode prints the error of cmd and returns the exit code.
func (a *app) exitCode(cmd *cobra.Command, err error) int {
	err = flagError(err)
	var usage usageError
	var signal *interrupted
	switch {
	case err == nil:
		return 0
	case errors.As(err, &signal):
		return signal.exitCode()
	case errors.Is(err, syscall.EPIPE): // the reader has closed the pipe, as in `npukit ... | head -1`
		return 1
	case !a.started, errors.As(err, &usage):
		fmt.Fprintf(a.err, "%s: %s\nSee '%s --help'.\n", cmd.CommandPath(), terminal.Printable(a.err, err.Error()),
			cmd.CommandPath())
		return 2
	}
	fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), terminal.Printable(a.err, err.Error())) // may quote a file
	return 1
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(),
		RunE: func(*cobra.Command, []string) error {
			a.started = true
			_, err := fmt.Fprintln(a.out, version())
			return err
		},
	}
}

// version returns the version and the platform of the build, from the Go toolchain's build info.
func version() string {
	v, cgo := "devel", "without cgo"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "CGO_ENABLED" && s.Value == "1" {
				cgo = "with cgo"
			}
		}
	}
	return fmt.Sprintf("npukit %s (%s, %s/%s, %s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH, cgo)
}
