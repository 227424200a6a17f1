package doctor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const pci = "/sys/bus/pci/devices/0000:c5:00.1/"

// owners returns the files of a Ryzen AI machine without faults. The user is in the group of the
// files that the test writes.
func owners() map[string]string {
	return map[string]string{
		"/proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD Ryzen AI 9 HX 370 w/ " +
			"Radeon 890M\n",
		"/proc/sys/kernel/osrelease": "6.19.2-arch1-1\n",
		"/proc/cmdline":              "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 rw quiet\n",
		"/proc/self/status": fmt.Sprintf("Name:\tnpukit\n"+
			"Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n"+
			"Groups:\t10 %[3]d\nCapEff:\t0000000000000000\n", os.Getuid()+1, os.Getgid()+1, os.Getgid()),
		"/proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units\n" +
			"Max locked memory         unlimited            unlimited            bytes\n",
		"/proc/1/comm": "systemd\n",
		"/proc/1/fd/0": "-> /dev/null",
		"/etc/group": fmt.Sprintf("root:x:%d:\nrender:x:%d:somebody\n",
			os.Getgid()+7, os.Getgid()),
		pci + "vendor":                                            "0x1022\n",
		pci + "device":                                            "0x17f0\n",
		pci + "revision":                                          "0x10\n",
		pci + "fw_version":                                        "1.1.2.65\n",
		pci + "accel/accel0/uevent":                               "",
		pci + "iommu_group/type":                                  "DMA-FQ\n",
		"/sys/bus/pci/devices/0000:00:00.0/vendor":                "0x1022\n",
		"/sys/bus/pci/devices/0000:00:00.0/device":                "0x1507\n",
		"/sys/bus/pci/drivers/amdxdna/0000:c5:00.1/enable":        "1\n",
		"/sys/module/amdxdna/version":                             "2.25.0\n",
		"/sys/firmware/acpi/platform_profile":                     "performance\n",
		"/sys/class/power_supply/AC/type":                         "Mains\n",
		"/sys/class/power_supply/AC/online":                       "1\n",
		"/dev/accel/accel0":                                       "mode 0660",
		"/usr/lib/x86_64-linux-gnu/libxrt_coreutil.so.2":          "",
		"/usr/lib/x86_64-linux-gnu/libxrt_coreutil.so.2.25.00":    "",
		"/usr/lib/x86_64-linux-gnu/libxrt_driver_xdna.so.2":       "",
		"/usr/lib/x86_64-linux-gnu/libxrt_driver_xdna.so.2.25.00": "",
	}
}

// build writes a machine's files: "-> X" is a symbolic link, "mode N" an empty file with that mode.
func build(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o777)
		var mode os.FileMode
		if target, link := strings.CutPrefix(text, "-> "); err == nil && link {
			err = os.Symlink(target, path)
		} else if n, _ := fmt.Sscanf(text, "mode %o", &mode); err == nil && n == 1 {
			if err = os.WriteFile(path, nil, 0o666); err == nil {
				err = os.Chmod(path, mode)
			}
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// examine returns the findings by subject, except those that depend on how the test was built.
func examine(t *testing.T, files map[string]string, artefacts string) map[string]Finding {
	t.Helper()
	got := map[string]Finding{}
	for _, f := range Examine(&Options{Root: build(t, files), Artefacts: artefacts}).Findings {
		if old, twice := got[f.Subject]; twice && old.Status == Problem {
			continue
		}
		got[f.Subject] = f
	}
	delete(got, "npukit")
	return got
}

func needsLinux(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a machine's files are links and permissions")
	}
}

func TestHealthyMachine(t *testing.T) {
	needsLinux(t)
	for subject, f := range examine(t, owners(), "") {
		if f.Status != OK && subject != "artefacts" {
			t.Errorf("%s: %s: %s", subject, f.Status, f.Text)
		}
	}
}

// Every fault is found under its subject with advice that names the fix.
func TestFaults(t *testing.T) {
	needsLinux(t)
	limits := func(soft string) string {
		return fmt.Sprintf("Max locked memory         %s            unlimited            bytes\n", soft)
	}
	outsider := fmt.Sprintf("Uid:\t%[1]d\t%[1]d\nGid:\t%[2]d\t%[2]d\nGroups:\t10\nCapEff:\t0\n",
		os.Getuid()+1, os.Getgid()+1)
	const (
		gone    = "gone"
		bound   = "/sys/bus/pci/drivers/amdxdna/0000:c5:00.1/enable"
		module  = "/sys/module/amdxdna/version"
		lib     = "/usr/lib/x86_64-linux-gnu/"
		core    = lib + "libxrt_coreutil.so.2"
		plugin  = lib + "libxrt_driver_xdna.so.2"
		version = ".25.00"
	)
	for name, tc := range map[string]struct {
		change  map[string]string
		subject string
		status  Status
		want    string // in text or advice
	}{
		"no NPU": {map[string]string{pci + "vendor": "0x8086"}, "NPU", Problem,
			"--device cpu"},
		"XDNA 1": {map[string]string{pci + "device": "0x1502",
			pci + "revision": "0x00"}, "NPU", Problem, "Phoenix"},
		"an unknown revision": {map[string]string{pci + "revision": "0x42"}, "NPU", Advice, "0x42"},
		"an old kernel": {map[string]string{bound: gone, module: gone,
			"/proc/sys/kernel/osrelease": "6.12.48-generic"}, "kernel driver", Problem, "6.14"},
		"the driver not loaded": {map[string]string{bound: gone, module: gone}, "kernel driver",
			Problem, "modprobe"},
		"the driver refused": {map[string]string{bound: gone}, "kernel driver", Problem, "dmesg"},
		"the kernel's own driver": {map[string]string{module: gone}, "kernel driver", OK,
			"of the kernel itself"},
		"no node": {map[string]string{"/dev/accel/accel0": gone}, "device node",
			Problem, "--device /dev/accel/accel0"},
		"the wrong group": {map[string]string{"/proc/self/status": outsider}, "device node",
			Problem, "usermod -aG render"},
		"root only": {map[string]string{"/proc/self/status": outsider,
			"/dev/accel/accel0": "mode 0600"}, "device node", Problem, "udev"},
		"for everybody": {map[string]string{"/proc/self/status": outsider,
			"/dev/accel/accel0": "mode 0666"}, "device node", OK, "accessible"},
		"memlock as delivered": {map[string]string{"/proc/self/limits": limits("8388608")},
			"locked memory", Problem, "limits.conf"},
		"memlock for one model": {map[string]string{"/proc/self/limits": limits("2147483648")},
			"locked memory", Advice, "2048 MiB"},
		"memlock that suffices": {map[string]string{"/proc/self/limits": limits("34359738368")},
			"locked memory", OK, "32 GiB"},
		"memlock of root": {map[string]string{"/proc/self/limits": limits("8388608"),
			"/proc/self/status": "Uid:\t0\t0\nGid:\t0\t0\nCapEff:\t000001ffffffffff\n"},
			"locked memory", OK, "CAP_IPC_LOCK"},
		"IOMMU off in the setup": {map[string]string{pci + "iommu_group/type": gone}, "IOMMU",
			Problem, "AMD-Vi"},
		"IOMMU off by the kernel": {map[string]string{"/proc/cmdline": "quiet amd_iommu=off"},
			"IOMMU", Problem, "amd_iommu=off"},
		"IOMMU in pass-through": {map[string]string{pci + "iommu_group/type": "identity\n"},
			"IOMMU", Advice, "iommu=pt"},
		"no XRT": {map[string]string{core: gone, core + version: gone},
			"XRT", Problem, "libxrt-npu2"},
		"XRT without the NPU's part": {map[string]string{plugin: gone,
			plugin + version: gone}, "XRT", Problem, "libxrt_driver_xdna"},
		"XRT of two versions": {map[string]string{plugin + version: gone,
			plugin + ".21.75": ""}, "XRT", Problem, "must be the same"},
		"another XRT": {map[string]string{plugin + version: gone, core + version: gone,
			plugin + ".30.10": "", core + ".30.10": ""}, "XRT", Advice, "2.30.10"},
		"XRT of another release than the driver": {map[string]string{module: "2.21.0_20251107"},
			"XRT", Advice, "2.21.0"},
		"a driver with a version of its own": {map[string]string{module: "0.7.1"}, "XRT", OK, "25.00"},
		"old firmware": {map[string]string{pci +
			"fw_version": "1.0.0.63\n"}, "firmware", Advice, "linux-firmware"},
		"firmware not named": {map[string]string{pci + "fw_version": gone},
			"firmware", Advice, "xrt-smi"},
		"balanced power": {map[string]string{"/sys/firmware/acpi/platform_profile": "balanced\n"},
			"power mode", Advice, "performance"},
		"on battery": {map[string]string{"/sys/class/power_supply/AC/online": "0\n"},
			"power mode", Advice, "plug"},
		"somebody else's NPU": {map[string]string{"/proc/4711/comm": "flm\n",
			"/proc/4711/fd/9": "-> /dev/accel/accel0"}, "other users", Advice, "flm (4711)"},
	} {
		files := owners()
		maps.Copy(files, tc.change)
		maps.DeleteFunc(files, func(_, text string) bool { return text == gone })
		got := examine(t, files, "")
		f := got[tc.subject]
		if f.Status != tc.status || !strings.Contains(f.Text+f.Advice, tc.want) {
			t.Errorf("%s: %+v, want %s with %q", name, f, tc.status, tc.want)
		}
		for subject, f := range got { // no other problems
			if f.Status == Problem && subject != tc.subject {
				if name == "no NPU" || name == "XDNA 1" {
					continue
				}
				t.Errorf("%s: also %s: %s", name, subject, f.Text)
			}
		}
	}
}

// Examine works on a machine without any of the files and skips NPU checks if there is no NPU.
func TestEmptyMachine(t *testing.T) {
	got := examine(t, map[string]string{"/etc/hostname": "bare\n"}, "")
	for _, subject := range []string{"device node", "IOMMU", "firmware", "power mode", "other users"} {
		if f, ok := got[subject]; ok {
			t.Errorf("%s without an NPU: %+v", subject, f)
		}
	}
	if got["NPU"].Status != Problem || got["XRT"].Status != Problem {
		t.Errorf("%+v", got)
	}
}

func TestArtefacts(t *testing.T) {
	dir := t.TempDir()
	const text = `{"entries": {"o_ffn": {"output_binary": "o_ffn.elf", "kernel": "main:o_ffn"},
		"lm_head_gemv": {"output_binary": "lm_head_gemv.elf", "kernel": "main:lm_head_gemv"}}}`
	if got := examine(t, owners(), dir)["artefacts"]; got.Status != Problem ||
		!strings.Contains(got.Text, "build_peano") {
		t.Errorf("an empty folder: %+v", got)
	}
	for _, f := range []struct{ name, text string }{{"manifest.json", text}, {"o_ffn.elf", "x"}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got := examine(t, owners(), dir)["artefacts"]; got.Status != Problem ||
		!strings.Contains(got.Text, "lm_head_gemv.elf") {
		t.Errorf("missing binary: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "lm_head_gemv.elf"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := examine(t, owners(), dir)["artefacts"]; got.Status != OK ||
		!strings.Contains(got.Text, "lm_head_gemv, o_ffn") {
		t.Errorf("complete folder: %+v", got)
	}
}

// Examine works on the machine that runs the test.
func TestThisMachine(t *testing.T) {
	r := Examine(nil)
	if len(r.Findings) < 5 {
		t.Errorf("%+v", r)
	}
	for _, f := range r.Findings {
		t.Logf("%s %s: %s %s", f.Status, f.Subject, f.Text, f.Advice)
		if f.Status == Problem && f.Advice == "" && f.Subject != "artefacts" {
			t.Errorf("%s: problem without advice: %s", f.Subject, f.Text)
		}
	}
}
