#!/bin/sh
# Runs every fuzz test of the module for the given time each (30s unless told), one after the other: go test fuzzes one at a time.
set -eu

time=${1:-30s}
for package in $(go list ./...); do
	for fuzz in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || :); do
		echo "fuzz: $package $fuzz for $time"
		go test -run '^$' -fuzz "^$fuzz\$" -fuzztime "$time" "$package"
	done
done
