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
	Args      []ArgInfo // of an xclbin kernel; an ELF has only their number
	Instances []string  // of a full ELF; ELFKernel takes "Name:Instance"
}

// ArgInfo describes an argument of an xclbin kernel.
type ArgInfo struct {
	Name   string
	Type   string // in the kernel's C declaration, e.g. "uint64_t" or "char *"
	Offset int    // in the command, in bytes
	Size   int    // in the command, in bytes
}

// Xclbin is an array configuration in Xilinx's container format.
type Xclbin struct {
	object  *object
	uuid    string
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
	x.uuid, x.kernels = d.uuid, d.kernels
	runtime.AddCleanup(x, (*object).close, x.object)
	return x, nil
}

// UUID returns the UUID of the build, as 32 hex digits.
func (x *Xclbin) UUID() string { return x.uuid }

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
	object   *object
	full     bool
	uuid     string
	platform int
	columns  int
	kernels  []KernelInfo
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
	e.full, e.platform, e.columns, e.uuid, e.kernels = d.full, d.platform, d.columns, d.uuid, d.kernels
	runtime.AddCleanup(e, (*object).close, e.object)
	return e, nil
}

// Full reports whether the ELF includes the array configuration, so that NewELFContext accepts it.
func (e *ELF) Full() bool { return e.full }

// UUID returns the UUID of a full ELF's configuration, as 32 hex digits.
func (e *ELF) UUID() string { return e.uuid }

// Platform returns the OS/ABI byte of a full ELF, which identifies the array: 69 is XDNA 2 (aie2p).
func (e *ELF) Platform() int { return e.platform }

// Columns returns the number of array columns that a full ELF uses.
func (e *ELF) Columns() int { return e.columns }

// Kernels returns the kernels of a full ELF with their instances. The caller must not modify them.
func (e *ELF) Kernels() []KernelInfo { return e.kernels }

// Close closes the ELF. Its contexts and kernels stay usable.
func (e *ELF) Close() error {
	e.object.close()
	return nil
}

// description is a parsed description of a binary, see shim.h.
type description struct {
	uuid              string
	full              bool
	platform, columns int
	kernels           []KernelInfo
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
		case f[0] == "uuid" && len(f) == 2:
			d.uuid = f[1]
		case f[0] == "elf" && len(f) == 4:
			d.full, d.platform, d.columns = f[1] == "1", number(2), number(3)
		case f[0] == "kernel" && len(f) == 3:
			d.kernels = append(d.kernels, KernelInfo{Name: f[1], NumArgs: number(2)})
		case f[0] == "arg" && len(f) == 6 && last >= 0:
			d.kernels[last].Args = append(d.kernels[last].Args,
				ArgInfo{Name: f[2], Type: f[3], Offset: number(4), Size: number(5)})
		case f[0] == "instance" && len(f) == 2 && last >= 0:
			d.kernels[last].Instances = append(d.kernels[last].Instances, f[1])
		}
	}
	return d
}
