// Package skill deploys a model: it turns a checkpoint into a plan that is verified and tuned, and says how it got there.
//
//	dev, err := cpu.Open(nil)
//	d, err := skill.NewDeployment("Qwen3-0.6B", dev, &skill.Options{Dir: "work"})
//	defer d.Close()
//	err = d.Run(ctx) // a *skill.PhaseError says which gate did not pass, and what was found
//
// # Phases
//
// A deployment has eight phases: reference, kernel validation, single block, full model, prefill and decode optimisation, finalise, and an independent evaluation.
// Each ends with gates, and the next begins when they have passed; docs/phases.md lists them. Nothing in this package sets a verdict: [Deployment.Run] asks the
// gates itself, on real data, whatever the phase's skill has claimed, and a journal that says otherwise is refused when it is read.
//
// # Skills
//
// What is done in a phase is a [Skill]: a Go value with a name, a trigger on symptoms, and Run. There are the paper's fifteen ([BuiltIn]); users put their own beside
// them, or in the place of one of the same name, with [Options]. Optimisation skills propose a [Change] to the plan: it is kept when the gates still pass and the
// time is better beyond noise. Debug skills see a [Symptom] and walk hypotheses, each with a test that confirms or rejects it. When none knows a failure, the user
// is asked, with ranked directions; an unattended deployment stops there.
//
// # The workspace
//
// Everything that happens is a record in journal.jsonl, appended and synced, each line sealed with the sum of the one before. The plan, the pages, the pictures and the
// figures are derived from it, and so is where a deployment goes on when it was killed: at most the part of a step that was in progress is repeated: parts of gates that take seconds and turns of a comparison are records too. One process works in a
// workspace at a time.
//
// # The evaluation
//
// The last phase is another process's: with [InNewProcess] as Options.Evaluate the program starts again, its main begins with [Main], and [Evaluate] believes nothing that is
// written. Whoever has deployed without it has a plan that stays a draft, and asks for it later with [Settle]. A check that fails makes the plan one that nothing runs by, whatever
// else could not be looked at. Where none fails and the evaluator could not do its work, as on a machine that is busy ([ErrBusy]), there is no verdict and the plan stays what it was.
//
// Times are measured on a device that is real, and predicted by the clock on a virtual one. Every figure says which, and the two are never compared.
//
// Source of the phases, the skills and the idea: Li, Wang, Bayliss and Zhang, From Human Guidance to Autonomy: Agent Skill System for End-to-End LLM Deployment on
// Spatial NPUs (arXiv 2606.07586).
package skill
