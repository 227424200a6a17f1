package xdna2

// Array is a chip as data: what a program can use of it. The rules take every number from here, so that a smaller or larger chip of the
// family is a changed Array. Sizes are bytes.
type Array struct {
	Name string `json:"name"`

	// Compute.
	Columns       int `json:"columns"`
	Rows          int `json:"rows"`           // rows of compute cores; the row of mem tiles and the row of shim tiles are not counted
	CoreMemory    int `json:"core_memory"`    // data memory of a core (L1), stack included
	ProgramMemory int `json:"program_memory"` // instructions of a core
	Stack         int `json:"stack"`          // default stack of a core
	GEMMStack     int `json:"gemm_stack"`     // stack that the matrix kernels ask for

	// Memory on the way.
	MemTile      int `json:"mem_tile"`       // a mem tile (L2); there is one in each column
	MemTileBDs   int `json:"mem_tile_bds"`   // buffer descriptors of a mem tile
	ChannelBDs   int `json:"channel_bds"`    // of which one channel can reach so many
	ShimBDs      int `json:"shim_bds"`       // buffer descriptors active at once on a shim tile
	ShimTasks    int `json:"shim_tasks"`     // depth of a shim channel's task queue
	CoreStreams  int `json:"core_streams"`   // DMA channels of a core in each direction
	MemStreams   int `json:"mem_streams"`    // DMA channels of a mem tile in each direction
	ShimStreams  int `json:"shim_streams"`   // DMA channels of a shim tile in each direction
	KernelFlows  int `json:"kernel_flows"`   // streams between one core and DRAM that the router finds ways for
	PacketIDs    int `json:"packet_ids"`     // packet-switched flows into one channel
	PacketIDBits int `json:"packet_id_bits"` // width of the id
	CascadeBits  int `json:"cascade_bits"`   // width of the link from a core to the next in its column

	// Buffer descriptors.
	Dims          int `json:"dims"`           // dimensions of a descriptor, of which the outermost iterates
	MaxWrap       int `json:"max_wrap"`       // steps in a dimension but the innermost and the outermost
	MaxIterations int `json:"max_iterations"` // steps in the outermost
	MaxStride     int `json:"max_stride"`     // distance from step to step, in 32-bit words
	Granule       int `json:"granule"`        // bytes that every transfer is a multiple of
	MaxRepeats    int `json:"max_repeats"`    // executions of one queued task

	// Running.
	BufferReach      int `json:"buffer_reach"`      // bytes of one buffer object that descriptors can address
	Contexts         int `json:"contexts"`          // hardware contexts that we keep alive
	Launches         int `json:"launches"`          // launches of one ELF, when they are of one kernel: the most that has been published
	MixedLaunches    int `json:"mixed_launches"`    // launches of one ELF of several kernels: the most that has been published
	AttentionProgram int `json:"attention_program"` // launches of an ELF with attention in it from which the compiler gives up
	ClockMHz         int `json:"clock_mhz"`         // of the cores and their streams, at the highest power level
	ManagementMHz    int `json:"management_mhz"`    // of the management processor, which starts launches
}

// NPU2 is the array of AMD's Strix, Strix Halo and Krackan processors, which AMD calls XDNA 2 and its compilers npu2 (AIE2P).
//
// Sources, unless a line says otherwise: Xilinx/mlir-air e972f2942, its kernel registry, its builders' checks and the device model they
// are built on.
func NPU2() *Array {
	return &Array{
		Name:    "npu2",
		Columns: 8, Rows: 4,
		CoreMemory:    64 << 10,
		ProgramMemory: 16 << 10, // an attention kernel of 19328 bytes did not fit, one of 11760 did
		Stack:         1024,
		GEMMStack:     2048, // the GEMM builders' value
		MemTile:       512 << 10,
		MemTileBDs:    48,
		ChannelBDs:    24,
		ShimBDs:       16, // the compiler's "too many simultaneously active buffer descriptors (limit 16)"
		ShimTasks:     4,
		CoreStreams:   2,
		MemStreams:    6,
		ShimStreams:   2,
		KernelFlows:   3, // a fourth ends in "two connects with the same destination"
		PacketIDs:     4,
		PacketIDBits:  5,
		CascadeBits:   512,
		Dims:          4,
		MaxWrap:       1023,    // a register of 10 bits
		MaxIterations: 64,      // 6 bits, counted from one
		MaxStride:     1 << 20, // 20 bits, counted from one. Words, not elements: 23 published rows exceed the reading in elements and run
		Granule:       4,
		MaxRepeats:    256, // 8 bits: once, and up to 255 times again
		BufferReach:   1 << 32,
		Contexts:      8,  // notes report failures from about ten ELFs in a process on, though deployments had 13; the driver has 16 to 32 for all processes
		Launches:      19, // the LM head of the Qwen models
		MixedLaunches: 12, // o_ffn of Llama-3.2 and SmolLM2
		// With nine or more the dependency analysis ran over ten minutes, then overflowed its stack.
		AttentionProgram: 9,
		ClockMHz:         1800, // highest level of the power table in the amdxdna driver, npu4_regs.c
		ManagementMHz:    1267, // the same table
	}
}

// Cores is the number of compute cores.
func (a *Array) Cores() int { return a.Columns * a.Rows }

// ShimChannels is the number of DMA channels between the array and DRAM in each direction.
func (a *Array) ShimChannels() int { return a.Columns * a.ShimStreams }

// orNPU2 returns a, or NPU2() if a is nil.
func (a *Array) orNPU2() *Array {
	if a == nil {
		return NPU2()
	}
	return a
}
