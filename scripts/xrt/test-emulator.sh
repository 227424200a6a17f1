#!/bin/sh
# Runs the emulated driver's own tests, which are C: test-emulator.sh SYSROOT EMULATOR.
set -eu
sysroot=$1
emulator=$2
scripts=$(cd "$(dirname "$0")" && pwd)
src=$scripts/../../internal/xrttest/emulator
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc="${CC:-cc} -std=gnu11 -g -O1 -Wall -Wextra -Werror"

# The parts without ioctls under the sanitizers, where the compiler has them.
sanitize=-fsanitize=address,undefined
echo 'int main(void) { return 0; }' >"$tmp/probe.c"
$cc $sanitize -o "$tmp/probe" "$tmp/probe.c" 2>/dev/null && "$tmp/probe" || sanitize=
for part in range stream; do
	$cc $sanitize -o "$tmp/$part" "$src/tests/${part}_test.c" "$src/$part.c"
	"$tmp/$part"
done
$cc '-D__counted_by(x)=' -D_GNU_SOURCE -idirafter "$sysroot/tree/usr/include" -o "$tmp/driver" \
	"$src/tests/driver_test.c" -ldl
sh "$scripts/exec.sh" "$sysroot" "$emulator" "$tmp/driver"
echo "ok  	the emulated driver (C)"
