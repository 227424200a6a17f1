package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(),
		RunE: func(*cobra.Command, []string) error {
			a.started = true
			_, err := fmt.Fprintln(a.out, version())
			return err
		},
	}
}

// version describes the build from what the Go toolchain has put into it.
func version() string {
	v, cgo := "devel", "without cgo"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "CGO_ENABLED" && s.Value == "1" {
				cgo = "with cgo"
			}
		}
	}
	return fmt.Sprintf("npukit %s (%s, %s/%s, %s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH, cgo)
}
