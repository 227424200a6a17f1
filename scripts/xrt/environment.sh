# Sourced with $sysroot set: what a compiler needs to find the sysroot's XRT, and in $link what go build does.
CPLUS_INCLUDE_PATH=$sysroot/tree/usr/include
LIBRARY_PATH=$sysroot/tree/usr/lib/x86_64-linux-gnu
export CPLUS_INCLUDE_PATH LIBRARY_PATH
# sid's libraries want a newer libc than the machine's; they run with their own.
# shellcheck disable=SC2034 # used by who sources this
link=-ldflags=-extldflags=-Wl,--allow-shlib-undefined
