package skill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// seeded is the virtual array with one fault, which starts with a phase: the kernels alone have
// passed on the same device, as with faults in the code around them.
type seeded struct {
	npu.Device
	f    *fault
	host bool
}

// fault is the difference between a seeded device and the virtual array.
type fault struct {
	on     bool
	weight func(name string, from npu.Tensors) (npu.Tensor, error) // what is written for a weight
	before func(r *npu.Run, host bool) error                       // of a run: its error
	after  func(r *npu.Run, host bool)                             // what has become of its results
	load   func(p *npu.Program) error
}

func (s seeded) Host() npu.Device { return seeded{npu.HostOf(s.Device), s.f, true} }

func (s seeded) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	if s.f.on && s.f.load != nil {
		if err := s.f.load(p); err != nil {
			return nil, err
		}
	}
	return s.Device.Load(ctx, p)
}

func (s seeded) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if s.f.on && s.f.weight != nil {
		src.From = otherTensors{src.From, s.f.weight}
	}
	return s.Device.Const(ctx, src)
}

type otherTensors struct {
	npu.Tensors
	weight func(name string, from npu.Tensors) (npu.Tensor, error)
}

func (o otherTensors) Tensor(name string) (npu.Tensor, error) { return o.weight(name, o.Tensors) }

func (s seeded) Submit(ctx context.Context, runs []npu.Run) error {
	if !s.f.on {
		return s.Device.Submit(ctx, runs)
	}
	for i := range runs {
		if s.f.before != nil {
			if err := s.f.before(&runs[i], s.host); err != nil {
				return err
			}
		}
		if err := s.Device.Submit(ctx, runs[i:i+1]); err != nil {
			return err
		}
		if s.f.after != nil {
			s.f.after(&runs[i], s.host)
		}
	}
	return nil
}

// turncoat is a right device until its fault starts, and then another device on the same memory.
type turncoat struct {
	npu.Device
	wrong npu.Device
	f     *fault
}

func (d turncoat) now() npu.Device {
	if d.f.on {
		return d.wrong
	}
	return d.Device
}

func (d turncoat) Host() npu.Device                                 { return npu.HostOf(d.now()) }
func (d turncoat) Submit(ctx context.Context, runs []npu.Run) error { return d.now().Submit(ctx, runs) }
func (d turncoat) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	return d.now().Load(ctx, p)
}

// does reports whether the program of a run has one op, of that kind.
func does(r *npu.Run, kind string) bool {
	list := r.Exec.Program().Launches
	return len(list) == 1 && list[0].Op.Kind() == kind
}

// result changes the bytes of a run's first output, on the side that reads it next.
func result(r *npu.Run, host bool, change func(y []byte, inputs [][]byte)) {
	var inputs [][]byte
	for i, a := range r.Exec.Program().Args {
		b := r.Args[i]
		switch {
		case b == nil:
		case a.Kind == npu.In:
			inputs = append(inputs, b.Bytes())
		case a.Kind == npu.Out:
			if !host {
				skilltest.Must(0, b.Sync(npu.FromDevice, 0, b.Len()))
			}
			change(b.Bytes(), inputs)
			if !host {
				skilltest.Must(0, b.Sync(npu.ToDevice, 0, b.Len()))
			}
			return
		}
	}
}

// instead replaces the data of one weight.
func instead(weight string, change func(data []byte, from npu.Tensors)) func(string, npu.Tensors) (npu.Tensor, error) {
	var kept [][]byte // devices read weights where they lie
	return func(name string, from npu.Tensors) (npu.Tensor, error) {
		t, err := from.Tensor(name)
		if err == nil && name == weight {
			t.Data = slices.Clone(t.Data)
			kept = append(kept, t.Data)
			change(t.Data, from)
		}
		return t, err
	}
}

// once fails the first run of an op on the array.
func once(kind string, fails error) func(*npu.Run, bool) error {
	done := false
	return func(r *npu.Run, host bool) error {
		if done || host || !does(r, kind) {
			return nil
		}
		done = true
		return fmt.Errorf("seeded: %w", fails)
	}
}

// seededFaults returns the faults with the skill that must find them, the cause, and a part of its
// evidence.
func seededFaults() map[string]struct {
	fault                  fault
	bias                   bool
	wrap                   string // an adversary in place of a fault
	options                sim.Options
	from                   Phase
	skill, cause, evidence string
} {
	type row = struct {
		fault                  fault
		bias                   bool
		wrap                   string
		options                sim.Options
		from                   Phase
		skill, cause, evidence string
	}
	corruption, failure, congestion := bufferCorruption{}.Name(), runtimeFailure{}.Name(), routingCongestion{}.Name()
	layer := func(n int, name string) string { return fmt.Sprintf("model.layers.%d.%s.weight", n, name) }
	copyOf := func(name string) func([]byte, npu.Tensors) {
		return func(data []byte, from npu.Tensors) { copy(data, skilltest.Must(from.Tensor(name)).Data) }
	}
	var last []byte // of a scratch
	calls := 0
	return map[string]row{
		"weights not written": {fault: fault{weight: instead(layer(0, "mlp.down_proj"),
			func(data []byte, _ npu.Tensors) { clear(data) })},
			skill: corruption, cause: "weights not written", evidence: "layer.0.ffn.down"},
		"another layer's weights": {fault: fault{weight: instead(layer(1, "mlp.gate_proj"),
			copyOf(layer(0, "mlp.gate_proj")))},
			skill: corruption, cause: "other weights", evidence: "layers.1.mlp.gate_proj"},
		"gate and up swapped": {fault: fault{weight: func(name string, from npu.Tensors) (npu.Tensor, error) {
			swap := strings.NewReplacer("gate_proj", "up_proj", "up_proj", "gate_proj")
			return from.Tensor(swap.Replace(name))
		}}, skill: corruption, cause: "other weights", evidence: "layers.0.mlp"},
		"a wrong bit in a weight": {fault: fault{weight: instead(layer(0, "self_attn.o_proj"),
			func(data []byte, _ npu.Tensors) { data[1] ^= 0x40 })},
			skill: corruption, cause: "other weights", evidence: "layers.0.self_attn.o_proj"},
		"a bias dropped": {bias: true, fault: fault{weight: instead("model.layers.0.self_attn.q_proj.bias",
			func(data []byte, _ npu.Tensors) { clear(data) })},
			skill: corruption, cause: "other weights", evidence: "layers.0.self_attn.q_proj.bias"},
		"attention gives a NaN": {fault: fault{after: func(r *npu.Run, host bool) {
			if does(r, "Attention") {
				result(r, host, func(y []byte, _ [][]byte) { y[0], y[1] = 0xc0, 0x7f })
			}
		}}, skill: corruption, cause: "kernel", evidence: "layer.0.attn"},
		"head-first read as seq-first": {fault: fault{after: func(r *npu.Run, host bool) {
			if does(r, "Permute") {
				result(r, host, func(y []byte, in [][]byte) { copy(y, in[0]) })
			}
		}}, skill: corruption, cause: "kernel", evidence: "layer.0.attn"},
		"scratch read before it is written": {fault: fault{after: func(r *npu.Run, host bool) {
			if does(r, "SiLUMul") {
				result(r, host, func(y []byte, _ [][]byte) {
					now := slices.Clone(y)
					copy(y, last)
					last = now
				})
			}
		}}, skill: corruption, cause: "stale buffer", evidence: "other logits"},
		"a bit flips now and then": {fault: fault{after: func(r *npu.Run, host bool) {
			if does(r, "RMSNorm") {
				if calls++; calls%3 == 0 {
					result(r, host, func(y []byte, _ [][]byte) { y[1] ^= 0x40 })
				}
			}
		}}, skill: corruption, cause: "stale buffer", evidence: "other logits"},
		"RoPE pairs neighbours": {wrap: "RoPE interleaved", skill: corruption, cause: "kernel", evidence: "rope"},
		"a hang, once": {fault: fault{before: once("MatMul", npu.ErrTimeout)}, from: FullModel,
			skill: failure, cause: "hang, once"},
		"attention always hangs": {fault: fault{before: func(r *npu.Run, host bool) error {
			if !host && does(r, "Attention") {
				return fmt.Errorf("seeded: %w", npu.ErrTimeout)
			}
			return nil
		}}, from: FullModel, skill: failure, cause: "attention hangs"},
		"a context lost": {fault: fault{before: once("MatMul", npu.ErrDeviceLost)}, from: FullModel, skill: failure,
			cause: "context lost"},
		"no contexts": {fault: fault{load: func(*npu.Program) error {
			return fmt.Errorf("seeded: %w",
				npu.ErrNoContext)
		}}, skill: failure, cause: "no context"},
		"no memory": {options: sim.Options{Faults: &sim.Faults{Refuse: 1}}, skill: failure, cause: "no memory"},
		"a merge that is refused": {fault: fault{load: func(p *npu.Program) error {
			if len(p.Launches) > 3 {
				return &xdna2.ResourceError{Rule: "R-SEEDED"}
			}
			return nil
		}}, from: Prefill, skill: congestion, cause: "routing congestion"},
	}
}

// copyTo copies a workspace that no process works on into an empty folder.
func copyTo(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// No fault that is seeded into a deployment on the virtual array ends in an accepted deployment,
// and the right skill finds the right cause of all but at most two.
func TestSeededFaults(t *testing.T) {
	t.Parallel()
	plain, biased := skilltest.ArrayModel(t), t.TempDir()
	spec := ckptgen.Spec{Family: "qwen2", Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512,
		Vocab: 512, Context: 512, Tie: true}
	if err := ckptgen.Write(biased, spec, 7); err != nil {
		t.Fatal(err)
	}
	all := seededFaults()
	known, ran := 0, 0
	// Faults start with a phase: the phases before it are deployed once, on a right device.
	workspaces := map[string]string{}
	begun := func(path string, from Phase) string {
		key := fmt.Sprint(path, from)
		if workspaces[key] == "" {
			opts := small(t)
			opts.SeqLen = 64
			if before := workspaces[fmt.Sprint(path, SingleBlock)]; before != "" {
				copyTo(t, before, opts.Dir)
			}
			d := deployment(t, path, skilltest.OpenSim(t, sim.Options{}), opts)
			for p, _ := d.State().Next(); p < from; p, _ = d.State().Next() {
				if _, err := d.RunPhase(context.Background(), p); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			workspaces[key] = opts.Dir
		}
		return workspaces[key]
	}
	for name, tc := range all {
		t.Run(name, func(t *testing.T) {
			ran++
			path, opts := plain, small(t)
			if tc.bias {
				path = biased
			}
			opts.SeqLen = 64
			from := max(tc.from, SingleBlock)
			f := tc.fault
			opts.Observe = func(e Event) { f.on = f.on || e.What == eventPhase && e.Phase >= from }
			base := skilltest.OpenSim(t, tc.options)
			dev := npu.Device(seeded{base, &f, false})
			if tc.wrap != "" {
				dev = turncoat{base, adversary(tc.wrap)(base), &f}
			}
			copyTo(t, begun(path, from), opts.Dir)
			d := deployment(t, path, dev, opts)
			var err error
			for _, p := range Phases()[from : max(tc.from, FullModel)+1] {
				if _, err = d.RunPhase(context.Background(), p); err != nil {
					break
				}
			}
			var phase *PhaseError
			if err != nil && !errors.As(err, &phase) {
				t.Fatalf("it ends with %v", err)
			}
			s := d.State()
			if s.PlanStatus() == plan.Accepted {
				t.Error("the plan is accepted")
			}
			var causes []string
			found := false
			for _, n := range s.Skills {
				o := n.Value.Outcome
				causes = append(causes, fmt.Sprintf("%s: %s: %s", n.Value.Skill, o.Cause, o.Evidence))
				found = found || n.Value.Skill == tc.skill && o.Cause != "" && strings.HasPrefix(o.Cause, tc.cause) &&
					strings.Contains(o.Evidence, tc.evidence)
			}
			if found {
				known++
			}
			t.Logf("diagnosed: %v; it ends with %v; %q", found, err, causes)
			if err == nil && len(causes) == 0 {
				t.Error("nothing was seen of the fault")
			}
		})
	}
	t.Logf("%d of %d faults are diagnosed", known, ran)
	if len(all) < 15 || known < ran-2 {
		t.Errorf("want all but two, of at least 15")
	}
}
