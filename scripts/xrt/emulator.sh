#!/bin/sh
# Builds the emulated driver and prints the path of its library: emulator.sh SYSROOT. It is built
# again when its source changed.
set -eu
src=$(cd "$(dirname "$0")/../../internal/xrttest/emulator" && pwd)
root=$1/tree
key=$(cat "$src"/*.c "$src"/*.h | cksum | tr -d ' ')
out=$1/npuemu-$key.so
if [ ! -e "$out" ]; then
	tmp=$(mktemp "$1/.npuemu-XXXXXX")
	# The driver's header is Debian sid's and comes last, so that everything else is the compiler's own.
	${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -Werror -shared -fPIC -fvisibility=default -pthread \
		'-D__counted_by(x)=' -D_GNU_SOURCE \
		-idirafter "$root/usr/include" -o "$tmp" "$src"/*.c -ldl >&2 || { rm -f "$tmp"; exit 1; }
	find "$1" -name "npuemu-*.so" -mtime +7 -delete
	mv "$tmp" "$out"
fi
echo "$out"
