package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func (m *machine) processor() {
	name := field(m.read("/proc/cpuinfo"), "model name")
	if name == "" {
		m.find("processor", Advice, "", "unknown: /proc/cpuinfo has no model name")
		return
	}
	m.find("processor", OK, "", "%s", name)
}

// chips lists AMD's NPUs by PCI device and revision (amdxdna_pci_drv.c in Linux and
// amd/xdna-driver).
var chips = []struct {
	device, revision string // "" for any revision
	name             string
	supported        bool
}{
	{"0x17f0", "0x10", "Strix Point, XDNA 2", true},
	{"0x17f0", "0x11", "Strix Halo, XDNA 2", true},
	{"0x17f0", "0x20", "Krackan Point, XDNA 2", true},
	{"0x1502", "", "Phoenix or Hawk Point, XDNA 1", false},
}

const vendorAMD = "0x1022"

// npu finds the NPU among the PCI devices.
func (m *machine) npu() {
	entries, _ := os.ReadDir(m.path("/sys/bus/pci/devices")) // empty if there is no PCI bus
	for _, e := range entries {
		dir := "/sys/bus/pci/devices/" + e.Name() + "/"
		if m.read(dir+"vendor") != vendorAMD {
			continue
		}
		device, revision := m.read(dir+"device"), m.read(dir+"revision")
		for _, c := range chips {
			if c.device != device || c.revision != "" && c.revision != revision {
				continue
			}
			if !c.supported {
				m.find("NPU", Problem, "npukit needs XDNA 2 (Ryzen AI 300, Ryzen AI Max): use --device cpu",
					"%s at %s: array not supported", c.name, e.Name())
				return
			}
			m.bdf = e.Name()
			m.find("NPU", OK, "", "%s, at %s", m.emulated(c.name), e.Name())
			return
		}
		if device == "0x17f0" {
			m.bdf = e.Name()
			m.find("NPU", Advice, "it may work: please report the result",
				"XDNA 2 with unknown revision %s at %s", revision, e.Name())
			return
		}
	}
	m.find("NPU", Problem, "on a Ryzen AI machine, enable the NPU (IPU) in the firmware setup; "+
		"otherwise use --device cpu, or --device sim for "+
		"the virtual NPU",
		"no AMD NPU on the PCI bus")
}

func (m *machine) emulated(name string) string {
	if m.report.Emulated {
		return name + " (emulated)"
	}
	return name
}

// inTree is the first Linux version that includes the driver (drivers/accel/amdxdna).
var inTree = [2]int{6, 14}

// driver checks the kernel driver, amdxdna.
func (m *machine) driver() {
	release := m.read("/proc/sys/kernel/osrelease")
	version := m.read("/sys/module/amdxdna/version")
	switch {
	case m.bdf != "" && m.exists("/sys/bus/pci/drivers/amdxdna/"+m.bdf):
		which := "of the kernel itself"
		if version != "" {
			which = "version " + version
		}
		m.find("kernel driver", OK, "", "amdxdna, %s, on Linux %s", which, release)
	case m.bdf == "" && !m.exists("/sys/module/amdxdna"):
		m.find("kernel driver", Advice, "", "amdxdna is not loaded; not needed without an NPU")
	case m.exists("/sys/module/amdxdna"):
		if m.bdf == "" {
			m.find("kernel driver", Advice, "", "amdxdna is loaded but has no device")
			return
		}
		m.find("kernel driver", Problem, "check `dmesg | grep -i amdxdna`: often the firmware "+
			"(package linux-firmware, folder amdnpu) "+
			"is missing or does not match the driver",
			"amdxdna is loaded but did not bind the NPU at %s", m.bdf)
	case older(release, inTree):
		m.find("kernel driver", Problem, "use Linux 6.14 or later, or build the driver of "+
			"github.com/amd/xdna-driver",
			"amdxdna is not loaded, and Linux %s does not include it", release)
	default:
		m.find("kernel driver", Problem, "sudo modprobe amdxdna; if there is no such module, the "+
			"kernel was built without CONFIG_DRM_ACCEL_AMDXDNA",
			"amdxdna is not loaded, on Linux %s", release)
	}
}

// older reports whether a version such as "6.12.3-arch1" is below the given one.
func older(version string, than [2]int) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < than[0] || major == than[0] && minor < than[1]
}

// node checks the device node and its permissions.
func (m *machine) node() {
	const subject = "device node"
	name := ""
	for _, dir := range []string{"/sys/bus/pci/devices/" + m.bdf + "/accel", "/sys/class/accel"} {
		if found, _ := filepath.Glob(m.path(dir) + "/accel[0-9]*"); len(found) > 0 {
			name = "/dev/accel/" + filepath.Base(found[0])
			break
		}
	}
	if name == "" || !m.exists(name) {
		if name == "" {
			name = "/dev/accel/accel0"
		}
		m.find(subject, Problem, "load the driver first; in a container, give it the device: "+
			"--device /dev/accel/accel0", "%s does not exist", name)
		return
	}
	info, err := os.Stat(m.path(name))
	if err != nil {
		m.find(subject, Problem, "", "%v", err)
		return
	}
	uid, gid, ok := owner(info)
	if !ok {
		m.find(subject, OK, "", "%s", name)
		return
	}
	group := m.group(gid)
	about := fmt.Sprintf("%s, %v, group %s", name, info.Mode().Perm(), group)
	me := m.me()
	mode := info.Mode().Perm()
	switch {
	case me.uid == 0, me.uid == uid && mode&0o600 == 0o600, me.groups[gid] && mode&0o060 == 0o060,
		mode&0o006 == 0o006:
		m.find(subject, OK, "", "%s: accessible", about)
	case mode&0o060 == 0o060:
		m.find(subject, Problem, fmt.Sprintf("sudo usermod -aG %s $USER, then log out and in again",
			group), "%s: you are not in the group", about)
	default:
		m.find(subject, Problem, "add a udev rule: KERNEL==\"accel*\", SUBSYSTEM==\"accel\", "+
			"GROUP=\"render\", MODE=\"0660\"",
			"%s: only root may open it", about)
	}
}

// person holds the user's credentials.
type person struct {
	uid    int
	groups map[int]bool
	caps   uint64 // effective
}

func (m *machine) me() person {
	status := m.read("/proc/self/status")
	p := person{uid: -1, groups: map[int]bool{}}
	if ids := strings.Fields(field(status, "Uid")); len(ids) > 1 {
		p.uid = number(ids[1], -1)
	}
	if ids := strings.Fields(field(status, "Gid")); len(ids) > 1 {
		p.groups[number(ids[1], -1)] = true
	}
	for _, g := range strings.Fields(field(status, "Groups")) {
		p.groups[number(g, -1)] = true
	}
	p.caps, _ = strconv.ParseUint(field(status, "CapEff"), 16, 64) // 0 if missing
	return p
}

func number(s string, otherwise int) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return otherwise
	}
	return n
}

// group returns the name of a group, or its number if it has none.
func (m *machine) group(gid int) string {
	for line := range strings.Lines(m.read("/etc/group")) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && number(f[2], -1) == gid {
			return f[0]
		}
	}
	return strconv.Itoa(gid)
}
