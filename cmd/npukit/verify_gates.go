package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/verifytext"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/oracle"
)

// verifyTokens is the number of tokens that the greedy gate generates, as in the verification of
// the paper's published code.
const verifyTokens = 32

// verifyPrompt is a prompt to continue.
type verifyPrompt struct {
	name   string
	ids    []int32
	greedy []int32 // the reference's continuation, if stored
}

// add appends a gate's report to the result.
func (v *verifier) add(name, of, against string, r verifyReport) {
	v.result.Gates = append(v.result.Gates, verifyGate{Name: name, Of: of, Against: against, OK: r.OK(), Report: r,
		line: figuresOf(r)})
}

// baseFormat returns the format without the suffix for quantized weights: "cpu-bf16" for
// "cpu-bf16-expanded".
func baseFormat(format string) string {
	return strings.TrimSuffix(strings.TrimSuffix(format, "-expanded"), "-blocks")
}

// againstOracle runs the gates without a golden file.
func (v *verifier) againstOracle(ctx context.Context, m *model.Model, s *model.Session) error {
	ids, prompts, err := v.material(ctx, m)
	if err != nil {
		return err
	}
	v.ids, v.shown = ids, prompts
	ref := &tail{Scorer: v.ref.NewState()}
	if err := v.teacher(ctx, "text", s, ref, ids); err != nil {
		return err
	}
	if err := v.prompt(ctx, s, ref); err != nil {
		return err
	}
	for _, p := range prompts {
		done := v.app.progress("greedy: " + p.name)
		r, err := gate.Greedy(ctx, s, v.ref.NewState(), p.ids, min(verifyTokens, m.Context()-len(p.ids)), 0)
		done()
		if err != nil {
			return err
		}
		r.Name = p.name
		v.add("greedy: "+p.name, "device", "oracle", r)
	}
	return v.determinism(ctx, s, ids)
}

// teacher compares the device's logits over ids with the oracle's (teacher forcing).
func (v *verifier) teacher(ctx context.Context, name string, s gate.Scorer, ref gate.Scorer, ids []int32) error {
	done := v.app.progress(fmt.Sprintf("logits of %s, device and oracle", output.Count(len(ids), "position")))
	r, err := gate.Teacher(ctx, s, ref, ids, v.tol)
	done()
	if err != nil {
		return err
	}
	r.Name = name
	v.add("logits: "+name, "device", "oracle", r)
	return nil
}

// determinism runs two prompts made from ids in turn. The second is shorter and differs from its
// first id on, so stale data of the first would be in positions that the second reads.
func (v *verifier) determinism(ctx context.Context, s *model.Session, ids []int32) error {
	a := ids[:min(len(ids), 70)]
	b := slices.Clone(a[:(len(a)+1)/2])
	slices.Reverse(b)
	if b[0] == a[0] {
		b[0] = (a[0] + 1) % int32(v.ref.Config().Vocab)
	}
	done := v.app.progress("determinism")
	r, err := gate.Determinism(ctx, s, a, b)
	done()
	if err != nil {
		return err
	}
	v.add("determinism", "device", "itself", r)
	return nil
}

// material returns the ids and prompts to use without a golden file.
func (v *verifier) material(ctx context.Context, m *model.Model) ([]int32, []verifyPrompt, error) {
	room := min(v.positions, m.Context()-1)
	if room < 2 {
		return nil, nil, fmt.Errorf("a context of %d positions is too short to verify", m.Context())
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return v.seeded(ctx, min(room, 96))
	}
	v.result.IDs = "a text that the command holds, through the model's tokenizer"
	ids, err := tok.Encode(verifytext.Text, nil) // at most the context's length is used
	if err != nil {
		return nil, nil, err
	}
	var prompts []verifyPrompt
	for _, text := range verifytext.Prompts {
		p, err := tok.Encode(text, nil)
		if err != nil {
			return nil, nil, err
		}
		if len(p)+2 < m.Context() {
			prompts = append(prompts, verifyPrompt{name: fmt.Sprintf("%q", text), ids: p})
		}
	}
	return ids[:min(len(ids), room)], prompts, nil
}

// seeded returns ids for a model without a tokenizer: a few random ones that the oracle continues
// by sampling from its own distribution, so that the model finds the text likely.
func (v *verifier) seeded(ctx context.Context, n int) ([]int32, []verifyPrompt, error) {
	const begin = 16
	v.result.IDs = fmt.Sprintf("%d random ones that the oracle continues (the model has no tokenizer)", min(begin, n))
	rng := rand.New(rand.NewPCG(1, 2)) // fixed seed
	ids := make([]int32, min(begin, n))
	for i := range ids {
		ids[i] = rng.Int32N(int32(v.ref.Config().Vocab))
	}
	done := v.app.progress(fmt.Sprintf("the oracle writes %s", output.Count(n, "token")))
	defer done()
	st := v.ref.NewState()
	var logits []float32
	err := st.Score(ctx, ids, func(_ int, row []float32) error { logits = row; return nil })
	for err == nil && len(ids) < n {
		ids = append(ids, draw(rng, logits))
		logits, err = st.Step(ctx, ids[len(ids)-1])
	}
	if err != nil {
		return nil, nil, err
	}
	var prompts []verifyPrompt
	for _, k := range []int{begin / 2, begin, n / 2} {
		if k = min(k, n); k > 0 {
			prompts = append(prompts, verifyPrompt{name: fmt.Sprintf("the first %s", output.Count(k, "id")),
				ids: ids[:k]})
		}
	}
	return ids, prompts, nil
}

// draw samples from softmax(logits) with the Gumbel trick: the argmax of logits plus Gumbel noise
// has that distribution.
func draw(rng *rand.Rand, logits []float32) int32 {
	best, at := 0.0, -1
	for i, v := range logits {
		if g := float64(v) + gumbel(rng); at < 0 || g > best {
			best, at = g, i
		}
	}
	return int32(at)
}

// fits returns an error if the golden file cannot belong to this model.
func (v *verifier) fits(m *model.Model) error {
	vocab := m.Checkpoint().Config().Vocab
	for _, q := range v.file.Sequences {
		if n := q.Vocab(); n != 0 && n != vocab {
			return fmt.Errorf("%s has logits of a vocabulary of %d, the model's is %d: it was made for another model",
				v.golden, n, vocab)
		}
		if n := slices.Max(q.IDs); int(n) >= vocab {
			return fmt.Errorf("%s has id %d, the model's vocabulary is %d: it was made for another model", v.golden, n,
				vocab)
		}
	}
	return nil
}

// firstIDs returns the first n ids of a sequence with their outputs. A shorter sequence is returned
// whole; otherwise the greedy continuation is dropped.
func firstIDs(s golden.Sequence, n int) golden.Sequence {
	if n >= len(s.IDs) {
		return s
	}
	n = max(0, n)
	cut := golden.Sequence{
		Name: s.Name, Place: s.Place, IDs: s.IDs[:n], Logits: s.Logits[:n*s.Vocab()],
		Top: s.Top[:min(n, len(s.Top))], NLL: s.NLL[:min(max(0, n-1), len(s.NLL))],
	}
	if len(s.Hidden) > 0 {
		cut.Hidden = map[string][]float32{}
		for tap, h := range s.Hidden {
			cut.Hidden[tap] = h[:n*(len(h)/len(s.IDs))]
		}
	}
	return cut
}

// againstGolden compares both the device and the oracle with each sequence of the golden file.
func (v *verifier) againstGolden(ctx context.Context, m *model.Model, s *model.Session) error {
	var longest tail
	for _, q := range v.file.Sequences {
		whole := q
		q = firstIDs(q, min(v.positions, m.Context()))
		if len(q.IDs) > len(v.ids) {
			v.ids = q.IDs
		}
		ref := tail{Scorer: v.ref.NewState()}
		if err := v.stored(ctx, "oracle", &ref, q, golden.OracleThresholds(&q)); err != nil {
			return err
		}
		if len(ref.prompt) > len(longest.prompt) {
			longest = ref
		}
		if err := v.stored(ctx, "device", s, q, v.tol); err != nil {
			return err
		}
		if len(whole.Greedy) == 0 {
			continue
		}
		n := min(len(whole.Greedy), verifyTokens, m.Context()-len(whole.IDs))
		if n < 1 {
			v.result.NotRun = append(v.result.NotRun,
				fmt.Sprintf("greedy: %s: its %d ids do not fit in a context of %d", q.Name, len(whole.IDs),
					m.Context()))
			continue
		}
		done := v.app.progress("greedy: " + q.Name)
		r, err := gate.GreedyTokens(ctx, s, whole.IDs, whole.Greedy[:n], 0)
		done()
		if err != nil {
			return err
		}
		r.Name = q.Name
		v.add("greedy: "+q.Name, "device", "golden", r)
		v.shown = append(v.shown, verifyPrompt{q.Name, whole.IDs, whole.Greedy})
	}
	if !slices.ContainsFunc(v.file.Sequences, func(q golden.Sequence) bool { return q.Logits != nil }) &&
		len(v.ids) > 1 {
		// Stored likelihoods are a small part of a distribution. The oracle, which has just been
		// compared with them, has all of it.
		if err := v.teacher(ctx, "the same ids", s, v.ref.NewState(), v.ids); err != nil {
			return err
		}
	}
	if err := v.prompt(ctx, s, &longest); err != nil {
		return err
	}
	return v.determinism(ctx, s, v.ids)
}

// damaged adds the usual cause to an error of the gates: weights with NaN or Inf.
func (v *verifier) damaged(ctx context.Context, ck *checkpoint.Checkpoint, err error) error {
	defer v.app.progress("reading all weights of " + checkpoint.Name(v.path))()
	bad, checkErr := ck.NonFinite(ctx)
	if checkErr != nil || len(bad) == 0 {
		return err
	}
	return fmt.Errorf("%s has NaN or infinity in %s, first in %s: fetch it again (npukit info --check "+
		"names all tensors): %w", v.path, output.Count(len(bad), "tensor"), bad[0], err)
}

// stored compares a scorer with the stored logits of a sequence.
func (v *verifier) stored(ctx context.Context, of string, s gate.Scorer, q golden.Sequence, tol gate.Thresholds) error {
	var r verifyReport
	defer v.app.progress(fmt.Sprintf("logits of %s, %s", output.Count(len(q.IDs), "position"), of))()
	if record, ok := q.Record(); ok && len(q.IDs) > 1 {
		t, err := gate.Teacher(ctx, s, record, q.IDs, tol)
		if err != nil {
			return err
		}
		t.Name = q.Name
		r = t
	} else if q.Top != nil || len(q.NLL) > 0 {
		j, err := golden.Judge(ctx, s, q, tol)
		if err != nil {
			return err
		}
		r = j
	} else {
		return nil
	}
	v.add("logits: "+q.Name, of, "golden", r)
	return nil
}

var (
	_ gate.Stepper = (*model.Session)(nil)
	_ gate.Stepper = (*oracle.State)(nil)
)

// The prompt gate reads a text as generation does: all ids but the last promptSteps in one prefill,
// then one by one. It compares the logits of the last ones with the oracle's. The logits gate needs
// the logits of all ids, so the device computes them in small batches. Neither it nor the short
// prompts of the greedy gate would test the kernels for many rows.

// promptSteps is the number of ids that follow the prompt one by one. With 32, the mean of their
// divergence is as far from its threshold as that of a full text.
const promptSteps = 32

// tail is the oracle, and records its logits for the last promptSteps ids.
type tail struct {
	gate.Scorer
	prompt []int32 // the ids before those; empty if there are too few for this gate
	last   gate.Recorded
}

// Score calls the oracle's Score and records the last logits.
func (t *tail) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	from := len(ids) - promptSteps
	if from < promptSteps {
		return t.Scorer.Score(ctx, ids, emit)
	}
	t.prompt, t.last = ids[:from], gate.Recorded{IDs: ids[from:]}
	return t.Scorer.Score(ctx, ids, func(pos int, logits []float32) error {
		if pos >= from {
			t.last.Logits = append(t.last.Logits, logits...)
		}
		return emit(pos, logits)
	})
}

// prompt compares the device's logits after a prompt with the oracle's.
func (v *verifier) prompt(ctx context.Context, s *model.Session, ref *tail) error {
	if len(ref.prompt) == 0 {
		v.result.NotRun = append(v.result.NotRun, fmt.Sprintf("prompt: needs a text of %d ids", 2*promptSteps))
		return nil
	}
	done := v.app.progress(fmt.Sprintf("a prompt of %s", output.Count(len(ref.prompt), "id")))
	r, err := gate.Teacher(ctx, gate.AfterPrompt(s, ref.prompt), ref.last, ref.last.IDs, v.tol)
	done()
	if err != nil {
		return err
	}
	r.Name = fmt.Sprintf("%d ids behind a prompt of %d", len(ref.last.IDs), len(ref.prompt))
	v.add(fmt.Sprintf("prompt: %d ids at once", len(ref.prompt)), "device", "oracle", r)
	return nil
}
