// Package mcp lets agents drive a deployment: a server of the Model Context Protocol over a workspace of package skill.
//
//	s, err := mcp.New("Qwen3-0.6B", dev, &skill.Options{Dir: "work"})
//	defer s.Close()
//	err = s.Serve(ctx, os.Stdin, os.Stdout)        // one client that started this process, or
//	err = s.ListenAndServe(ctx, "127.0.0.1:7777")  // several, over streamable HTTP
//
// # Tools
//
//	state                where the work stands: phases, last gates, open problems, and what may be done next, as calls
//	run_phase            the phase that is due: its skill works, its gates decide, debug skills are asked
//	run_gate             a look at one gate, from which nothing follows
//	diagnose             the first op that is wrong from right inputs, and which skills know such a symptom
//	propose_plan_change  an attempt in an optimisation phase: kept if the gates pass and it is faster beyond noise
//	read_report          a page, a gate's report, the journal
//	approve              the checkpoint behind a phase: approve, redirect, stop
//
// The fifteen SKILL.md files are resources of the server.
//
// No tool takes a verdict, a figure or a file. A phase passes when its own gates have, which this process runs on the device; a client that claims something is not heard,
// because there is nowhere to say it. What a client may do by approving is to go on from a phase that has passed. Programs that host an agent ask their user before
// calls of tools that are marked as destructive, approve among them; the journal keeps which client it was.
//
// # Several clients
//
// One call works on the deployment at a time, whoever made it. While it does, another one that wants to work is refused at once and told what is going on; state and
// read_report always answer. A call that is cancelled ends within 100 ms of the device, and the phase goes on from its journal when it is run again.
//
// Over HTTP the server listens on loopback only, and refuses requests whose Host or Origin is another one, which web pages could otherwise send. Everybody with an account
// on the machine can reach it there.
package mcp
