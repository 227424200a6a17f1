package xrttest

// Kernel computes a program. args holds the device memory of each argument, from its address to the
// end of its buffer, or nil if the program does not use the argument. The slices are valid during
// the call. If Kernel returns an error, the run ends in the state Failed.
type Kernel func(args [][]byte) error

// Stats holds the device's current resources, and counters since the process started.
type Stats struct {
	Contexts, Buffers, SyncObjects int // currently open
	// current sizes; HeapBytes is the part of the instruction heap in use
	BufferBytes, HeapBytes, LockedBytes int64
	MallocBytes                         int64 // C heap of the process, including XRT's
	Commands, Chains, Syncs, Ioctls     int64 // counters
}
