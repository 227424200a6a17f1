// Command vadd adds two vectors on an NPU a thousand times, with package xrt alone.
//
//	go run -tags xrt ./examples/vadd vadd.elf main:vadd
//
// Every such program has these steps, in this order:
//
//   - The ELF holds the compiler's output: the array's configuration, and the instructions of one or
//     more kernels.
//   - The device is opened once. A hardware context assigns a part of the array to the program and
//     configures it with the ELF.
//   - A kernel is looked up in the context by its name and its instance.
//   - Buffers are memory that host and device share. Each sees the other's writes after a Sync.
//   - A run is a kernel with its arguments. Creating one copies its instructions to the device and
//     starting it does not, so create it once and start it often. Runs in a list are submitted
//     together.
//   - Wait returns early if its context ends. The device still completes the runs, which can be used
//     again after that.
//
// Everything that was opened is closed, in any order. The ELF here is a full one: a kernel with three
// buffers of 1024 32-bit integers, c = a + b. docs/hardware.md explains how to compile a kernel. On a
// machine without an NPU, make test-xrt runs this program on an emulated one.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/npukit/npukit/xrt"
)

const (
	n    = 1024 // elements of a vector
	runs = 1000
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: vadd FILE.elf KERNEL:INSTANCE")
		os.Exit(2)
	}
	if err := vadd(context.Background(), os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "vadd:", err)
		os.Exit(1)
	}
}

func vadd(ctx context.Context, out io.Writer, path, instance string) error {
	elf, err := xrt.LoadELF(path)
	if err != nil {
		return err
	}
	defer elf.Close()
	dev, err := xrt.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	hw, err := dev.NewELFContext(elf, nil) // configures the array
	if err != nil {
		return err
	}
	defer hw.Close()
	kernel, err := hw.ELFKernel(instance)
	if err != nil {
		return err
	}
	defer kernel.Close()

	var buffers [3]*xrt.Buffer // a, b, c
	for i := range buffers {
		if buffers[i], err = dev.Alloc(4 * n); err != nil {
			return err
		}
		defer buffers[i].Close()
	}
	for i, b := range buffers[:2] {
		mem, err := b.Bytes()
		if err != nil {
			return err
		}
		for j := range n {
			binary.LittleEndian.PutUint32(mem[4*j:], uint32((i+1)*j)) // a = j, b = 2*j
		}
		if err := b.Sync(xrt.ToDevice, 0, b.Size()); err != nil {
			return err
		}
	}

	list, err := hw.NewRunlist()
	if err != nil {
		return err
	}
	defer list.Close()
	// A run of an ELF has instructions of its own in the device's heap, so the list has a hundred
	// runs and is executed ten times.
	const listed = 100
	for range listed {
		run, err := kernel.NewRun()
		if err != nil {
			return err
		}
		defer run.Close()
		for arg, b := range buffers {
			if err := run.SetBuffer(arg, b); err != nil {
				return err
			}
		}
		if err := list.Add(run); err != nil {
			return err
		}
	}
	began := time.Now()
	for range runs / listed {
		if err := list.Execute(); err != nil {
			return err
		}
		if err := list.Wait(ctx); err != nil {
			return err
		}
	}
	took := time.Since(began)

	c := buffers[2]
	if err := c.Sync(xrt.FromDevice, 0, c.Size()); err != nil {
		return err
	}
	mem, err := c.Bytes()
	if err != nil {
		return err
	}
	for j := range n {
		if got, want := binary.LittleEndian.Uint32(mem[4*j:]), uint32(3*j); got != want {
			return fmt.Errorf("element %d is %d, should be %d", j, got, want)
		}
	}
	name, err := dev.Name()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %d runs, %d elements right, %v a run\n", name, runs, n,
		(took / runs).Round(100*time.Nanosecond))
	return err
}
