package xrt_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/npukit/npukit/xrt"
)

// Runs a full ELF: opens the device, a context and a kernel, and creates buffers and a run. Objects
// may be closed in any order.
func Example() {
	dev, err := xrt.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	elf, err := xrt.LoadELF("scale.elf")
	if err != nil {
		log.Fatal(err)
	}
	defer elf.Close()
	hw, err := dev.NewELFContext(elf, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hw.Close()
	kernel, err := hw.ELFKernel("main:scale")
	if err != nil {
		log.Fatal(err)
	}
	defer kernel.Close()
	run, err := kernel.NewRun()
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	data, err := dev.Alloc(4096)
	if err != nil {
		log.Fatal(err)
	}
	defer data.Close()

	if _, err := data.WriteAt([]byte{1, 2, 3, 4}, 0); err != nil {
		log.Fatal(err)
	}
	err = errors.Join(data.Sync(xrt.ToDevice, 0, 4), run.SetBuffer(0, data), run.Start(),
		run.Wait(context.Background()),
		data.Sync(xrt.FromDevice, 0, 4))
	if err != nil {
		log.Fatal(err)
	}
	result := make([]byte, 4)
	if _, err := data.ReadAt(result, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
}

// Errors that a program can handle when opening a device.
func ExampleOpen() {
	_, err := xrt.Open(0)
	switch {
	case errors.Is(err, xrt.ErrUnavailable), errors.Is(err, xrt.ErrNoDevice):
		fmt.Println("no NPU here: using the CPU")
	case err != nil:
		fmt.Println(err) // the text includes advice
	}
}
