#!/bin/sh
# Runs every fuzz test of the module for a while, one after the other, and prints how often each ran.
#
#   sh scripts/fuzz.sh [TIME] [LEAST] [REGEXP]
#
# TIME is what go test -fuzztime takes: 30s unless told, 1000000x for a million executions. A test that
# ran fewer than LEAST times (2000 unless told) fails: it fuzzes nothing. REGEXP chooses tests by name.
# FUZZFLAGS are more flags for go test, such as -parallel=1.
#
# Without a limit, Go spends up to a minute minimizing each new input: six executions in 26 s.
set -eu
cd "$(dirname "$0")/.."

time=${1:-30s} least=${2:-2000} regexp=${3:-.}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
table= failed=
# Folders with fuzz tests, so that not every package is linked to be asked for them.
folders=$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u)
for package in $(go list $folders); do
	for name in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' | grep -E "$regexp" || :); do
		echo "fuzz: $package $name for $time"
		status=0
		# shellcheck disable=SC2086 # the flags are words
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 20x ${FUZZFLAGS:-} "$package" \
			>"$log" 2>&1 || status=$?
		# The last of: fuzz: elapsed: 30s, execs: 34860 (1320/sec), new interesting: 488 (total: 1068)
		line=$(grep '^fuzz: elapsed: .* execs: ' "$log" | tail -n 1)
		runs=$(echo "$line" | sed -n 's/.* execs: \([0-9]*\) .*/\1/p')
		new=$(echo "$line" | sed -n 's/.* new interesting: \([0-9]*\) .*/\1/p')
		result=passed
		if [ $status != 0 ]; then
			cat "$log"
			result="FAILED"
		elif [ "${runs:-0}" -lt "$least" ]; then
			result="FAILED: fewer than $least executions"
		fi
		[ "$result" = passed ] || failed="$failed $name"
		row=$(printf '%-50s %10s executions %6s new inputs  %s' "${package#*/*/*/} $name" "${runs:-0}" \
			"${new:-0}" "$result")
		echo "$row"
		table="$table$row
"
	done
done
printf '%s' "$table"
[ -n "$table" ] || { echo "fuzz: no fuzz test matches $regexp" >&2 && exit 1; }
[ -z "$failed" ] || { echo "fuzz: failed:$failed" >&2 && exit 1; }
