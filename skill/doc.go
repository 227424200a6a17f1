// Package skill deploys a model: it turns a checkpoint into a plan that is verified and tuned, and
// records how.
//
//	dev, err := cpu.Open(nil)
//	d, err := skill.NewDeployment("Qwen3-0.6B", dev, &skill.Options{Dir: "work"})
//	defer d.Close()
//	err = d.Run(ctx) // a *skill.PhaseError has the gate that did not pass, and why
//
// # Phases
//
// A deployment has eight phases: reference, kernel validation, single block, full model, prefill
// and decode optimisation, finalise, and an independent evaluation. Each ends with gates, and the
// next starts when they have passed; docs/phases.md lists them. No code sets a verdict:
// [Deployment.Run] runs the gates itself, on real data, even if a skill claims a verdict, and a
// journal that contradicts its gates is refused.
//
// # Skills
//
// The work of a phase is a [Skill]: a Go value with a name, a trigger on symptoms, and Run.
// [BuiltIn] returns the fifteen skills of the paper; [Options] adds others, or replaces some.
// Optimisation skills propose a [Change] to the plan, which is kept if the gates still pass and the
// plan is faster beyond noise. Debug skills get a [Symptom] and test hypotheses about its cause. If
// no skill finds the cause, the user is asked, with ranked directions; an unattended deployment
// stops there.
//
// Package skill/manual has the skills as SKILL.md documents, skill/mcp drives a deployment over
// MCP, and skill/agent lets an external command propose changes.
//
// # The workspace
//
// Everything that happens is a record in journal.jsonl. Records are appended and synced, and each
// has the hash of the record before. The plan, the pages, the plots and the figures are derived
// from the journal, and so is where a deployment resumes that was killed. It repeats at most the
// step that was in progress: parts of gates that take seconds, and turns of a comparison, are
// records too. One process at a time works in a workspace.
//
// # The evaluation
//
// The last phase runs in another process. With [InNewProcess] as Options.Evaluate, the program
// starts itself again, its main calls [Main], and [Evaluate] trusts nothing in the workspace.
// Without an evaluator the plan stays a draft, and [Settle] evaluates it later. If a check fails,
// the plan is marked as failed and models do not open by it. If no check fails and the evaluator
// cannot do its work, for example because the machine is busy ([ErrBusy]), there is no verdict and
// the plan keeps its status.
//
// Times are measured on a real device, and predicted by the clock on a virtual one. Every figure
// tells which, and the two are never compared.
//
// Source of the phases, the skills and the idea: Li, Wang, Bayliss and Zhang, From Human Guidance
// to Autonomy: Agent Skill System for End-to-End LLM Deployment on Spatial NPUs (arXiv 2606.07586).
package skill
