// Package doctor says what a machine has and what it lacks to run models on its NPU.
//
//	r := doctor.Examine(&doctor.Options{Artefacts: "build_peano"})
//	for _, f := range r.Findings {
//		fmt.Println(f.Status, f.Subject, f.Text, f.Advice)
//	}
//
// It reads files below /proc, /sys, /dev and the folders of libraries, opens no device and changes nothing. The findings come in the order
// in which an owner would mend them. Options.Root reads all of them below another folder, which is how the tests have an owner's machine,
// one without an NPU, and ones with each fault.
package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Status is what a finding means.
type Status string

// A Problem keeps models from running on the NPU; Advice does not, and is worth knowing.
const (
	OK      Status = "ok"
	Problem Status = "problem"
	Advice  Status = "advice"
)

// Finding is one thing that was looked at.
type Finding struct {
	Subject string `json:"subject"`          // "device node"
	Status  Status `json:"status"`           // ok, problem or advice
	Text    string `json:"text"`             // what is there
	Advice  string `json:"advice,omitempty"` // what to do
}

// Report is all findings.
type Report struct {
	Emulated bool      `json:"emulated"` // the NPU is the emulated one of npukit's tests
	Findings []Finding `json:"findings"`
}

// Problems is the number of findings that keep models from running.
func (r *Report) Problems() (n int) {
	for _, f := range r.Findings {
		if f.Status == Problem {
			n++
		}
	}
	return n
}

// Options configures Examine. The zero value, and nil, mean the defaults.
type Options struct {
	Root      string // read /proc, /sys, /dev, /etc and /usr below this folder; "" for the machine's own
	Artefacts string // folder of compiled programs, see xdna.ReadArtefacts; "" for none
}

// Examine looks at the machine.
func Examine(opts *Options) *Report {
	var o Options
	if opts != nil {
		o = *opts
	}
	m := &machine{root: o.Root, devices: o.Root, report: &Report{}}
	if o.Root == "" {
		// The emulated driver of package xrt/xrttest shows XRT a /sys and a /dev of its own.
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

// machine is what is examined.
type machine struct {
	root    string // of /proc, /etc and /usr
	devices string // of /sys and /dev
	report  *Report

	bdf string // PCI address of the NPU, once found
}

func (m *machine) find(subject string, s Status, advice, format string, args ...any) {
	m.report.Findings = append(m.report.Findings, Finding{subject, s, fmt.Sprintf(format, args...), advice})
}

// path is where a file of the machine lies.
func (m *machine) path(name string) string {
	root := m.root
	if strings.HasPrefix(name, "/sys/") || strings.HasPrefix(name, "/dev/") {
		root = m.devices
	}
	return filepath.Join(root, name)
}

// maxFile bounds what is read of a file: those of /proc and /sys are short.
const maxFile = 1 << 20

// read is a file's text without spaces around it, "" when it cannot be read.
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

// exists reports whether there is such a file.
func (m *machine) exists(name string) bool {
	_, err := os.Stat(m.path(name))
	return err == nil
}

// field is what follows "name:" in a text of such lines.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
