package journal

import (
	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/xdna2"
)

// Subject is the subject of a workspace. It never changes: another model, device or number of
// positions needs another folder.
type Subject struct {
	Model   string        `json:"model"` // path of the checkpoint
	Name    string        `json:"name"`
	Weights string        `json:"weights"` // SHA-256 over the names, types, shapes and bytes of all tensors
	Config  plan.Identity `json:"config"`
	Device  string        `json:"device"` // its kind: "cpu", "sim", "xdna"
	Array   string        `json:"array,omitempty"`
	SeqLen  int           `json:"seq_len"` // positions of a session
	Golden  string        `json:"golden,omitempty"`
	// GoldenSum is the SHA-256 of the golden file.
	GoldenSum    string `json:"golden_sha256,omitempty"`
	GoldenSource string `json:"golden_source,omitempty"` // the implementation, according to the file
	Thresholds   string `json:"thresholds"`              // SHA-256 of thresholds.json
}

// Start starts an attempt at a phase.
type Start struct {
	Why string `json:"why,omitempty"` // "" for the first attempt
}

// Resume names the process that resumes a deployment.
type Resume struct {
	PID    int    `json:"pid"`
	Device string `json:"device"` // with threads and kernels
}

// GateResult is the result of a gate.
type GateResult struct {
	Name    string             `json:"name"`
	Subject string             `json:"subject"` // hash of the plan or of the kernel
	OK      bool               `json:"ok"`
	Summary string             `json:"summary"`           // the figures in one line
	Reasons []gate.Reason      `json:"reasons,omitempty"` // why it failed
	Figures map[string]float64 `json:"figures,omitempty"`
	Bounds  string             `json:"bounds,omitempty"` // source of the thresholds
	Report  string             `json:"report,omitempty"` // in the workspace, without its extension
	Seconds float64            `json:"seconds"`
}

// KernelNote has the findings about a kernel of the plan.
type KernelNote struct {
	Key       string             `json:"key"` // "MatMul-1f3a...": names its gate and its file
	Op        string             `json:"op"`  // "MatMul{M:64 K:2048 N:512 TransB:true}"
	Kind      string             `json:"kind"`
	Types     []dtype.Type       `json:"types"` // of its operands
	Mapping   npu.Mapping        `json:"mapping"`
	On        string             `json:"on"`       // "npu" or "host"
	Launches  []string           `json:"launches"` // the first few places in the plan
	Count     int                `json:"count"`
	OK        bool               `json:"ok"`
	Figures   map[string]float64 `json:"figures,omitempty"`
	Predicted float64            `json:"predicted_us,omitempty"` // by the clock, for the kernel alone
	Measured  float64            `json:"measured_us,omitempty"`  // median
	Runs      int                `json:"runs,omitempty"`         // of Measured
	Bound     string             `json:"bound,omitempty"`        // the predicted bottleneck
	Note      string             `json:"note,omitempty"`
	// Row is the kernel's row for the registry, of the family Family. It is nil if the kernel does
	// not run on the array.
	Row    *xdna2.Row   `json:"row,omitempty"`
	Family xdna2.Kernel `json:"family,omitempty"`
}

// PlanNote makes a plan the deployment's.
type PlanNote struct {
	Recipe Recipe `json:"recipe"`
	Hash   string `json:"plan_sha256"` // of the recipe's plan, without its status
	Why    string `json:"why"`
}

// Measurement is the speed of a plan. Predicted figures come from a clock; they must not be
// compared with measured ones.
type Measurement struct {
	Plan         string  `json:"plan_sha256"`
	Positions    int     `json:"positions"` // of the prompt
	TTFT         float64 `json:"ttft_s"`    // to the first token's logits
	TokensPerSec float64 `json:"tokens_per_s"`
	// TTFTNoise and DecodeNoise are the relative spread of all repetitions: half the distance of
	// the quartiles over the median. They are 0 for a prediction.
	TTFTNoise   float64 `json:"ttft_noise"`
	DecodeNoise float64 `json:"decode_noise"`
	// TTFTRange and TokenRange are the fastest and the slowest repetition, in seconds. They are 0
	// for a prediction.
	TTFTRange  [2]float64 `json:"ttft_range_s,omitzero"`
	TokenRange [2]float64 `json:"token_range_s,omitzero"`
	Predicted  bool       `json:"predicted"`
	// Others is the share of the machine that other processes took meanwhile. It is nil if that is
	// not known, and for a prediction.
	Others *float64 `json:"others_share,omitempty"`
	// Paired is the comparison with the plan before, if both were timed in turns. TTFT and
	// TokensPerSec are then those of the median turn.
	Paired      *Paired        `json:"paired,omitempty"`
	Clock       string         `json:"clock"`       // "wall", or the name of the clock's host profile
	Repetitions int            `json:"repetitions"` // 0 for a prediction
	Device      string         `json:"device"`      // its name, with threads and kernels
	Note        string         `json:"note,omitempty"`
	Estimate    *plan.Estimate `json:"estimate,omitempty"` // of a prediction
}

// Outcomes of an optimisation attempt.
const (
	Kept     = "kept"
	Rejected = "rejected" // a gate failed, the device refused, or it is not faster beyond noise
	Skipped  = "skipped"  // the plan does not change
)

// Attempt is a change to the plan that was tried.
type Attempt struct {
	Step    string       `json:"step"`
	Outcome string       `json:"outcome"` // Kept, Rejected or Skipped
	Why     string       `json:"why"`
	Recipe  Recipe       `json:"recipe"`
	Plan    string       `json:"plan_sha256,omitempty"`
	Before  *Measurement `json:"before,omitempty"`
	After   *Measurement `json:"after,omitempty"` // nil if it was not measured
	Turns   *Turns       `json:"turns,omitempty"` // nil for predictions
	// OtherTurns are those of the time that the phase does not optimise.
	OtherTurns *Turns `json:"other_turns,omitempty"`
	// Published is set if the change leads to the published form, whose programs exist. It is then
	// kept unless it is slower.
	Published bool     `json:"published_form,omitempty"`
	Gates     []string `json:"gates,omitempty"` // keys of the gates that ran
}

// SkillNote is the outcome of a skill for a symptom.
type SkillNote struct {
	Skill   string       `json:"skill"`
	Symptom Symptom      `json:"symptom"`
	Checked []Hypothesis `json:"checked,omitempty"`
	Outcome Outcome      `json:"outcome"`
}

// Issue is a bug for people to know of, in issues.md.
type Issue struct {
	Symptom    string `json:"symptom"`
	Cause      string `json:"cause"`
	Workaround string `json:"workaround,omitempty"`
	Evidence   string `json:"evidence,omitempty"`
	Status     string `json:"status"` // "open", "worked around", "resolved"
}

// Finish ends an attempt at a phase. The phase passes only if the gates that are named have passed.
type Finish struct {
	Passed bool     `json:"passed"`
	Gates  []string `json:"gates"` // keys of the gates that the phase needed, see GateResult.Key
	Reason string   `json:"reason,omitempty"`
}

// OfKernel reports whether the gate is one of a kernel. There is one for each kernel of the plan.
func (r GateResult) OfKernel() bool { return IsKernelGate(r.Name) }

// Key identifies the gate and its subject.
func (r GateResult) Key() string { return r.Name + "@" + r.Subject }
