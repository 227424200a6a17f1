// Package model opens checkpoints and generates text with them on a device.
//
//	dev, err := cpu.Open(nil)
//	m, err := model.Open(ctx, dev, "SmolLM2-135M-Instruct", nil)
//	opts := &model.GenerateOptions{MaxTokens: 64}
//	for tok, err := range m.Generate(ctx, model.Text("Once upon a time"), opts) {
//		if err != nil { ... }
//		fmt.Print(tok.Text)
//	}
//
// [Model.Complete] and [Session.Complete] return a whole answer.
//
// # From prompt to token
//
// Read the files in this order. prompt.go turns text or a conversation into ids. prefix.go finds
// the longest prefix in the KV cache, or copies one from another session, and session.go computes
// the rest in chunks, whose size choose.go selects. schedule.go merges the chunks of several
// sessions into one pass. pass.go fills the host's inputs, binds buffers to the steps of the plan
// and submits them all at once. sample.go samples the next id from the logits of the last row.
// stop.go and the tokenizer's stream turn ids into text, and generate.go loops.
//
// # Concurrent sessions
//
// A session is one conversation, which generates one answer at a time. Any number of sessions may
// run, each in its own goroutine. On a device that takes rows of several sessions they share
// passes: a decode pass reads every weight once for all of them. Sessions that share a pass affect
// each other's latency, but not their logits, which are bit-identical to those of a session that
// runs alone if the device meets the contract of [npu.Info.FewRows]. See [Session] for prefix
// reuse.
//
// # Errors
//
// These are the caller's, and a server answers them with status 400:
//   - [*OptionError]: an invalid option, token id or empty prompt; it has the field and the value
//   - [*ContextError]: more tokens than [Model.Context]
//   - [ErrNoTokenizer] and [ErrNoTemplate]: text or a conversation for a model that takes neither
//   - [*chat.Error]: a conversation that is invalid, or that the template refuses
//
// [ErrBusy] is returned for a second call while a session generates (status 409). If an error wraps
// ctx.Err(), the caller's deadline passed or the caller cancelled. All others are faults of the
// server, its files or its device (status 500), for example [ErrClosed], [npu.ErrMemory] and
// [npu.ErrDeviceLost].
//
// # JSON
//
// Servers send [Token], [Alternative], [Stats], [StopReason], [Completion] and [EndToken] as JSON.
// Their field names are fixed, and those of npukit run --json if both have the value. Times are in
// seconds and their names end in _s.
//
// # Plans
//
// A [plan.Plan] maps the checkpoint onto programs. Open makes one with [plan.New] from the
// configuration and the device's [npu.Info], or uses the one in [OpenOptions].
package model
