package xdna2

// Array describes a chip. The rules take every number from it, so another chip of the family is
// another Array. Sizes are bytes.
type Array struct {
	Name string `json:"name"`

	// Compute.
	Columns       int `json:"columns"`
	Rows          int `json:"rows"`           // rows of compute cores, without mem tiles and shim tiles
	CoreMemory    int `json:"core_memory"`    // data memory of a core (L1), including the stack
	ProgramMemory int `json:"program_memory"` // program memory of a core
	Stack         int `json:"stack"`          // default stack of a core
	GEMMStack     int `json:"gemm_stack"`     // stack of the matrix kernels

	// Data movement.
	MemTile      int `json:"mem_tile"`       // memory of a mem tile (L2), one per column
	MemTileBDs   int `json:"mem_tile_bds"`   // buffer descriptors of a mem tile
	ChannelBDs   int `json:"channel_bds"`    // mem tile descriptors that one channel can access
	ShimBDs      int `json:"shim_bds"`       // buffer descriptors active at once on a shim tile
	ShimTasks    int `json:"shim_tasks"`     // depth of a shim channel's task queue
	CoreStreams  int `json:"core_streams"`   // DMA channels of a core in each direction
	MemStreams   int `json:"mem_streams"`    // DMA channels of a mem tile in each direction
	ShimStreams  int `json:"shim_streams"`   // DMA channels of a shim tile in each direction
	KernelFlows  int `json:"kernel_flows"`   // streams between one core and DRAM that the router can route
	PacketIDs    int `json:"packet_ids"`     // packet-switched flows into one channel
	PacketIDBits int `json:"packet_id_bits"` // width of the id
	CascadeBits  int `json:"cascade_bits"`   // width of the link from a core to the next in its column

	// Buffer descriptors.
	Dims          int `json:"dims"`           // dimensions of a descriptor; the outermost is the iteration
	MaxWrap       int `json:"max_wrap"`       // steps in a dimension, except the innermost and the outermost
	MaxIterations int `json:"max_iterations"` // steps in the outermost dimension
	MaxStride     int `json:"max_stride"`     // distance between steps in 32-bit words
	Granule       int `json:"granule"`        // every transfer is a multiple of this many bytes
	MaxRepeats    int `json:"max_repeats"`    // executions of one queued task

	// Execution.
	BufferReach      int `json:"buffer_reach"`      // bytes of a buffer object that descriptors can address
	Contexts         int `json:"contexts"`          // hardware contexts that a process keeps open
	Launches         int `json:"launches"`          // most published launches of an ELF with one kernel
	MixedLaunches    int `json:"mixed_launches"`    // most published launches of an ELF with several kernels
	AttentionProgram int `json:"attention_program"` // launches of an ELF with attention at which the compiler fails
	ClockMHz         int `json:"clock_mhz"`         // cores and streams at the highest power level
	ManagementMHz    int `json:"management_mhz"`    // management processor, which starts launches
}

// NPU2 returns the array of AMD's Strix, Strix Halo and Krackan processors, which AMD calls XDNA 2
// and its compilers npu2 (AIE2P).
//
// Sources, unless a line names another: Xilinx/mlir-air e972f2942: kernel registry, builder checks
// and device model.
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
		KernelFlows:   3, // a fourth fails with "two connects with the same destination"
		PacketIDs:     4,
		PacketIDBits:  5,
		CascadeBits:   512,
		Dims:          4,
		MaxWrap:       1023,    // a register of 10 bits
		MaxIterations: 64,      // 6 bits, counted from one
		MaxStride:     1 << 20, // 20 bits, counted from one; in words: 23 published rows with more elements run
		Granule:       4,
		MaxRepeats:    256, // 8 bits: up to 255 repetitions of the first execution
		BufferReach:   1 << 32,
		Contexts:      8,  // some processes fail from about ten on; the driver has 16 to 32 for all processes
		Launches:      19, // the LM head of the Qwen models
		MixedLaunches: 12, // o_ffn of Llama-3.2 and SmolLM2
		// With nine or more, dependency analysis runs over ten minutes, then overflows its stack.
		AttentionProgram: 9,
		ClockMHz:         1800, // highest level of the power table in the amdxdna driver, npu4_regs.c
		ManagementMHz:    1267, // the same table
	}
}

// cores returns the number of compute cores.
func (a *Array) cores() int { return a.Columns * a.Rows }

// shimChannels returns the number of DMA channels between the array and DRAM in each direction.
func (a *Array) shimChannels() int { return a.Columns * a.ShimStreams }

// orNPU2 returns a, or NPU2() if a is nil.
func (a *Array) orNPU2() *Array {
	if a == nil {
		return NPU2()
	}
	return a
}
