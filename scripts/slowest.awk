# Reads the output of go test -v. Prints the lines of each package as go test without -v does: those of
# its tests only if it fails. At the end it lists the twenty slowest tests.

/^=== (RUN|PAUSE|CONT|NAME)/ { inside = 1 }

/^--- (PASS|FAIL|SKIP): / {
	tests++
	name[tests] = $3
	seconds[tests] = substr($4, 2) + 0
}

/^(ok  |FAIL)\t/ {
	if ($1 == "FAIL") printf "%s", held
	for (; placed < tests; ) package[++placed] = $2
	held = ""
	inside = 0
}

inside { held = held $0 "\n"; next }
{ print; fflush() }

END {
	printf "%s", held
	if (!tests) exit
	print "the slowest tests:"
	fflush()
	for (i = 1; i <= tests; i++)
		printf "%9.2f s  %s %s\n", seconds[i], package[i], name[i] | "sort -rn | head -n 20"
}
