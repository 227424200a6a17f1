//go:build cgo && (amd64 || arm64)

// Kernels for any machine.

#include "vec_generic.h"

#include "kernels.h"
