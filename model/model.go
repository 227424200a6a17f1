package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/model/tokenizer"
	"github.com/npukit/npukit/npu"
)

// Errors to test for with errors.Is.
var (
	ErrNoTokenizer = errors.New("model: the checkpoint has no usable tokenizer")
	ErrNoTemplate  = errors.New("model: the checkpoint has no usable chat template")
	ErrClosed      = errors.New("model: used after Close")
	ErrBusy        = errors.New("model: the session is busy: use one session per conversation")
)

// OptionError reports an option or argument that the caller must change.
type OptionError = plan.OptionError

func badOption(field string, value any, want string) error {
	return &OptionError{Field: field, Value: value, Want: want}
}

// Model is a checkpoint on a device. Its methods are safe for concurrent use.
type Model struct {
	ck       *checkpoint.Checkpoint
	dev      npu.Device
	plan     *plan.Plan
	exec     *executor
	tok      tokenizer.Tokenizer
	tokErr   error // why there is no tokenizer
	template *chat.Template
	tmplErr  error          // why there is no template
	ends     map[int32]bool // their ids
	context  int            // most positions of a session
	prefixes *prefixes

	closing  sync.Once
	closeErr error
}

// OpenOptions are the options of [Open]. The zero value of a field is its default.
type OpenOptions struct {
	Plan        *plan.Plan    // default: made by plan.New; a failed plan is plan.ErrFailed
	FailedPlan  bool          // open a failed plan, for example to evaluate it again
	PlanOptions *plan.Options // for plan.New; must be nil if Plan is set

	// Tap, if not nil, receives the output of every launch after each dispatch. Programs are then
	// loaded in their debug form and dispatched one at a time. The logits do not change.
	Tap Tap

	// PrefixBytes bounds the memory of the prefix cache, which has the KV caches of closed
	// sessions; nil means 128 MiB. If a prompt starts like one of another session, open or cached,
	// a new session copies the keys and values of the common prefix instead of computing them. If
	// PrefixBytes is 0, nothing is cached and nothing is copied from open sessions either.
	PrefixBytes *int

	// MaxContext bounds the positions of a session. The default is the context that the checkpoint
	// declares, at most [plan.DefaultMaxContext], or that of Plan or PlanOptions.SeqLen if set.
	MaxContext int

	// ReadWeights reads the checkpoint's weights into memory instead of mapping their files. Use it
	// if the process must survive a file that is truncated while the model is open: with a mapping,
	// that ends the process with SIGBUS. Open then takes as long as reading the files. The weights
	// stay in memory until Close, in addition to the device's copies of weights that it does not
	// use in place (see cpu.Options.InPlace).
	ReadWeights bool

	// ChatTemplate is the source of a chat template to use instead of the checkpoint's. If it is
	// empty, the checkpoint's is used. If it cannot be parsed, Open returns an error.
	ChatTemplate string
}

// defaultPrefixBytes holds 4096 positions of a model of Llama-3.2-1B's shape, or 5800 of
// SmolLM2-135M.
const defaultPrefixBytes = 128 << 20

// Open opens a checkpoint and loads it on the device. The path is a Hugging Face folder, a folder
// of the Hugging Face cache or a GGUF file: see [checkpoint.Open]. The device must outlive the
// model.
//
// A checkpoint without a tokenizer or chat template can be opened. Calls that need text then return
// [ErrNoTokenizer] or [ErrNoTemplate] with the reason. If ctx is cancelled, Open stops while it
// copies weights to the device, but not while it reads and checks files.
func Open(ctx context.Context, dev npu.Device, path string, opts *OpenOptions) (m *Model, err error) {
	if opts == nil {
		opts = &OpenOptions{}
	}
	if err := opts.validate(dev); err != nil {
		return nil, err
	}
	var template *chat.Template
	if opts.ChatTemplate != "" {
		if template, err = chat.Parse(opts.ChatTemplate); err != nil {
			return nil, fmt.Errorf("model: OpenOptions.ChatTemplate: %w", err)
		}
	}
	ck, err := checkpoint.Open(path, &checkpoint.OpenOptions{ReadWeights: opts.ReadWeights})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ck.Close())
		}
	}()
	p := opts.Plan
	if p == nil {
		if p, err = plan.New(ck, dev.Info(), opts.planOptions()); err != nil {
			return nil, err
		}
	} else if err = p.Check(ck.Config(), dev.Info()); err != nil {
		return nil, err
	}
	if p.Status == plan.Failed && !opts.FailedPlan {
		return nil, plan.ErrFailed
	}
	m = &Model{ck: ck, dev: dev, plan: p, context: p.SeqLen, ends: map[int32]bool{}}
	if opts.MaxContext > 0 {
		m.context = min(m.context, opts.MaxContext)
	}
	if m.exec, err = newExecutor(ctx, dev, ck, p, opts.Tap); err != nil {
		return nil, err
	}
	bytes := defaultPrefixBytes
	if opts.PrefixBytes != nil {
		bytes = *opts.PrefixBytes
	}
	// A tap must see every row computed. With fixed rows there is no reuse: see prefixes.
	if opts.Tap != nil || p.Prefill[0].Rows > 0 {
		bytes = 0
	}
	m.prefixes = &prefixes{limit: bytes, open: map[*sequence]bool{}}
	if m.template = template; template == nil {
		m.template, m.tmplErr = OpenTemplate(ck)
	}
	// The tokenizer comes last: only Close frees the memory of one of Hugging Face's library.
	m.tok, m.tokErr = OpenTokenizer(ck)
	for _, e := range EndTokens(ck, m.tok) {
		m.ends[e.ID] = true
	}
	return m, nil
}

func (o *OpenOptions) validate(dev npu.Device) error {
	if dev == nil {
		return badOption("dev", nil, "a device")
	}
	if n := o.PrefixBytes; n != nil && *n < 0 {
		return badOption("OpenOptions.PrefixBytes", *n, "0 (keep no caches of closed sessions) or more")
	}
	if o.MaxContext < 0 {
		return badOption("OpenOptions.MaxContext", o.MaxContext, "0 (the default) or more")
	}
	if o.Plan != nil && o.PlanOptions != nil {
		return badOption("OpenOptions.PlanOptions", "set",
			"nil next to a Plan, which has made these choices")
	}
	return nil
}

// planOptions returns the options of plan.New. The smaller of MaxContext and PlanOptions.MaxSeqLen
// counts.
func (o *OpenOptions) planOptions() *plan.Options {
	var p plan.Options
	if o.PlanOptions != nil {
		p = *o.PlanOptions
	}
	if o.MaxContext > 0 && (p.MaxSeqLen == 0 || o.MaxContext < p.MaxSeqLen) {
		p.MaxSeqLen = o.MaxContext
	}
	return &p
}

// Close waits for a running pass and frees the model. Open sessions return an error from then on:
// [ErrClosed], unless the device is closed as well. Closing again does nothing.
func (m *Model) Close() error {
	m.closing.Do(func() {
		m.closeErr = errors.Join(m.exec.Close(), m.prefixes.close(), m.ck.Close())
		if c, ok := m.tok.(io.Closer); ok {
			m.closeErr = errors.Join(m.closeErr, c.Close())
		}
	})
	return m.closeErr
}

// Checkpoint returns the opened checkpoint.
func (m *Model) Checkpoint() *checkpoint.Checkpoint { return m.ck }

// Plan returns the plan that the model runs.
func (m *Model) Plan() *plan.Plan { return m.plan }

// Context returns the largest number of positions of a session: see [OpenOptions].MaxContext.
func (m *Model) Context() int { return m.context }

// Tokenizer returns the checkpoint's tokenizer, or an error that wraps [ErrNoTokenizer].
func (m *Model) Tokenizer() (tokenizer.Tokenizer, error) { return m.tok, m.tokErr }

// Template returns the chat template of [OpenOptions] or of the checkpoint, or an error that wraps
// [ErrNoTemplate].
func (m *Model) Template() (*chat.Template, error) { return m.template, m.tmplErr }

// OpenTokenizer opens the tokenizer of a checkpoint, for programs that need no more of a model. If
// there is none, the error wraps [ErrNoTokenizer].
func OpenTokenizer(ck *checkpoint.Checkpoint) (t tokenizer.Tokenizer, err error) {
	if file := ck.Text().TokenizerFile; file != "" {
		t, err = tokenizer.OpenFolder(filepath.Dir(file))
	} else if v := ck.Text().Vocab; v != nil {
		t, err = tokenizer.FromVocab(tokenizer.Vocab(*v))
	} else {
		err = fmt.Errorf("no tokenizer.json next to %s: give token ids, or add the file", ck.Path())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTokenizer, err)
	}
	return t, nil
}

// OpenTemplate parses a checkpoint's chat templates. If there is none, the error wraps
// [ErrNoTemplate].
func OpenTemplate(ck *checkpoint.Checkpoint) (*chat.Template, error) {
	sources := ck.Text().Templates
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: %s has none: use a plain prompt (npukit run --raw), or give one (--chat-template)",
			ErrNoTemplate, ck.Path())
	}
	t, err := chat.ParseNamed(sources)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTemplate, err)
	}
	return t, nil
}
