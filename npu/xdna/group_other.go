//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package xdna

import "os/exec"

// ownGroup leaves the command as it is: its end ends the compiler alone.
func ownGroup(*exec.Cmd) {}
