// Command cpukernels prints the names of the kernels that this machine and binary can execute, one
// a line, and why the others cannot be executed on standard error. Scripts set NPUKIT_KERNELS to
// each.
package main

import (
	"fmt"
	"os"

	"github.com/npukit/npukit/npu/cpu"
)

func main() {
	for _, name := range cpu.KernelNames() {
		dev, err := cpu.Open(&cpu.Options{Threads: 1, Kernels: name})
		if err != nil {
			fmt.Fprintf(os.Stderr, "not run with %s: %v\n", name, err)
			continue
		}
		fmt.Println(name)
		if err := dev.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
