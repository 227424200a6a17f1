//go:build cgo && !windows && (amd64 || arm64)

// Kernels for any machine.

#include "vec_generic.h"

#include "kernels.h"
