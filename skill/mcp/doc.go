// Package mcp lets agents drive a deployment: it is a server of the Model Context Protocol over a
// workspace of package skill.
//
//	s, err := mcp.New("Qwen3-0.6B", dev, &skill.Options{Dir: "work"})
//	defer s.Close()
//	err = s.Serve(ctx, os.Stdin, os.Stdout) // one client, which started this process
//
//	err = s.ListenAndServe(ctx, "127.0.0.1:7777", nil) // several clients, over streamable HTTP
//
// # Tools
//
//	state                phases, last gates, open problems, and the calls that are possible next
//	run_phase            runs the next phase to its verdict
//	run_gate             runs one gate and records nothing
//	diagnose             finds the first wrong op with right inputs, and the skills that know it
//	propose_plan_change  tries a change in an optimisation phase
//	read_report          reads a page, a gate's report, or the journal
//	approve              approves a phase, redirects to an earlier one, or stops
//
// The fifteen SKILL.md files are resources of the server.
//
// No tool has an argument for a verdict, a figure or a file. A phase passes if its own gates pass,
// which this process runs on the device. With approve, a client can only go on from a phase that
// has passed. Hosts of agents should ask their users before calls of tools that are marked as
// destructive, such as approve; the journal has the name of the client.
//
// # Several clients
//
// One call works on the deployment at a time. Other calls that need the deployment return an error
// that names the call; state and read_report always work. A call that is cancelled ends
// within 100 ms of the device, and the phase resumes when it runs again.
//
// Over HTTP the server listens on loopback only, and refuses requests with another Host or Origin,
// which web pages could send. Every user of the machine can reach it there.
package mcp
