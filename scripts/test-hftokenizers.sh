#!/bin/sh
# Runs the tokenizer's tests with the Rust library of Hugging Face beside our own (build tag
# hftokenizers): both must give the same ids. The library is compiled by cargo, so the tests run
# only where cargo, cgo and the crates are; elsewhere this says why not.
set -eu

skip() {
	echo "hftokenizers: not tested: $1"
	exit 0
}

command -v cargo >/dev/null 2>&1 || skip "cargo is not installed, and the library is written in Rust"
[ "$(go env CGO_ENABLED)" = 1 ] || skip "cgo is off"
flags=$(sh model/tokenizer/hftokenizers.sh) || skip "the library could not be built (its output is above)"
CGO_LDFLAGS=$flags go test -timeout 10m -tags hftokenizers ./model/tokenizer/...
