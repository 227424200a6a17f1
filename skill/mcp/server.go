package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill"
)

// Server drives one deployment for any number of clients. Its methods may be called concurrently.
type Server struct {
	dir    string
	mcp    *sdk.Server
	ctx    context.Context // ends when the server is closed
	cancel context.CancelFunc

	work     sync.Mutex // held by the call that works on the deployment; guards the fields below
	d        *skill.Deployment
	watch    func(skill.Event) // of that call
	answer   string            // to the next question, "" for none
	evaluate bool              // whether there is an evaluator

	mu      sync.Mutex
	working string // the call that works, for other calls
	since   time.Time
}

// New opens the deployment of a checkpoint on a device, as [skill.NewDeployment] does, and returns
// a server for it. It replaces the options Approve, Ask and Observe: clients approve with a tool,
// questions are results, and events are progress. The device must outlive the server, which must be
// closed.
func New(path string, dev npu.Device, opts *skill.Options) (*Server, error) {
	o := skill.Options{}
	if opts != nil {
		o = *opts
	}
	s := &Server{dir: o.Dir, evaluate: o.Evaluate != nil}
	o.Approve = nil
	o.Ask = s.ask
	o.Observe = func(e skill.Event) {
		if s.watch != nil {
			s.watch(e)
		}
	}
	var err error
	if s.d, err = skill.NewDeployment(path, dev, &o); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mcp = sdk.NewServer(&sdk.Implementation{Name: "npukit", Title: "npukit deployment", Version: "1"},
		&sdk.ServerOptions{
			Instructions: instructions,
			Capabilities: &sdk.ServerCapabilities{},
		})
	s.addTools()
	s.addSkills()
	return s, nil
}

// instructions are for a client's model.
const instructions = "This server brings up a language model on an NPU, in eight phases that end with numeric gates. " +
	"Call state first: it returns the next phase and the calls that are possible. Nothing that you claim passes a " +
	"phase; only its gates do, on real data. If a phase fails, call diagnose and read the reports before you change " +
	"anything. The resources skill:// are instructions for each phase and each kind of failure: read the one that " +
	"state names before you run its phase."

// Close cancels calls that work and closes the deployment. It can be called again.
func (s *Server) Close() error {
	s.cancel()
	for session := range s.mcp.Sessions() {
		session.Close() // an error means that it was closed already
	}
	s.work.Lock()
	defer s.work.Unlock()
	return s.d.Close()
}

// ask answers a question of a phase with the answer of the call that runs it, once.
func (s *Server) ask(context.Context, skill.Question) (skill.Choice, error) {
	direction := s.answer
	s.answer = ""
	if direction == "" {
		return skill.Choice{Direction: "stop", Note: "nobody was there to answer; the question is in the result"}, nil
	}
	return skill.Choice{Direction: direction, Note: "over MCP"}, nil
}

// errClosed is returned by calls after Close.
var errClosed = errors.New("mcp: the server is being closed")

// do runs run on the deployment. It returns an error if another call works on it.
func (s *Server) do(ctx context.Context, call string, watch func(skill.Event),
	run func(ctx context.Context) error) error {
	if !s.work.TryLock() {
		if call, seconds := s.busy(); call != "" {
			return fmt.Errorf("mcp: busy: %s has been working for %.0f s; call state for its progress, and try "+
				"again later", call, seconds)
		}
		return errors.New("mcp: busy: try again")
	}
	defer s.work.Unlock()
	if s.ctx.Err() != nil {
		return errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.setWorking(call)
	defer s.setWorking("")
	s.watch = watch
	defer func() { s.watch, s.answer = nil, "" }()
	return run(ctx)
}

func (s *Server) setWorking(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working, s.since = call, time.Now()
}

// busy returns the call that works, or "", and for how many seconds.
func (s *Server) busy() (call string, seconds float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working == "" {
		return "", 0
	}
	return s.working, time.Since(s.since).Seconds()
}
