//go:build race

package chat

import "time"

// patience is how long a hostile template may take. The race detector makes Go some ten times slower.
const patience = 2 * time.Minute
