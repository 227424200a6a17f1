package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/npu/xdna"
)

func devicesCommand(a *app) *cobra.Command {
	var flags deviceFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the devices of this machine",
		Example: `  npukit devices
  npukit devices --json`,
		Args: arguments(),
		RunE: a.action(func(context.Context, *cobra.Command, []string) error {
			list, err := listDevices(flags)
			if err != nil {
				return err
			}
			if asJSON {
				return output.JSON(a.out, list)
			}
			rows := [][]string{}
			for _, d := range list {
				rows = append(rows, []string{d.Device, d.describe()})
			}
			return output.Table(a.out, "", rows)
		}),
	}
	cmd.Flags().Var((*positive)(&flags.threads), "threads", "use `N` threads (default all cores)")
	cmd.Flags().StringVar(&flags.kernels, "kernels", "", "kernels of the cpu, `NAME`, as in run")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	flags.device = "cpu"
	return cmd
}

// deviceEntry is a kind of device and whether it is available.
type deviceEntry struct {
	Device    string   `json:"device"`
	Available bool     `json:"available"`
	Virtual   bool     `json:"virtual,omitempty"`
	Emulated  bool     `json:"emulated,omitempty"` // the emulated NPU of npukit's tests
	Reason    string   `json:"reason,omitempty"`   // why it is not available
	Processor string   `json:"processor,omitempty"`
	Threads   int      `json:"threads,omitempty"`
	Kernels   string   `json:"kernels,omitempty"`
	InPlace   []string `json:"in_place,omitempty"` // weight types that are used in the mapped file

	// Weight types that are compressed losslessly to three quarters of their size.
	Compressed []string `json:"compressed,omitempty"`
}

func (d deviceEntry) describe() string {
	if !d.Available {
		return d.Reason
	}
	if d.Virtual {
		return fmt.Sprintf("%s: computes with the array's numbers on %s, and predicts its times", d.Processor,
			output.Count(d.Threads, "thread"))
	}
	if d.Device == "xdna" {
		return d.Processor
	}
	text := fmt.Sprintf("%s, %s, kernels %s; reads %s weights in place", d.Processor, output.Count(d.Threads, "thread"),
		d.Kernels, strings.Join(d.InPlace, ", "))
	if len(d.Compressed) > 0 {
		text += fmt.Sprintf(", compresses %s without loss", strings.Join(d.Compressed, ", "))
	}
	return text
}

func listDevices(f deviceFlags) (list []deviceEntry, err error) {
	dev, err := f.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	info := dev.Info()
	d := deviceEntry{Device: info.Kind, Available: true, Processor: processor(), Threads: info.Threads,
		Kernels: kernelsOf(dev)}
	for _, t := range info.InPlace {
		d.InPlace = append(d.InPlace, t.String())
	}
	for _, t := range info.Compressed {
		d.Compressed = append(d.Compressed, t.String())
	}
	return []deviceEntry{
		d,
		{Device: "sim", Available: true, Virtual: true, Processor: "virtual XDNA 2 (8 x 4 cores)",
			Threads: info.Threads, Kernels: kernelsOf(dev), InPlace: []string{"BF16"}},
		xdnaEntry(),
	}, nil
}

// xdnaEntry returns the NPU's entry, with the reason if it is not available.
func xdnaEntry() deviceEntry {
	d := deviceEntry{Device: "xdna"}
	dev, err := xdna.Open(context.Background(), nil)
	if err != nil {
		d.Reason = err.Error()
		return d
	}
	info := dev.Info()
	d.Available, d.Processor, d.Threads, d.InPlace = true, info.Name, info.Threads, []string{"BF16"}
	d.Emulated = os.Getenv("NPUEMU_ROOT") != "" // where the emulated driver of internal/xrttest finds its device
	if err := dev.Close(); err != nil {
		d.Reason = err.Error()
	}
	return d
}

// processor returns the name of the processor, or the architecture if the system does not report
// it.
func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}
