#!/bin/sh
# Checks what is built with the tag xrt: lint.sh STATICCHECK. It needs XRT's headers, which the
# tests' sysroot has, or the machine; without them it says that this was not checked, and passes.
set -eu
cd "$(dirname "$0")/../.."
staticcheck=$1
packages="./xrt/... ./examples/vadd/... ./npu/xdna/..."

skip() {
	echo "lint: what is built with -tags xrt was not checked: $1"
	exit 0
}

[ "$(go env GOOS)" = linux ] || skip "XRT is for Linux"
[ "$(go env CGO_ENABLED)" = 1 ] || skip "cgo is off, or there is no C compiler"
command -v "$(go env CXX)" >/dev/null 2>&1 || skip "there is no C++ compiler, $(go env CXX)"
if ! echo '#include <xrt/xrt_device.h>' | "$(go env CXX)" -std=c++17 -fsyntax-only -x c++ - 2>/dev/null; then
	sysroot=$(sh scripts/xrt/sysroot.sh) || skip \
		"XRT's headers are not here, and its packages are not to be had (the reason is above)"
	. scripts/xrt/environment.sh
fi
# shellcheck disable=SC2086 # packages are words
go vet -tags xrt $packages
# shellcheck disable=SC2086
go run "$staticcheck" -tags xrt $packages
