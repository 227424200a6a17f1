package chat

import "time"

// patience is how long a hostile template may take on a busy machine.
const patience = 10 * time.Second
