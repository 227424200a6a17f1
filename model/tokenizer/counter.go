package tokenizer

import "sync/atomic"

// counter counts up to a limit and is safe for concurrent use.
type counter struct{ n atomic.Int64 }

// below adds one and reports whether the limit had not been reached.
func (c *counter) below(limit int64) bool { return c.n.Load() < limit && c.n.Add(1) <= limit }
