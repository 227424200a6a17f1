package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/xdna"
	"github.com/npukit/npukit/xrt"
)

// libraryFolders are where packages put XRT: Debian and its relatives, Fedora and its relatives, AMD's own.
var libraryFolders = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/opt/xilinx/xrt/lib", "/opt/xilinx/xrt/lib64"}

// knownXRT is the version that npukit's tests run with.
const knownXRT = "2.25"

// xrt looks for AMD's user space, and whether this program can use it.
func (m *machine) xrt() {
	const subject = "XRT"
	const install = "Debian: apt install libxrt-npu2 libxrt-utils-npu; Ubuntu, Fedora: the packages of github.com/amd/xdna-driver"
	dir, core := m.library("libxrt_coreutil.so.2")
	pluginDir, plugin := m.library("libxrt_driver_xdna.so.2")
	switch {
	case dir == "" && m.report.Emulated:
		m.find(subject, OK, "", "the libraries of npukit's tests (emulated)")
	case dir == "":
		m.find(subject, Problem, install, "libxrt_coreutil.so.2 is not in %s", strings.Join(libraryFolders, ", "))
	case pluginDir == "":
		m.find(subject, Problem, install, "version %s in %s, without the NPU's part, libxrt_driver_xdna.so.2", core, dir)
	case pluginDir != dir:
		m.find(subject, Problem, "remove one of the two: XRT loads its driver from beside itself",
			"its libraries lie in %s, the NPU's part in %s", dir, pluginDir)
	case core != plugin:
		m.find(subject, Problem, "install both from one source", "version %s with the NPU's part of version %s: they must be the same", core, plugin)
	case !strings.HasPrefix(core, knownXRT+"."):
		m.find(subject, Advice, "if something fails, try "+knownXRT, "version %s in %s; npukit's tests run with %s", core, dir, knownXRT)
	case !m.fitsDriver(core):
		m.find(subject, Advice, "AMD releases both together: if something fails, take both from one source", "version %s in %s, and the kernel driver is %s",
			core, dir, m.read("/sys/module/amdxdna/version"))
	default:
		m.find(subject, OK, "", "version %s in %s", core, dir)
	}
	v, err := xrt.LibraryVersion()
	switch {
	case errors.Is(err, xrt.ErrUnavailable):
		m.find("npukit", Problem, "go build -tags xrt ./cmd/npukit, with XRT's development package (Debian: libxrt-dev uuid-dev)",
			"this program was built without XRT")
	case err != nil:
		m.find("npukit", Problem, "", "XRT does not answer: %v", err)
	default:
		m.find("npukit", OK, "", "built with XRT, runs with %v", v)
	}
}

// fitsDriver reports whether AMD's own kernel driver, which has versions as XRT has, is of the same release. The kernel's has none.
func (m *machine) fitsDriver(xrt string) bool {
	var driver, lib [2]int
	n, _ := fmt.Sscanf(m.read("/sys/module/amdxdna/version"), "%d.%d", &driver[0], &driver[1])
	k, _ := fmt.Sscanf(xrt, "%d.%d", &lib[0], &lib[1])
	return n < 2 || k < 2 || driver[0] != lib[0] || driver[1] == lib[1]
}

// library is where a library lies, and its version from the name of the file behind it.
func (m *machine) library(name string) (dir, version string) {
	for _, dir := range libraryFolders {
		files, _ := filepath.Glob(m.path(dir) + "/" + name + "*")
		if len(files) == 0 {
			continue
		}
		slices.Sort(files)
		base := filepath.Base(files[len(files)-1]) // the longest: libxrt_coreutil.so.2.25.00
		_, version, _ = strings.Cut(base, ".so.")
		return dir, version
	}
	return "", ""
}

// knownFirmware is the first version that is known to work: FastFlowLM validates its kernels with 1.1.2.64 and .65.
var knownFirmware = [4]int{1, 1, 2, 64}

// firmware looks at the NPU's own program.
func (m *machine) firmware() {
	const subject = "firmware"
	const update = "update linux-firmware (folder amdnpu), or install that of github.com/amd/xdna-driver together with its driver"
	text := m.read("/sys/bus/pci/devices/" + m.bdf + "/fw_version")
	var v [4]int
	if _, err := fmt.Sscanf(text, "%d.%d.%d.%d", &v[0], &v[1], &v[2], &v[3]); err != nil {
		m.find(subject, Advice, "xrt-smi examine shows it", "the driver does not say its version")
		return
	}
	if slices.Compare(v[:], knownFirmware[:]) < 0 {
		m.find(subject, Advice, update, "version %s; 1.1.2.64 and .65 are known to work, and firmware that does not fit the driver shows as runs "+
			"aborted right after loading", text)
		return
	}
	m.find(subject, OK, "", "version %s", text)
}

// others looks for processes that have the NPU open.
func (m *machine) others() {
	const subject = "other users"
	self := fmt.Sprint(os.Getpid())
	var users []string
	hidden := 0
	entries, _ := os.ReadDir(m.path("/proc")) // none: nothing is found
	for _, e := range entries {
		pid := e.Name()
		if number(pid, 0) <= 0 || pid == self {
			continue
		}
		fds, err := os.ReadDir(m.path("/proc/" + pid + "/fd"))
		if err != nil {
			hidden++
			continue
		}
		for _, fd := range fds {
			target, _ := os.Readlink(m.path("/proc/" + pid + "/fd/" + fd.Name())) // it may have closed it
			if strings.HasPrefix(target, "/dev/accel/") {
				users = append(users, fmt.Sprintf("%s (%s)", or(m.read("/proc/"+pid+"/comm"), "?"), pid))
				break
			}
		}
	}
	switch {
	case len(users) > 0:
		m.find(subject, Advice, "contexts and the array's time are shared: stop them before you measure", "%s", strings.Join(users, ", "))
	case hidden > 0:
		m.find(subject, OK, "", "none among the processes that you may look at")
	default:
		m.find(subject, OK, "", "none")
	}
}

// artefacts looks at a folder of compiled programs.
func (m *machine) artefacts(dir string) {
	const subject = "artefacts"
	if dir == "" {
		m.find(subject, Advice, "npukit doctor --artefacts FOLDER looks at those that MLIR-AIR built (build_peano)",
			"no folder of compiled programs was given")
		return
	}
	s, err := xdna.ReadArtefacts(dir)
	if err != nil {
		m.find(subject, Problem, "", "%v", err)
		return
	}
	bad := 0
	for _, name := range s.Names() {
		if err := s.Get(name).Check(); err != nil {
			bad++
			m.find(subject, Problem, "", "program %s: %v", name, err)
		}
	}
	if bad == 0 {
		m.find(subject, OK, "", "%d programs in %s: %s", len(s.Names()), dir, strings.Join(s.Names(), ", "))
	}
}
