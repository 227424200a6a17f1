//go:build !unix

package journal

// NoFollow is 0: other systems have no flag for it.
const NoFollow = 0
