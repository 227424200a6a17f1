// Package csrc holds the C headers that the kernels of all instruction sets are built from.
package csrc

import "embed"

// Headers are the files of this package. The go command rebuilds a package if a header in its own
// folder changes, and only then. Embedding the headers makes them part of this package, so that the
// packages that import it are rebuilt as well. Nothing reads Headers, and the linker drops it.
//
//go:embed *.h
var Headers embed.FS
