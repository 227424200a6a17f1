#!/bin/sh
# Builds the static library that github.com/daulet/tokenizers links, once, and prints the
# CGO_LDFLAGS that find it:
#
#	CGO_LDFLAGS=$(sh model/tokenizer/hftokenizers.sh) go test -tags hftokenizers ./model/tokenizer
#
# The sources are in the Go module itself, at the version that go.mod pins. cargo downloads the
# crates and compiles them (about a minute) into npukit's cache folder. A rename ends the work, so an
# interrupted build leaves nothing that looks finished.
set -eu

module=github.com/daulet/tokenizers
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

say() { echo "hftokenizers: $*" >&2; }

command -v cargo >/dev/null 2>&1 || {
	say "cargo is not installed; get it from https://rustup.rs or your system's packages"
	exit 1
}
go mod download "$module" >&2
version=$(go list -m -f '{{.Version}}' "$module")
source=$(go list -m -f '{{.Dir}}' "$module")
[ -d "$source" ] || {
	say "the sources of $module $version are not in the module cache"
	exit 1
}

cache=$(sh "$here/../../scripts/cache-dir.sh")
lib=$cache/hftokenizers/$version-$(go env GOOS)-$(go env GOARCH)
case $lib in
*[[:space:]]*)
	say "the cache folder's name has a space, which linker flags cannot hold: $lib (set NPUKIT_CACHE to another)"
	exit 1
	;;
esac
if [ ! -f "$lib/libtokenizers.a" ]; then
	mkdir -p "$lib"
	work=$(mktemp -d "$lib/build.XXXXXX")
	trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM HUP
	say "compiling $module $version with cargo, once, into $lib"
	# The module cache is read-only, and a copy of it would be too.
	mkdir "$work/src"
	cp "$source/Cargo.toml" "$source/Cargo.lock" "$work/"
	cp "$source"/src/*.rs "$work/src/"
	# Cargo.toml declares a benchmark, and cargo wants its file to be there.
	mkdir "$work/benches"
	cp "$source"/benches/* "$work/benches/"
	chmod -R u+w "$work"
	cargo build --release --locked --manifest-path "$work/Cargo.toml" --target-dir "$work/target" >&2
	mv "$work/target/release/libtokenizers.a" "$lib/libtokenizers.a"
fi
echo "-L$lib"
