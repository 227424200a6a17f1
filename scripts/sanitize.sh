#!/bin/sh
# Runs the short tests of npu/cpu with its C code under AddressSanitizer and UndefinedBehaviorSanitizer: every kernel variant that this machine can execute.
# More arguments go to go test: sh scripts/sanitize.sh -run Quantized
set -eu
cd "$(dirname "$0")/.."

# Only C is instrumented: Go checks its own bounds, and go test -asan would make the references that the tests compute ten times slower. The last -O wins, so it
# is the one here, by way of a compiler of our own: kernels at -O3 with every check take minutes to compile.
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
printf '#!/bin/sh\nexec %s "$@" -O1\n' "${CC:-gcc}" >"$tools/cc"
chmod +x "$tools/cc"

# The Go runtime handles signals, and what is mapped for the life of a device is no leak.
ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigill=0 UBSAN_OPTIONS=print_stacktrace=1 \
	CGO_ENABLED=1 CC="$tools/cc" \
	CGO_CFLAGS="-g -fsanitize=address,undefined -fno-sanitize-recover=undefined" CGO_LDFLAGS="-fsanitize=address,undefined" \
	go test -short -timeout 15m "$@" ./npu/cpu
