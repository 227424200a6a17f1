#!/bin/sh
# Runs the tests of the XRT binding on the emulated NPU, under the race detector, against the
# unmodified XRT libraries of Debian sid: test.sh [ARGUMENT OF GO TEST...]. Where that cannot be, it
# says why and passes.
set -eu
cd "$(dirname "$0")/../.."

skip() {
	echo "xrt: not tested on the emulated NPU: $1"
	exit 0
}

[ "$(go env GOOS)/$(go env GOARCH)" = linux/amd64 ] || skip "XRT's NPU packages are for Linux on amd64"
[ "$(go env CGO_ENABLED)" = 1 ] || skip "cgo is off, or there is no C compiler"
command -v "$(go env CXX)" >/dev/null 2>&1 || skip "there is no C++ compiler, $(go env CXX)"
sysroot=$(sh scripts/xrt/sysroot.sh) || skip "XRT's packages are not to be had (the reason is above)"
case $PWD:$sysroot in
*[[:space:]]* | *:*:*)
	skip "paths with a space or a colon do not work: $PWD, $sysroot (NPUKIT_CACHE names another cache)" ;;
esac
emulator=$(sh scripts/xrt/emulator.sh "$sysroot")

sh scripts/xrt/test-emulator.sh "$sysroot" "$emulator"

# Paths in the environment, and no CGO_ variables, which would be part of every cgo package's
# identity: npu/cpu is then compiled once for this and for go test -race.
. scripts/xrt/environment.sh
limit=10m
[ -z "${NPUKIT_LONG:-}" ] || limit=60m # a whole deployment is among the tests then
packages="./xrt/... ./internal/xrttest/... ./internal/doctor/... ./examples/vadd/... ./npu/xdna/..."
run="sh $PWD/scripts/xrt/exec.sh $sysroot $emulator"
# shellcheck disable=SC2086 # packages are words
go vet -tags xrt $packages
# shellcheck disable=SC2086
go test -tags xrt -race -timeout "${NPUKIT_TIMEOUT:-$limit}" "$link" -exec "$run" "$@" $packages
# Of the command, what an owner of an NPU sees.
go test -tags xrt -timeout 5m "$link" -exec "$run" -run CommandsSeeTheNPU ./cmd/npukit
# Machines with shared virtual addresses give buffers other addresses, and the xdna library another path.
go test -tags xrt -race -timeout 5m "$link" -exec "env NPUEMU_SVA=1 $run" "$@" ./xrt
