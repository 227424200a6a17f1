// Package controlcode reads what a compiled program does with its arguments: how many there are, how
// many bytes of each its transfers reach, and the pitch of strided transfers. An ELF states no
// shapes, so this is all that can be compared with a program before its first run.
//
// Formats: transactions of aie-rt, version 0.1; DMA descriptors of shim tiles, AMD AM020; ELFs of
// AMD's assembler aiebu.
package controlcode

// Usage is how a program uses an argument.
type Usage struct {
	Reach   int64   // bytes from the start of the argument to the end of the last transfer; 0 if unused
	Pitches []int64 // distances in bytes between the rows of strided transfers, ascending
}

// Program is the use of all arguments by one program.
type Program struct {
	Arguments []Usage // as many as the kernel declares, or for instructions as many as they use
	Transfers int     // descriptors that address an argument
}
