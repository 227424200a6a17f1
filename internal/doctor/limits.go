package doctor

import (
	"path/filepath"
	"strings"
)

const (
	capIPCLock = 14       // CAP_IPC_LOCK: the limit of locked memory does not apply
	heapBytes  = 64 << 20 // locked by XRT when it opens the device
	modelBytes = 8 << 30  // size of the smaller published models, in prefill and decode layouts
)

// memlock checks the limit of locked memory: XRT locks every buffer.
func (m *machine) memlock() {
	const subject = "locked memory"
	const raise = "set `* - memlock unlimited` in /etc/security/limits.conf and log in again; for " +
		"services and systemd sessions, " +
		"LimitMEMLOCK=infinity"
	limit := ""
	for line := range strings.Lines(m.read("/proc/self/limits")) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				limit = f[0]
			}
		}
	}
	bytes := number(limit, 0)
	switch {
	case limit == "unlimited":
		m.find(subject, OK, "", "unlimited")
	case m.me().caps>>capIPCLock&1 == 1:
		m.find(subject, OK, "", "no limit for you (CAP_IPC_LOCK)")
	case limit == "":
		m.find(subject, Advice, raise, "limit unknown: /proc/self/limits has no entry")
	case bytes <= heapBytes:
		m.find(subject, Problem, raise, "the limit is %d KiB: opening the NPU alone locks %d MiB",
			bytes>>10, heapBytes>>20)
	case bytes < modelBytes:
		m.find(subject, Advice, raise, "the limit is %d MiB, but all weights are locked: 2 to 16 "+
			"GiB for the published models", bytes>>20)
	default:
		m.find(subject, OK, "", "%d GiB", bytes>>30)
	}
}

// iommu checks the IOMMU, which the NPU's shared virtual addressing needs.
func (m *machine) iommu() {
	const subject = "IOMMU"
	cmdline := " " + m.read("/proc/cmdline") + " "
	for _, off := range []string{" amd_iommu=off ", " iommu=off "} {
		if strings.Contains(cmdline, off) {
			m.find(subject, Problem, "remove it from the boot loader's command line",
				"the kernel was started with %s: the driver cannot bind addresses (\"SVA bind "+
					"device failed\")", strings.TrimSpace(off))
			return
		}
	}
	if m.report.Emulated {
		m.find(subject, OK, "", "none (emulated)")
		return
	}
	group := "/sys/bus/pci/devices/" + m.bdf + "/iommu_group"
	if !m.exists(group) {
		m.find(subject, Problem, "enable IOMMU (AMD-Vi) in the firmware setup",
			"the NPU has no IOMMU group: the driver cannot bind addresses (\"SVA bind device "+
				"failed, ret -19\")")
		return
	}
	switch kind := m.read(group + "/type"); kind {
	case "identity":
		m.find(subject, Advice, "if contexts are refused (CREATE_HWCTX, err=-22), start the kernel "+
			"without iommu=pt",
			"pass-through: needs a driver from mid-2026 or later and a suitable kernel")
	case "":
		m.find(subject, OK, "", "on")
	default:
		m.find(subject, OK, "", "on, domain %s", kind)
	}
}

// power checks the platform profile, which sets the NPU's clock.
func (m *machine) power() {
	const subject = "power mode"
	profile := m.read("/sys/firmware/acpi/platform_profile")
	battery := false
	supplies, _ := filepath.Glob(m.path("/sys/class/power_supply") + "/*/online")
	for _, s := range supplies {
		name := strings.TrimPrefix(s, strings.TrimSuffix(m.devices, "/"))
		if m.read(strings.TrimSuffix(name, "online")+"type") == "Mains" {
			battery = m.read(name) == "0"
		}
	}
	switch {
	case battery:
		m.find(subject, Advice, "plug in the machine before measuring", "profile %s, on battery",
			or(profile, "unknown"))
	case profile == "":
		m.find(subject, OK, "", "no platform profiles")
	case profile == "performance":
		m.find(subject, OK, "", "profile performance")
	default:
		m.find(subject, Advice, "echo performance | sudo tee /sys/firmware/acpi/platform_profile: "+
			"up to 1.5 times "+
			"the decode speed",
			"profile %s", profile)
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
