package xrt

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// KernelInfo describes a kernel in a binary.
type KernelInfo struct {
	Name      string
	NumArgs   int
	Instances []string // of a full ELF; ELFKernel takes "Name:Instance"

	args []argument // of an xclbin kernel; an ELF has only their number
}

// argument is an argument of an xclbin kernel.
type argument struct {
	name   string
	offset int // in the command, in bytes
	size   int // in the command, in bytes
}

// Xclbin is an array configuration in Xilinx's container format.
type Xclbin struct {
	object  *object
	kernels []KernelInfo
}

// LoadXclbin reads an xclbin from a file. It returns [ErrDamaged] if the file is not a complete
// xclbin. Defects that only XRT detects are other errors.
func LoadXclbin(path string) (*Xclbin, error) {
	if !available {
		return nil, errorf("load xclbin %s: %w", path, ErrUnavailable)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errorf("load xclbin: %w", err)
	}
	return newXclbin(data, path)
}

// ParseXclbin reads an xclbin from memory. It returns the same errors as [LoadXclbin].
func ParseXclbin(data []byte) (*Xclbin, error) { return newXclbin(data, "in memory") }

func newXclbin(data []byte, name string) (*Xclbin, error) {
	if !available {
		return nil, errorf("xclbin %s: %w", name, ErrUnavailable)
	}
	if err := checkXclbin(data); err != nil {
		return nil, errorf("xclbin %s: %w (%w)", name, err, ErrDamaged)
	}
	ptr, text, f := nativeXclbin(data)
	if err := fail(f, "xclbin %s", name); err != nil {
		return nil, err
	}
	x := &Xclbin{object: newObject("xclbin", ptr, nativeXclbinFree)}
	d := describe(text)
	x.kernels = d.kernels
	runtime.AddCleanup(x, (*object).close, x.object)
	return x, nil
}

// Kernels returns the kernels of the xclbin. The caller must not modify them.
func (x *Xclbin) Kernels() []KernelInfo { return x.kernels }

// Close closes the xclbin. Its contexts stay usable.
func (x *Xclbin) Close() error {
	x.object.close()
	return nil
}

// ELF is a program for the array's controllers. A full ELF has the array configuration and the
// instructions of every instance. Otherwise it has only instructions, for [HWContext.ModuleKernel].
type ELF struct {
	object  *object
	full    bool
	kernels []KernelInfo
}

// LoadELF reads an ELF from a file. It returns [ErrDamaged] if the file is not a complete ELF.
// Defects that only XRT detects are other errors.
func LoadELF(path string) (*ELF, error) {
	if !available {
		return nil, errorf("load ELF %s: %w", path, ErrUnavailable)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errorf("load ELF: %w", err)
	}
	return newELF(data, path)
}

// ParseELF reads an ELF from memory. It returns the same errors as [LoadELF].
func ParseELF(data []byte) (*ELF, error) { return newELF(data, "in memory") }

func newELF(data []byte, name string) (*ELF, error) {
	if !available {
		return nil, errorf("ELF %s: %w", name, ErrUnavailable)
	}
	if err := checkELF(data); err != nil {
		return nil, errorf("ELF %s: %w (%w)", name, err, ErrDamaged)
	}
	ptr, text, f := nativeELF(data)
	if err := fail(f, "ELF %s", name); err != nil {
		return nil, err
	}
	e := &ELF{object: newObject("ELF", ptr, nativeELFFree)}
	d := describe(text)
	e.full, e.kernels = d.full, d.kernels
	runtime.AddCleanup(e, (*object).close, e.object)
	return e, nil
}

// Full reports whether the ELF includes the array configuration, so that NewELFContext accepts it.
func (e *ELF) Full() bool { return e.full }

// Kernels returns the kernels of a full ELF with their instances. The caller must not modify them.
func (e *ELF) Kernels() []KernelInfo { return e.kernels }

// Close closes the ELF. Its contexts and kernels stay usable.
func (e *ELF) Close() error {
	e.object.close()
	return nil
}

// description is a parsed description of a binary, see shim.h.
type description struct {
	full    bool
	kernels []KernelInfo
}

func describe(text string) (d description) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		number := func(i int) int {
			n, _ := strconv.ParseUint(f[i], 10, 63) // printed by the shim, so it cannot fail
			return int(n)
		}
		last := len(d.kernels) - 1
		switch {
		case f[0] == "elf" && len(f) == 2:
			d.full = f[1] == "1"
		case f[0] == "kernel" && len(f) == 3:
			d.kernels = append(d.kernels, KernelInfo{Name: f[1], NumArgs: number(2)})
		case f[0] == "arg" && len(f) == 6 && last >= 0:
			d.kernels[last].args = append(d.kernels[last].args, argument{f[2], number(4), number(5)})
		case f[0] == "instance" && len(f) == 2 && last >= 0:
			d.kernels[last].Instances = append(d.kernels[last].Instances, f[1])
		}
	}
	return d
}
