#!/bin/sh
# Prints the folder of an XRT user space (libraries, headers, aiebu-asm) for the tests of package
# xrt, and makes it first when the cache has none: Debian sid's packages are downloaded (15 MB) and
# unpacked into npukit's cache. Nothing is installed, the machine's own package lists stay as they
# are, and no root is needed.
#
# The packages come from the mirror that the machine's apt uses, and apt checks them with Debian's
# keys. sid moves: the versions that the suite is known to pass with are below, and other ones are
# refused with what to do about it. A sysroot once made stays.
#
# Exit: 0 and the folder on standard output, or 3 and the reason on standard error where it cannot be had here.
set -eu

xrt=2.25.0 # libxrt2, libxrt-npu2, libxrt-dev, libxrt-utils-npu; NPUKIT_XRT_VERSION tries another one
packages="libc6 libgcc-s1 libstdc++6 libuuid1 libxrt2 libxrt-npu2 libxrt-dev uuid-dev linux-libc-dev libxrt-utils-npu"
keys=/usr/share/keyrings/debian-archive-keyring.gpg

cannot() {
	echo "xrt sysroot: $1" >&2
	shift
	for line in "$@"; do echo "  $line" >&2; done
	exit 3
}

wanted=${NPUKIT_XRT_VERSION:-$xrt}
cache=$(sh "$(dirname "$0")/../cache-dir.sh")/xrt
target=$cache/$wanted
if [ -e "$target/tree/complete" ]; then
	echo "$target"
	exit 0
fi

[ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] || cannot \
	"XRT's NPU packages are for Linux on amd64, this is $(uname -s) on $(uname -m)"
command -v apt-get >/dev/null 2>&1 || cannot "there is no apt-get here, which fetches the packages from Debian sid"
command -v dpkg-deb >/dev/null 2>&1 || cannot "there is no dpkg-deb here, which unpacks the packages"
[ -r "$keys" ] || cannot "$keys is missing: apt cannot check Debian's signatures" \
	"Install the package debian-archive-keyring."

mkdir -p "$cache"
work=$(mktemp -d "$cache/.unpack-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mirror=$(sed -n 's,^URIs: *\([^ ]*/debian/\{0\,1\}\)$,\1,p' /etc/apt/sources.list.d/*.sources 2>/dev/null | head -n 1)
[ -n "$mirror" ] || mirror=$(sed -n 's,^deb .*\(http[^ ]*/debian/\{0\,1\}\) .*,\1,p' /etc/apt/sources.list \
	2>/dev/null | head -n 1)
mirror=${mirror:-http://deb.debian.org/debian}

# apt with lists, cache and status of its own. As root it would fetch as the user _apt, who may not write here.
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/deb" "$work/tree"
echo "deb [arch=amd64 signed-by=$keys] $mirror sid main" >"$work/apt/sources.list"
sid() {
	command=$1
	shift
	apt-get -qq -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$work/apt/lists" \
		-o Dir::Cache="$work/apt/cache" -o Dir::State::status=/dev/null -o APT::Architecture=amd64 \
		-o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		-o APT::Update::Error-Mode=any -o Acquire::Retries=2 -o Acquire::http::Timeout=20 "$command" "$@" >&2
}
sid update || cannot "the package lists of sid could not be fetched from $mirror" \
	"Is there a network? Run it again when there is."
# shellcheck disable=SC2086 # packages are words
(cd "$work/deb" && sid download $packages) || cannot "the packages could not be fetched from $mirror" \
	"Run it again later: sid may be changing just now."

for deb in "$work"/deb/*.deb; do
	name=$(dpkg-deb -f "$deb" Package)
	version=$(dpkg-deb -f "$deb" Version)
	case $name in
	libxrt*)
		upstream=${version#*:}
		upstream=${upstream%%-*}
		[ "$upstream" = "$wanted" ] ||
			cannot "sid has $name $upstream now, the suite is known to pass with $wanted" \
				"Try NPUKIT_XRT_VERSION=$upstream make test-xrt; if it passes, set xrt=$upstream in sysroot.sh." \
				"To keep $wanted: unpack its packages from snapshot.debian.org in $target/tree, touch complete."
		;;
	esac
	echo "$name $version" >>"$work/versions"
	dpkg-deb -x "$deb" "$work/tree"
done
rm -rf "$work/apt" "$work/deb"
# What no test uses is most of the size.
rm -rf "$work/tree/usr/share" "$work/tree/usr/lib/x86_64-linux-gnu/gconv" "$work"/tree/usr/lib/x86_64-linux-gnu/*.a
touch "$work/tree/complete"
rm -rf "$target"
mv "$work" "$target" 2>/dev/null || [ -e "$target/tree/complete" ] || cannot "cannot rename $work to $target"
echo "xrt sysroot: unpacked XRT $wanted in $target" >&2
echo "$target"
