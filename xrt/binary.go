package xrt

import (
	"encoding/hex"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// UUID names a build of a binary.
type UUID [16]byte

// String is the UUID as 8-4-4-4-12 hex digits.
func (u UUID) String() string {
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// KernelInfo is what a binary says about one of its kernels.
type KernelInfo struct {
	Name      string
	NumArgs   int
	Args      []ArgInfo // of an xclbin's kernel; an ELF gives only their number
	Instances []string  // of a full ELF's kernel: what ELFKernel takes is Name:Instance
}

// ArgInfo is one argument of an xclbin's kernel.
type ArgInfo struct {
	Name   string
	Type   string // as the kernel's C declaration has it: "uint64_t", "char *"
	Offset int    // of its bytes in the command
	Size   int    // bytes in the command
}

// MemoryInfo is one memory that an xclbin's kernels use.
type MemoryInfo struct {
	Index int
	Tag   string // "HOST", "SRAM"
	Used  bool
	Base  uint64
	KiB   uint64
}

// Xclbin is a configuration of the array in the container that Xilinx devices share.
type Xclbin struct {
	object  *object
	uuid    UUID
	kernels []KernelInfo
	memory  []MemoryInfo
}

// LoadXclbin reads an xclbin from a file. Error: [ErrDamaged], but not for what XRT alone sees.
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

// ParseXclbin reads an xclbin from memory. Error: as for [LoadXclbin].
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
	x.uuid, x.kernels, x.memory = d.uuid, d.kernels, d.memory
	runtime.AddCleanup(x, (*object).close, x.object)
	return x, nil
}

// UUID names the build.
func (x *Xclbin) UUID() UUID { return x.uuid }

// Kernels are the kernels that the xclbin has, with their arguments. The caller does not change them.
func (x *Xclbin) Kernels() []KernelInfo { return x.kernels }

// Memory are the memories that its kernels use. The caller does not change them.
func (x *Xclbin) Memory() []MemoryInfo { return x.memory }

// Close gives the xclbin's memory back; contexts made of it live on.
func (x *Xclbin) Close() error {
	x.object.close()
	return nil
}

// ELF is a program for the array's controllers: a full one with the array's configuration and the instructions of every instance, or
// instructions only, for [HWContext.ModuleKernel].
type ELF struct {
	object   *object
	full     bool
	uuid     UUID
	platform int
	columns  int
	kernels  []KernelInfo
}

// LoadELF reads an ELF from a file. Error: [ErrDamaged], but not for what XRT alone sees.
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

// ParseELF reads an ELF from memory. Error: as for [LoadELF].
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

// Full reports whether the ELF configures the array too, so that a context can be made of it alone.
func (e *ELF) Full() bool { return e.full }

// UUID names the configuration of a full ELF.
func (e *ELF) UUID() UUID { return e.uuid }

// Platform is the array that a full ELF is for, as its OS/ABI byte: 69 is XDNA 2 (aie2p).
func (e *ELF) Platform() int { return e.platform }

// Columns is how many columns of the array a full ELF takes.
func (e *ELF) Columns() int { return e.columns }

// Kernels are the kernels of a full ELF with their instances. The caller does not change them.
func (e *ELF) Kernels() []KernelInfo { return e.kernels }

// Close gives the ELF's memory back; contexts and kernels made of it live on.
func (e *ELF) Close() error {
	e.object.close()
	return nil
}

// description is what the shim says about a binary, see shim.h.
type description struct {
	uuid              UUID
	full              bool
	platform, columns int
	kernels           []KernelInfo
	memory            []MemoryInfo
}

func describe(text string) (d description) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		number := func(i int) int {
			n, _ := strconv.ParseUint(f[i], 10, 63) // the shim's own printing
			return int(n)
		}
		last := len(d.kernels) - 1
		switch {
		case f[0] == "uuid" && len(f) == 2:
			_, _ = hex.Decode(d.uuid[:], []byte(f[1])[:min(len(f[1]), 32)])
		case f[0] == "elf" && len(f) == 4:
			d.full, d.platform, d.columns = f[1] == "1", number(2), number(3)
		case f[0] == "mem" && len(f) == 6:
			d.memory = append(d.memory, MemoryInfo{Index: number(1), Tag: f[2], Used: f[3] == "1", Base: uint64(number(4)), KiB: uint64(number(5))})
		case f[0] == "kernel" && len(f) == 3:
			d.kernels = append(d.kernels, KernelInfo{Name: f[1], NumArgs: number(2)})
		case f[0] == "arg" && len(f) == 6 && last >= 0:
			d.kernels[last].Args = append(d.kernels[last].Args, ArgInfo{Name: f[2], Type: f[3], Offset: number(4), Size: number(5)})
		case f[0] == "instance" && len(f) == 2 && last >= 0:
			d.kernels[last].Instances = append(d.kernels[last].Instances, f[1])
		}
	}
	return d
}
