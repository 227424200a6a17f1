//go:build unix

package journal

import "golang.org/x/sys/unix"

// noFollow opens no link: one in a foreign workspace must not name the file that is written.
const NoFollow = unix.O_NOFOLLOW
