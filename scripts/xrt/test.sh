#!/bin/sh
# Runs the tests of the XRT binding on the emulated NPU, under the race detector, against the unmodified XRT libraries of Debian sid:
# test.sh [ARGUMENT OF GO TEST...]. Where that cannot be, it says why and passes.
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
emulator=$(sh scripts/xrt/emulator.sh "$sysroot")

lib=$sysroot/root/usr/lib/x86_64-linux-gnu
CGO_CXXFLAGS="-O2 -isystem $sysroot/root/usr/include" CGO_LDFLAGS="-L$lib -Wl,--allow-shlib-undefined"
export CGO_CXXFLAGS CGO_LDFLAGS
sh scripts/xrt/test-emulator.sh "$sysroot" "$emulator"
go vet -tags xrt ./xrt/... ./examples/vadd/...
go test -tags xrt -race -timeout 10m -exec "sh $PWD/scripts/xrt/exec.sh $sysroot $emulator" "$@" ./xrt/... ./examples/vadd/...
