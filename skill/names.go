package skill

import (
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/report"
)

// The types in this file are defined in skill/internal/journal, which other packages of a
// deployment share. The comments list the fields and methods that users need.

// Phase is a phase of a deployment. Phases run in order. Its methods String, Title and Info return
// its name, its title for people and its description; it is its name in JSON.
type Phase = journal.Phase

// The phases.
const (
	Reference        = journal.Reference        // the oracle and the checkpoint are checked
	KernelValidation = journal.KernelValidation // each kernel of the plan alone
	SingleBlock      = journal.SingleBlock      // one decoder layer
	FullModel        = journal.FullModel        // the whole model
	Prefill          = journal.Prefill          // the time to the first token is optimised
	Decode           = journal.Decode           // the time of a token is optimised
	Finalise         = journal.Finalise         // figures are taken and lessons learned
	Evaluation       = journal.Evaluation       // an independent evaluation
)

// Phases returns all phases in order.
func Phases() []Phase { return journal.Phases() }

// State is the state of a deployment, folded from its journal: Subject, Phases, Recipe, Plan (the
// hash of the plan), Kernels, Attempts, Measured, Issues, Skills, Questions, Decisions and
// Evaluation. Elements of the lists have Seq, Phase, Time and Value. The subject has Model (the path
// of the checkpoint), Name, Weights (their SHA-256), Config, Device (its kind), Array, SeqLen, and
// Golden (the path of the reference outputs). The state's methods:
//
//   - Next returns the first phase that has not passed.
//   - Due returns the phase to run next, and whether the phase before waits for approval.
//   - PlanStatus returns the status of the plan.
//   - FirstMeasured returns the measurement with which the trajectory begins.
type State = journal.State

// ReadState reads the journal of the workspace dir, without locking it. The error wraps
// [io/fs.ErrNotExist] if nothing has been deployed there.
func ReadState(dir string) (*State, error) { return journal.ReadState(dir) }

// PhaseState is the state of a phase: Phase, Status, Attempts, Started, Ended, Seconds, Gates (the
// last result of each), and Reason, if it failed. Status is "pending", "running" (also if the
// process that ran it was killed), "passed" or "failed".
type PhaseState = journal.PhaseState

// GateResult is the result of a gate: Name, Subject (the hash of the plan or the kernel), OK,
// Summary, Reasons (why it failed), Figures, Bounds, Report and Seconds. Method OfKernel reports
// whether the gate is one of a kernel.
type GateResult = journal.GateResult

// Recipe has the options of a plan: SeqLen; Chunk, Activations and Cache for devices that take
// any number of rows; Lengths, Prefill and Decode for arrays. Method With returns it with the
// fields of a JSON object, and Describe returns how two recipes differ.
type Recipe = journal.Recipe

// Measurement is the speed of a plan: TTFT and TokensPerSec, with their spread and range. Predicted
// reports whether it comes from a clock; predictions and measurements must not be compared. Paired
// compares it with the plan before, if both were timed in turns: First is of the time to the first
// token, and Token of the time of a token. Each has Count, Before, After, Gain and Noise, and method
// Faster reports whether the gain exceeds the noise.
type Measurement = journal.Measurement

// Performance is the report of the final measurement, with the fields of performance.json.
type Performance = report.Performance

// Attempt is a change to the plan that was tried: Step, Outcome ([Kept], [Rejected] or [Skipped]),
// Why, Recipe, Before, After and Gates.
type Attempt = journal.Attempt

// Outcomes of an attempt.
const (
	Kept     = journal.Kept
	Rejected = journal.Rejected // a gate failed, the device refused it, or it is not faster beyond noise
	Skipped  = journal.Skipped  // the plan does not change
)

// Symptom is a failure: Phase, Gate (the gate that failed, or ""), Reasons, Diagnosis (op by op, or
// nil), Pattern, Err and Recipe.
type Symptom = journal.Symptom

// Outcome is the result of a skill: Cause ("" for none), Evidence, Remedy, Fixed (whether the gates
// must run again, since the skill has changed something), Directions, and Checked (the hypotheses
// that it has tested).
type Outcome = journal.Outcome

// Hypothesis is a possible cause of a symptom: Cause, Confirmed, and Evidence of its test.
type Hypothesis = journal.Hypothesis

// Issue is a bug for people to know of: Symptom, Cause, Workaround, Evidence, and Status ("open",
// "worked around" or "resolved").
type Issue = journal.Issue

// Question is a failure that no skill knows: Phase, Symptom, Diagnosis, and two to four Directions.
type Question = journal.Question

// Direction is a way to go on after a failure: Name ("again", "stop", or the name of a skill) and
// What.
type Direction = journal.Direction

// Choice is the answer to a question: the name of a Direction, and a Note.
type Choice = journal.Choice

// Decision is the answer to the report of a phase: an Action, Phase and Skill of a redirect, and a
// Note.
type Decision = journal.Decision

// Action is the action of a decision.
type Action = journal.Action

// The actions.
const (
	Approve  = journal.Approve  // go on
	Redirect = journal.Redirect // go back to a phase, whose gates then run again
	Stop     = journal.Stop     // stop; a later Run resumes
)

// EvaluationReport is an evaluator's verdict: OK, Plan (the hash of the plan), Checks (each with
// Name, OK and Detail), Seconds, Reference, and the evaluator's own figures in Measured and First.
// The zero report is not an acceptance.
type EvaluationReport = journal.EvaluationReport
