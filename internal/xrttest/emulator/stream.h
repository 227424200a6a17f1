// Parser for the instruction streams that the NPU's controller executes ("TXN"): operations that
// write array registers, start DMAs and wait for them. Format: aie-rt's XAie_TxnOpcode and
// mlir-aie's AIETargetNPU. Shim DMA descriptors: AMD AM020, AIE-ML registers.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
	OP_WRITE = 0,
	OP_BLOCK_WRITE = 1,
	OP_BLOCK_SET = 2,
	OP_MASK_WRITE = 3,
	OP_MASK_POLL = 4,
	OP_NOOP = 5,
	OP_PREEMPT = 6,
	OP_MASK_POLL_BUSY = 7,
	OP_LOAD_PDI = 8,
	OP_LOAD_PM = 9,
	OP_CREATE_SCRATCHPAD = 10,
	OP_UPDATE_STATE = 11,
	OP_UPDATE_REG = 12,
	OP_UPDATE_SCRATCH = 13,
	OP_TCT = 0x80,
	OP_DDR_PATCH = 0x81,
	OP_READ_REGS = 0x82,
	OP_RECORD_TIMER = 0x83,
	OP_MERGE_SYNC = 0x84,
};

typedef struct {
	const uint32_t *words;
	uint32_t count;   // 32-bit words in the stream
	uint32_t ops;     // operations left
	uint32_t at;      // word index of the next operation
	const char *fault; // error that ended parsing, or NULL
} stream;

typedef struct {
	uint32_t code;
	const uint32_t *words;
	uint32_t count;
} stream_op;

// Checks the header: 16 bytes, version 0.1, six rows, and a length that fits. n is in bytes.
bool stream_open(stream *s, const void *data, uint32_t n);
// Returns the next operation, or false at the end of the stream or on an error, which sets fault.
bool stream_next(stream *s, stream_op *op);

// A descriptor of a shim DMA, written by a block write of eight words.
typedef struct {
	uint32_t reg;     // register of its first word, with column and row
	uint64_t base;    // AIE address of the first byte
	uint64_t extent;  // bytes from base to the end of the last byte accessed
} stream_descriptor;
bool stream_is_descriptor(const stream_op *op, stream_descriptor *d);

// A patch, which adds an argument's address to a descriptor's base.
typedef struct {
	uint32_t reg; // register of the base's low word: the descriptor's second word
	uint32_t arg;
	uint32_t plus;
} stream_patch;
bool stream_is_patch(const stream_op *op, stream_patch *p);

// Returns an ID that is equal for streams that differ only in patched addresses.
uint64_t stream_id(const void *data, uint32_t n);
