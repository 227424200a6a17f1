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

// Server drives one deployment for any number of clients. Its methods may be called at the same time.
type Server struct {
	dir    string
	mcp    *sdk.Server
	ctx    context.Context // ends when the server is closed
	cancel context.CancelFunc

	work     sync.Mutex // held by the call that works on the deployment; it guards the fields below
	d        *skill.Deployment
	watch    func(skill.Event) // of the call that works
	answer   string            // to the next question, "" for none
	evaluate bool              // there is an evaluator

	mu      sync.Mutex
	working string // the call that works, for others to read
	since   time.Time
}

// New opens the deployment of a checkpoint on a device, as [skill.NewDeployment] does, and a server over it. The server has Options.Ask and Observe for itself:
// questions become results, events become progress. Options.Approve is not asked, the tool of that name is. The device must outlive the server, which must be closed.
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
	s.mcp = sdk.NewServer(&sdk.Implementation{Name: "npukit", Title: "npukit deployment", Version: "1"}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{},
	})
	s.addTools()
	s.addSkills()
	return s, nil
}

// instructions are what a client's model reads first.
const instructions = `This server brings a language model onto an NPU, in eight phases that numeric gates end. nextCall state first: it says which phase is due and which calls are possible
next. Nothing you say passes a phase; its gates do, on real data. When a phase fails, call diagnose and read the reports before you change anything. The resources named skill://
are instructions for each phase and each kind of failure: read the one that state names before you run its phase.`

// Close ends calls that work, and gives up the workspace. Closing again does nothing.
func (s *Server) Close() error {
	s.cancel()
	for session := range s.mcp.Sessions() {
		session.Close() // an error says that it was closed already
	}
	s.work.Lock()
	defer s.work.Unlock()
	return s.d.Close()
}

// ask answers a question that a phase puts, with what the call that runs it has brought along, once.
func (s *Server) ask(context.Context, skill.Question) (skill.Choice, error) {
	direction := s.answer
	s.answer = ""
	if direction == "" {
		return skill.Choice{Direction: "stop", Note: "nobody was there to answer; the question is in the result"}, nil
	}
	return skill.Choice{Direction: direction, Note: "over MCP"}, nil
}

// errClosed is what calls get that come too late.
var errClosed = errors.New("mcp: the server is being closed")

// work does something to the deployment, when nobody else does.
func (s *Server) do(ctx context.Context, call string, watch func(skill.Event), run func(ctx context.Context) error) error {
	if !s.work.TryLock() {
		if call, seconds := s.busy(); call != "" {
			return fmt.Errorf("mcp: busy: %s has been working for %.0f s; call state to see how far it is, and try again later", call, seconds)
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

// busy is the call that works, or "", and for how many seconds.
func (s *Server) busy() (call string, seconds float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.working == "" {
		return "", 0
	}
	return s.working, time.Since(s.since).Seconds()
}
