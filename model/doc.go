// Package model opens checkpoints and generates text with them on a device.
//
//	dev, err := cpu.Open(nil)
//	m, err := model.Open(ctx, dev, "SmolLM2-135M-Instruct", nil)
//	for tok, err := range m.Generate(ctx, model.Text("Once upon a time"), &model.GenerateOptions{MaxTokens: 64}) {
//		if err != nil { ... }
//		fmt.Print(tok.Text)
//	}
//
// # The way of a token
//
// Read the files in this order. prompt.go turns text or a conversation into ids. session.go keeps the longest prefix that the KV cache holds and
// feeds the rest, in chunks. schedule.go decides whose rows the next pass takes. pass.go makes the pass: it fills the inputs that the host knows, binds buffers to
// the steps of the plan and submits them all at once. sample.go chooses the next id from the last row's logits, stop.go and the tokenizer's stream turn it
// into text that can be shown, and generate.go goes around again.
//
// # Sessions at once
//
// A session is one conversation and generates one thing at a time; any number of them may be at work, each in a goroutine of its own. Those that wait for the device go
// through it together, where it takes rows of several sessions: decoding reads every weight for every token, and reads it once for all of them. Who is beside a session
// changes how long it waits, and nothing else: its logits are to the bit those that it has alone, where the device keeps the promise of [npu.Info.FewRows]. A prompt that
// begins like what another session has computed is not computed again ([OpenOptions.PrefixBytes]).
//
// # Plans
//
// What the steps are was decided before, when the model was opened: a [Plan] maps the checkpoint onto programs, planner.go makes it from
// the configuration and what the device says of itself, and it can be written down, read and changed as JSON.
package model
