#!/bin/sh
# Runs the short tests of npu/cpu with its C code under AddressSanitizer and UndefinedBehaviorSanitizer:
# the kernels of every instruction set that this machine can execute and, if it has AVX-512 BF16, those
# of AMX with the matrix unit emulated in C.
# More arguments are passed to go test: sh scripts/sanitize.sh -run Quantized. If the sanitizers are not
# available, it prints why and passes.
set -eu
cd "$(dirname "$0")/.."

skip() {
	echo "sanitize: the C kernels were not tested under sanitizers: $1"
	exit 0
}

[ "$(go env CGO_ENABLED)" = 1 ] || skip "cgo is off, or there is no C compiler"

# Only C is instrumented: Go checks its own bounds, and go test -asan would make the references that
# the tests compute ten times slower. A wrapper around the compiler appends -O1 and -g, because the last
# of such flags wins and the kernels are built with -O3, which takes minutes with every check, and -g0.
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
cc=$(go env CC) # words, quoted as the shell has them
printf '#!/bin/sh\nexec %s "$@" -O1 -g\n' "$cc" >"$tools/cc"
chmod +x "$tools/cc"

checks="-fsanitize=address,undefined"
compile="$checks -fno-sanitize-recover=undefined"

# The sanitizers' libraries are packages of their own on some systems.
echo 'int main(void) { return 0; }' >"$tools/probe.c"
# shellcheck disable=SC2086 # the flags are words
"$tools/cc" $compile -o "$tools/probe" "$tools/probe.c" 2>"$tools/errors" && "$tools/probe" >>"$tools/errors" \
	2>&1 || {
	head -n 3 "$tools/errors" | cut -c1-300 | sed 's/^/  | /'
	skip "$cc makes no program that runs with $checks"
}

# The Go runtime handles signals, and what is mapped for the life of a device is no leak.
ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigill=0 UBSAN_OPTIONS=print_stacktrace=1 \
	CGO_ENABLED=1 CC="'$tools/cc'" \
	CGO_CFLAGS="-g $compile" CGO_LDFLAGS="$checks" \
	go test -short -timeout 15m -tags emulatedamx "$@" ./npu/cpu/...
