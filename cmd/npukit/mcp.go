package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/mcp"
)

func mcpCommand(a *app) *cobra.Command {
	m := &mcpServer{app: a}
	cmd := &cobra.Command{
		Use:   "mcp [MODEL] --dir W",
		Short: "Let an agent drive a deployment, over the Model Context Protocol",
		Long: `Mcp serves a deployment to agents. Its tools report the state, run the phase that is due,
show gates, diagnose, propose changes to the plan, read reports, and decide after a
phase. No tool sets a verdict: gates do.

Over stdin and stdout there is one client, which starts this command. With --http several
clients use one server on this machine, one at a time; the address is printed.

MODEL, --device, --seq and --golden start a deployment. For an existing workspace they
are known; values that are given must be the same.`,
		Example: `  npukit mcp ./Qwen3-0.6B --dir work --device sim
  npukit mcp --dir work --http 127.0.0.1:7777`,
		Args: arguments("[MODEL]"),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return m.run(ctx, cmd,
				args)
		}),
	}
	m.device.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&m.dir, "dir", "", "workspace folder `W`; created if needed")
	flags.StringVar(&m.http, "http", "", "serve streamable HTTP on the loopback address `ADDR`, such as "+
		"127.0.0.1:7777 (port 0 is any)")
	flags.StringVar(&m.golden, "golden", "", "reference outputs of another implementation in `FILE`, as in deploy")
	flags.Var((*positive)(&m.seq), "seq", "positions of a session, `N`, as in deploy")
	return cmd
}

// mcpServer is one execution of `npukit mcp`.
type mcpServer struct {
	app    *app
	device deviceFlags
	dir    string
	http   string
	golden string
	seq    int
}

func (m *mcpServer) run(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
	if m.dir == "" {
		return usagef("--dir is missing: name the workspace folder")
	}
	if m.http == "" && terminal.Is(m.app.in) {
		return usagef("stdin and stdout are a terminal, but MCP needs an agent there: register the command " +
			"with the agent, or use --http")
	}
	path, err := m.model(cmd, args)
	if err != nil {
		return err
	}
	dev, err := m.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	s, err := mcp.New(path, dev, &skill.Options{Dir: m.dir, SeqLen: m.seq, Golden: m.golden,
		Evaluate: evaluatedBy(m.device, path, m.golden)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if m.http == "" {
		return s.Serve(ctx, m.app.in, m.app.out)
	}
	listening := false
	err = s.ListenAndServe(ctx, m.http, func(addr net.Addr) error {
		listening = true
		_, err := fmt.Fprintf(m.app.out, "http://%s\n", addr)
		return err
	})
	if err != nil && !listening {
		return usageError{err}
	}
	return err
}

// model returns the path of the checkpoint: the argument, or else the one in the workspace's
// journal.
func (m *mcpServer) model(cmd *cobra.Command, args []string) (string, error) {
	recorded, err := takenUp(cmd, m.dir, &m.device.device, &m.seq, &m.golden)
	switch {
	case err != nil:
		return "", err
	case len(args) > 0:
		return findModel(args[0])
	case recorded == "":
		return "", usagef("MODEL is missing: nothing has been deployed in %s yet", m.dir)
	}
	return recorded, nil
}

// takenUp returns the model of the deployment in dir, or "" if there is none. It sets device, seq and
// golden to the recorded values unless a flag sets them.
func takenUp(cmd *cobra.Command, dir string, device *string, seq *int, golden *string) (model string, err error) {
	state, err := skill.ReadState(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case state.Subject == nil:
		return "", nil
	}
	known := state.Subject
	for name, fill := range map[string]func(){
		"device": func() { *device = known.Device },
		"seq":    func() { *seq = known.SeqLen },
		"golden": func() {
			if _, err := os.Stat(known.Golden); err == nil { // if missing, the file has moved along with the model
				*golden = known.Golden
			}
		},
	} {
		if !cmd.Flags().Changed(name) {
			fill()
		}
	}
	return known.Model, nil
}
