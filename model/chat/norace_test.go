//go:build !race

package chat

import "time"

// patience is how long a hostile template may take.
const patience = 20 * time.Second
