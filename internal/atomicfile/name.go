package atomicfile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"time"
)

// started tells leftovers of an earlier process with the same id from files of this one: in a
// container every run may be process 1.
var started = time.Now()

// tempName returns a name that says which process uses it.
func tempName() string {
	return fmt.Sprintf(".npukit-%d-%016x.tmp", os.Getpid(), rand.Uint64())
}

var tempPattern = regexp.MustCompile(`^\.npukit-([0-9]{1,10})-[0-9a-f]{16}\.tmp$`)

// parseName returns the process id in a temporary name, and reports whether it is one.
func parseName(name string) (pid int, ok bool) {
	m := tempPattern.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	pid, err := strconv.Atoi(m[1])
	return pid, err == nil
}

// inUse reports whether a temporary file may belong to a process that lives. The lock decides
// across containers, where process ids mean nothing; the id covers the moment before a new file is
// locked.
func inUse(path string, pid int) bool {
	info, err := os.Lstat(path)
	if err != nil || !owned(info) || locked(path) {
		return true
	}
	if pid == os.Getpid() {
		return !info.ModTime().Before(started)
	}
	return alive(pid)
}
