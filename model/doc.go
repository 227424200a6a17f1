// Package model opens checkpoints and generates text with them on a device.
//
//	dev, err := cpu.Open(nil)
//	m, err := model.Open(ctx, dev, "SmolLM2-135M-Instruct", nil)
//	for tok, err := range m.Generate(ctx, model.Text("Once upon a time"), &model.GenerateOptions{MaxTokens: 64}) {
//		if err != nil { ... }
//		fmt.Print(tok.Text)
//	}
//
// [Model.Complete] and [Session.Complete] return a whole answer.
//
// # From prompt to token
//
// Read the files in this order. prompt.go turns text or a conversation into ids. prefix.go keeps
// the longest prefix that the KV cache holds, or copies it from another session, and session.go
// computes the rest in chunks. schedule.go decides whose rows the next pass takes. pass.go fills the inputs that the host knows, binds buffers to
// the steps of the plan and submits them all at once. sample.go chooses the next id from the last
// row's logits. stop.go and the tokenizer's stream turn it into text that can be shown, and
// generate.go starts over.
//
// # Concurrent sessions
//
// A session is one conversation and generates one thing at a time. Any number of sessions may run,
// each in a goroutine of its own. On a device that takes rows of several sessions they share
// passes: decoding reads every weight for every token, and then reads it once for all of them. The
// sessions that share a pass affect each other's latency and nothing else: logits are equal to the
// bit to those of a session alone, if the device keeps the promise of [npu.Info.FewRows]. See
// [Session] for what a prompt reuses of earlier work.
//
// # Errors
//
// These are the caller's, which a server answers with 400 and the error's text:
//   - [*OptionError]: an option, a token id or an empty prompt, with field and value
//   - [*ContextError]: more tokens than [Model.Context]
//   - [ErrNoTokenizer] and [ErrNoTemplate]: text or a conversation for a model that takes neither
//   - errors of package chat: a conversation that the template refuses
//
// [ErrBusy] is a second call while a session generates (409). An error that wraps ctx.Err() is the
// caller's deadline or cancellation. All others are faults of the server, its files or its device
// (500), such as [ErrClosed], [npu.ErrMemory] and [npu.ErrDeviceLost].
//
// # JSON
//
// [Token], [Alternative], [Stats], [StopReason], [Completion] and [EndToken] are what a server
// sends. They have fixed JSON names, those of npukit run --json where both have the value; times
// are seconds, in names that end in _s.
//
// # Plans
//
// The steps are decided when the model is opened: a [Plan] maps the checkpoint onto programs.
// planner.go makes it from the configuration and the device's [npu.Info], and it can be written,
// read and changed as JSON.
package model
