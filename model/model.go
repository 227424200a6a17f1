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

// Errors that a program may want to tell apart, for errors.Is.
var (
	ErrNoTokenizer = errors.New("model: the checkpoint has no usable tokenizer")
	ErrNoTemplate  = errors.New("model: the checkpoint has no usable chat template")
	ErrClosed      = errors.New("model: used after Close")
	ErrBusy        = errors.New("model: the session is generating already; use a session for each conversation")
)

// OptionError is an option or argument that a caller must change: see [plan.OptionError].
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
	tok      tokenizer.Coder
	tokErr   error // why there is no tokenizer
	template *chat.Template
	tmplErr  error // why there is no template
	endList  []EndToken
	ends     map[int32]bool // their ids
	context  int            // positions of a session
	prefixes *prefixes

	closing  sync.Once
	closeErr error
}

// OpenOptions are choices made when a model is opened. The zero value of a field means its default.
type OpenOptions struct {
	Plan        *plan.Plan    // default: made by NewPlan; one that has failed its evaluation is ErrFailed
	FailedPlan  bool          // open such a plan all the same: to evaluate it again, or to find out what is wrong
	PlanOptions *plan.Options // for NewPlan; must be nil where there is a Plan, which has made these choices

	// Tap sees the output of every launch, after each dispatch. Programs are then loaded in their debug form and dispatched one at a time; the logits are the same.
	Tap Tap

	// PrefixBytes bounds the memory of closed sessions' caches that the model keeps for sessions that begin alike; nil means 128 MiB. A new session whose
	// prompt begins like what another one has computed, be it open or kept, takes a copy of these keys and values in place of computing them. 0 keeps nothing and takes
	// nothing from open sessions either.
	PrefixBytes *int

	// MaxContext bounds the positions of a session. By default it is the context that the checkpoint
	// declares, at most [DefaultMaxContext], or what a Plan or PlanOptions.SeqLen says.
	MaxContext int

	// ReadWeights reads the checkpoint's weights into memory instead of mapping their files, for
	// programs that must survive a file that is truncated while the model is open: with a mapping
	// that ends the process with SIGBUS. Opening takes as long as reading the files, and they stay
	// in memory until Close, in addition to the copies that the device makes of weights that it
	// does not read in place (see cpu.Options.InPlace).
	ReadWeights bool

	// ChatTemplate is the source of a chat template that takes the place of those of the checkpoint;
	// empty means the checkpoint's. One that cannot be parsed is an error of Open.
	ChatTemplate string
}

// defaultPrefixBytes is 128 MiB: 4096 positions of a model of Llama-3.2-1B's shape, 5800 of SmolLM2-135M.
const defaultPrefixBytes = 128 << 20

// Open opens a checkpoint and loads it on the device: a Hugging Face folder, a folder of the Hugging Face
// cache or a GGUF file, see [checkpoint.Open]. The device must outlive the model.
//
// A checkpoint without a tokenizer or without a chat template opens: it takes and gives ids; what needs text returns [ErrNoTokenizer] or
// [ErrNoTemplate] with the reason. Opening obeys ctx while weights are brought to the device, not while files are read and checked.
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
	ck, err := checkpoint.OpenWith(path, &checkpoint.OpenOptions{ReadWeights: opts.ReadWeights})
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
		if p, err = plan.New(ck, dev.Info(), opts.planOptions(ck.Config())); err != nil {
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
	if opts.Tap != nil || p.Prefill[0].Rows > 0 { // a tap sees every row being computed; for programs of fixed rows see prefixes
		bytes = 0
	}
	m.prefixes = &prefixes{limit: bytes, open: map[*sequence]bool{}}
	if m.template = template; template == nil {
		m.template, m.tmplErr = OpenTemplate(ck)
	}
	m.tok, m.tokErr = OpenTokenizer(ck) // last: one of Hugging Face's library has memory to be freed, and from here on Close does
	m.endList = EndTokens(ck, m.tok)
	for _, e := range m.endList {
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
		return badOption("OpenOptions.PlanOptions", "set", "nil next to a Plan, which has made these choices")
	}
	return nil
}

// planOptions are the options for NewPlan, with MaxContext in them.
func (o *OpenOptions) planOptions(c *checkpoint.Config) *plan.Options {
	var p plan.Options
	if o.PlanOptions != nil {
		p = *o.PlanOptions
	}
	if o.MaxContext > 0 && p.SeqLen == 0 {
		p.MaxSeqLen = o.MaxContext
	}
	return &p
}

// Close frees the model, after a running pass has ended. Sessions that are still open return an error from then on,
// [ErrClosed] as long as the device is open. Closing again does nothing.
func (m *Model) Close() error {
	m.closing.Do(func() {
		m.closeErr = errors.Join(m.exec.Close(), m.prefixes.close(), m.ck.Close())
		if c, ok := m.tok.(io.Closer); ok {
			m.closeErr = errors.Join(m.closeErr, c.Close())
		}
	})
	return m.closeErr
}

// Checkpoint is the opened checkpoint.
func (m *Model) Checkpoint() *checkpoint.Checkpoint { return m.ck }

// Plan is how the model runs on its device.
func (m *Model) Plan() *plan.Plan { return m.plan }

// Context is the largest number of positions of a session: see [OpenOptions].MaxContext.
func (m *Model) Context() int { return m.context }

// Tokenizer is the checkpoint's tokenizer, or the reason why there is none.
func (m *Model) Tokenizer() (tokenizer.Coder, error) { return m.tok, m.tokErr }

// Template is the chat template, that of [OpenOptions] or the checkpoint's, or the reason why there is
// none.
func (m *Model) Template() (*chat.Template, error) { return m.template, m.tmplErr }

// OpenTokenizer opens the tokenizer beside or inside a checkpoint, for programs that need no more of a model. The error is [ErrNoTokenizer] with
// the reason.
func OpenTokenizer(ck *checkpoint.Checkpoint) (t tokenizer.Coder, err error) {
	if path, ok := ck.TokenizerFile(); ok {
		t, err = tokenizer.OpenFolder(filepath.Dir(path))
	} else if v, ok := ck.Vocab(); ok {
		t, err = tokenizer.FromVocab(tokenizer.Vocab(v))
	} else {
		err = fmt.Errorf("there is no tokenizer.json beside %s; give token ids, or put the file there", ck.Path())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTokenizer, err)
	}
	return t, nil
}

// OpenTemplate parses a checkpoint's chat templates. The error is [ErrNoTemplate] with the reason.
func OpenTemplate(ck *checkpoint.Checkpoint) (*chat.Template, error) {
	sources := ck.ChatTemplates()
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: %s holds none; use a plain prompt (in the command: run --raw), or give one "+
			"(--chat-template)",
			ErrNoTemplate, ck.Path())
	}
	t, err := chat.ParseNamed(sources)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTemplate, err)
	}
	return t, nil
}
