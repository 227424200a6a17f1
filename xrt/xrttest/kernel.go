package xrttest

// Kernel computes a program. args are the device's memory of each argument, from its address to the end of its buffer, and nil where the
// program does not use the argument. They are valid during the call. An error ends the run in the state Failed.
type Kernel func(args [][]byte) error

// Stats counts what the device holds, and what it did since the process started.
type Stats struct {
	Contexts, Buffers, SyncObjects      int   // alive
	BufferBytes, HeapBytes, LockedBytes int64 // alive; HeapBytes is what is taken of the heap for instructions
	MallocBytes                         int64 // that the process holds of C's heap, as XRT does
	Commands, Chains, Syncs, Ioctls     int64 // so far
}
