package timing

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// tick is the unit of /proc/stat, USER_HZ, which is 100 on every architecture that Go runs on but
// alpha.
const tick = 0.01

// readTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq,
// steal, each in ticks, summed over all cores. See proc_stat(5).
func readTimes() (t cpuTimes, ok bool) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, false
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return t, false
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseFloat(string(f), 64)
		if err != nil {
			return t, false
		}
		t.all += n * tick
		if i != 3 && i != 4 { // idle and iowait
			t.busy += n * tick
		}
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return t, false
	}
	t.own = (time.Duration(own.Utime.Nano()) + time.Duration(own.Stime.Nano())).Seconds()
	return t, true
}
