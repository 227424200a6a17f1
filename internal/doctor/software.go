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

// libraryFolders lists the install folders of XRT: Debian, Fedora, and AMD's own packages.
var libraryFolders = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
	"/opt/xilinx/xrt/lib", "/opt/xilinx/xrt/lib64"}

// knownXRT is the version that npukit is tested with.
const knownXRT = "2.25"

// xrt checks the XRT libraries and whether this program was built with XRT.
func (m *machine) xrt() {
	const subject = "XRT"
	const install = "Debian: apt install libxrt-npu2 libxrt-utils-npu; Ubuntu, Fedora: the " +
		"packages of github.com/amd/xdna-driver"
	dir, core := m.library("libxrt_coreutil.so.2")
	pluginDir, plugin := m.library("libxrt_driver_xdna.so.2")
	switch {
	case dir == "" && m.report.Emulated:
		m.find(subject, OK, "", "the libraries of npukit's tests (emulated)")
	case dir == "":
		m.find(subject, Problem, install, "libxrt_coreutil.so.2 is not in %s",
			strings.Join(libraryFolders, ", "))
	case pluginDir == "":
		m.find(subject, Problem, install, "version %s in %s, but the NPU plugin "+
			"libxrt_driver_xdna.so.2 is missing", core, dir)
	case pluginDir != dir:
		m.find(subject, Problem, "remove one of the two: XRT loads its plugin from its own folder",
			"libraries are in %s, the NPU plugin is in %s", dir, pluginDir)
	case core != plugin:
		m.find(subject, Problem, "install both from one source",
			"version %s with NPU plugin version %s: they must be the same", core, plugin)
	case !strings.HasPrefix(core, knownXRT+"."):
		m.find(subject, Advice, "if something fails, try "+knownXRT,
			"version %s in %s; npukit is tested with %s", core, dir, knownXRT)
	case !m.matchesDriver(core):
		m.find(subject, Advice, "if something fails, install both from the same release",
			"version %s in %s, but the kernel driver is %s",
			core, dir, m.read("/sys/module/amdxdna/version"))
	default:
		m.find(subject, OK, "", "version %s in %s", core, dir)
	}
	v, err := xrt.LibraryVersion()
	switch {
	case errors.Is(err, xrt.ErrUnavailable):
		m.find("npukit", Problem, "go build -tags xrt ./cmd/npukit, with XRT's development package "+
			"(Debian: libxrt-dev uuid-dev)",
			"this program was built without XRT")
	case err != nil:
		m.find("npukit", Problem, "", "XRT failed: %v", err)
	default:
		m.find("npukit", OK, "", "built with XRT, running with %v", v)
	}
}

// matchesDriver reports whether AMD's kernel driver, whose version follows XRT's, is of the same
// release as XRT. The in-tree driver has no such version and always matches.
func (m *machine) matchesDriver(xrt string) bool {
	var driver, lib [2]int
	n, _ := fmt.Sscanf(m.read("/sys/module/amdxdna/version"), "%d.%d", &driver[0], &driver[1])
	k, _ := fmt.Sscanf(xrt, "%d.%d", &lib[0], &lib[1])
	return n < 2 || k < 2 || driver[0] != lib[0] || driver[1] == lib[1]
}

// library returns the folder of a library and its version, which is part of the file name.
func (m *machine) library(name string) (dir, version string) {
	for _, dir := range libraryFolders {
		files, _ := filepath.Glob(m.path(dir) + "/" + name + "*")
		if len(files) == 0 {
			continue
		}
		slices.Sort(files)
		base := filepath.Base(files[len(files)-1]) // the longest, e.g. libxrt_coreutil.so.2.25.00
		_, version, _ = strings.Cut(base, ".so.")
		return dir, version
	}
	return "", ""
}

// knownFirmware is the first version known to work: FastFlowLM validates 1.1.2.64 and .65.
var knownFirmware = [4]int{1, 1, 2, 64}

// firmware checks the NPU's firmware.
func (m *machine) firmware() {
	const subject = "firmware"
	const update = "update linux-firmware (folder amdnpu), or install that of " +
		"github.com/amd/xdna-driver together with its driver"
	text := m.read("/sys/bus/pci/devices/" + m.bdf + "/fw_version")
	var v [4]int
	if _, err := fmt.Sscanf(text, "%d.%d.%d.%d", &v[0], &v[1], &v[2], &v[3]); err != nil {
		m.find(subject, Advice, "run xrt-smi examine", "the driver does not report the version")
		return
	}
	if slices.Compare(v[:], knownFirmware[:]) < 0 {
		m.find(subject, Advice, update, "version %s; 1.1.2.64 and .65 are known to work. A "+
			"mismatch with the driver aborts runs "+
			"right after loading", text)
		return
	}
	m.find(subject, OK, "", "version %s", text)
}

// others finds other processes that have the NPU open.
func (m *machine) others() {
	const subject = "other users"
	self := fmt.Sprint(os.Getpid())
	var users []string
	hidden := 0
	entries, _ := os.ReadDir(m.path("/proc")) // empty on error
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
			// the process may have closed it
			target, _ := os.Readlink(m.path("/proc/" + pid + "/fd/" + fd.Name()))
			if strings.HasPrefix(target, "/dev/accel/") {
				users = append(users, fmt.Sprintf("%s (%s)", or(m.read("/proc/"+pid+"/comm"), "?"), pid))
				break
			}
		}
	}
	switch {
	case len(users) > 0:
		m.find(subject, Advice, "they share contexts and array time: stop them before measuring",
			"%s", strings.Join(users, ", "))
	case hidden > 0:
		m.find(subject, OK, "", "none among the accessible processes")
	default:
		m.find(subject, OK, "", "none")
	}
}

// artefacts checks a folder of compiled programs.
func (m *machine) artefacts(dir string) {
	const subject = "artefacts"
	if dir == "" {
		m.find(subject, Advice, "run npukit doctor --artefacts FOLDER with MLIR-AIR's build_peano",
			"no folder given")
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
