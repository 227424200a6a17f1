//go:build cgo && !windows && (amd64 || arm64)

// Kernels for any machine.

#include "../csrc/vec_generic.h"

#include "../csrc/kernels.h"

const npk_kernels npk_generic = BASE_TABLE;
