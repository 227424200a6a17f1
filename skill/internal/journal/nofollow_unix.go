//go:build unix

package journal

import "golang.org/x/sys/unix"

// NoFollow makes opening a link an error: a link in a foreign workspace must not name another file.
const NoFollow = unix.O_NOFOLLOW
