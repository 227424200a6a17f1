// Package doctor checks whether a machine can run models on its NPU and how to fix it if not.
//
//	r := doctor.Examine(&doctor.Options{Artefacts: "build_peano"})
//	for _, f := range r.Findings {
//		fmt.Println(f.Status, f.Subject, f.Text, f.Advice)
//	}
//
// It reads files in /proc, /sys, /dev and library folders. It opens no device and changes nothing.
// Findings are in the order in which they should be fixed. If Options.Root is set, all files are
// read below it; tests use it to simulate machines.
package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Status is the severity of a finding.
type Status string

// A Problem prevents models from running on the NPU. Advice does not.
const (
	OK      Status = "ok"
	Problem Status = "problem"
	Advice  Status = "advice"
)

// Finding is the result of one check.
type Finding struct {
	Subject string `json:"subject"`          // e.g. "device node"
	Status  Status `json:"status"`           // ok, problem or advice
	Text    string `json:"text"`             // the finding
	Advice  string `json:"advice,omitempty"` // how to fix it
}

// Report is the result of all checks.
type Report struct {
	Emulated bool      `json:"emulated"` // the NPU is emulated by package internal/xrttest
	Findings []Finding `json:"findings"`
}

// Problems returns the number of findings with status Problem.
func (r *Report) Problems() (n int) {
	for _, f := range r.Findings {
		if f.Status == Problem {
			n++
		}
	}
	return n
}

// Options configures Examine. The zero value and nil select the defaults.
type Options struct {
	Root      string // read /proc, /sys, /dev, /etc and /usr below this folder; "" for the machine's own
	Artefacts string // folder of compiled programs, see xdna.ReadArtefacts; "" for none
}

// Examine runs all checks.
func Examine(opts *Options) *Report {
	var o Options
	if opts != nil {
		o = *opts
	}
	m := &machine{root: o.Root, devices: o.Root, report: &Report{}}
	if o.Root == "" {
		// The emulated driver of package internal/xrttest has its own /sys and /dev.
		if emulated := os.Getenv("NPUEMU_ROOT"); emulated != "" {
			m.devices, m.report.Emulated = emulated, true
		}
	}
	m.processor()
	m.npu()
	m.driver()
	if m.bdf != "" {
		m.node()
	}
	m.memlock()
	if m.bdf != "" {
		m.iommu()
	}
	m.xrt()
	if m.bdf != "" {
		m.firmware()
		m.power()
		m.others()
	}
	m.artefacts(o.Artefacts)
	return m.report
}

// machine is the machine being examined.
type machine struct {
	root    string // of /proc, /etc and /usr
	devices string // of /sys and /dev
	report  *Report

	bdf string // PCI address of the NPU, "" if not found
}

func (m *machine) find(subject string, s Status, advice, format string, args ...any) {
	m.report.Findings = append(m.report.Findings, Finding{subject, s, fmt.Sprintf(format, args...), advice})
}

// path returns the path of a file of the machine.
func (m *machine) path(name string) string {
	root := m.root
	if strings.HasPrefix(name, "/sys/") || strings.HasPrefix(name, "/dev/") {
		root = m.devices
	}
	return filepath.Join(root, name)
}

// maxFile is the maximum number of bytes read from a file; files in /proc and /sys are short.
const maxFile = 1 << 20

// read returns the contents of a file without surrounding space, or "" if it cannot be read.
func (m *machine) read(name string) string {
	f, err := os.Open(m.path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	data := make([]byte, maxFile)
	n := 0
	for n < len(data) {
		k, err := f.Read(data[n:])
		n += k
		if err != nil {
			break
		}
	}
	return strings.TrimSpace(string(data[:n]))
}

// exists reports whether the file exists.
func (m *machine) exists(name string) bool {
	_, err := os.Stat(m.path(name))
	return err == nil
}

// field returns the value of the line "name: value" in text, or "" if there is none.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
