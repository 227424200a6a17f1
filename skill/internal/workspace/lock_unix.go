//go:build unix

package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/npukit/npukit/skill/internal/journal"
	"golang.org/x/sys/unix"
)

// lockFile takes a lock that the kernel releases when the process ends. The file has the process id
// of its holder.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|journal.NoFollow, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, readErr := os.ReadFile(path)
		closeErr := f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid := strings.TrimSpace(string(holder))
			if readErr != nil || pid == "" {
				pid = "unknown"
			}
			return nil, errors.Join(fmt.Errorf("%w: process %s; wait for it, or use another folder", ErrLocked, pid),
				closeErr)
		}
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), closeErr)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
