// Command estimate asks how fast a model would be on an XDNA 2 NPU, before there is one, or any
// weights: a config.json is enough. It compares the plan that one would write first with the tuned
// one, step by step.
//
//	go run ./examples/estimate path/to/config.json
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: estimate CONFIG.JSON")
	}
	c, err := checkpoint.ReadConfig(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	clock := xdna2.NewClock(xdna2.HostNpukit()) // npukit is the program on the host
	knobs := plan.NaiveKnobs()
	print := func(what string) {
		p, err := plan.NewNPU(c, &plan.NPUOptions{Knobs: &knobs})
		if err != nil {
			log.Fatal(err)
		}
		e, err := p.Estimate(clock)
		if err != nil {
			log.Fatal(err)
		}
		say("%-50s %7.2f s to the first token of %d, %6.2f tokens/s, %3d dispatches a prefill\n", what, e.TTFT,
			e.SeqLen, e.TokensPerSec, e.Prefill.Dispatches)
	}
	say("Predicted for an XDNA 2, not measured:\n")
	print("a dispatch for each op")
	for _, step := range plan.KnobSteps() {
		step.Take(&knobs)
		print("+ " + step.Name)
	}
}

// say prints, and ends the program where that fails: a table that is lost on a full disk is no
// success.
func say(format string, args ...any) {
	if _, err := fmt.Printf(format, args...); err != nil {
		log.Fatal(err)
	}
}
