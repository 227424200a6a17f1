#include "stream.h"

#include <stddef.h>

bool stream_open(stream *s, const void *data, uint32_t n)
{
	*s = (stream){.words = data, .count = n / 4};
	if (n < 16 || n % 4) {
		s->fault = "shorter than a header";
		return false;
	}
	const uint32_t *w = data;
	if ((w[0] & 0xffff) != 0x0100) { // major 0, minor 1
		s->fault = "not version 0.1";
		return false;
	}
	if (w[3] < 16 || w[3] % 4 || w[3] > n) {
		s->fault = "invalid length";
		return false;
	}
	s->count = w[3] / 4;
	s->ops = w[2];
	s->at = 4;
	return true;
}

// Returns the length of the operation at w in words, or 0 if unknown. left is the number of words
// in the stream.
static uint32_t op_words(const uint32_t *w, uint32_t left)
{
	uint32_t bytes = 0;
	switch (w[0] & 0xff) {
	case OP_WRITE: bytes = left > 5 ? w[5] : 0; break;
	case OP_BLOCK_WRITE:
	case OP_BLOCK_SET: bytes = left > 3 ? w[3] : 0; break;
	case OP_MASK_WRITE:
	case OP_MASK_POLL:
	case OP_MASK_POLL_BUSY: bytes = left > 6 ? w[6] : 0; break;
	case OP_NOOP:
	case OP_PREEMPT: bytes = 4; break;
	case OP_LOAD_PDI:
	case OP_LOAD_PM:
	case OP_CREATE_SCRATCHPAD: bytes = 16; break;
	case OP_UPDATE_STATE: bytes = 8; break;
	case OP_UPDATE_REG: bytes = 12; break;
	default: bytes = (w[0] & 0xff) >= OP_TCT && left > 1 ? w[1] : 0; // custom operations have their own length
	}
	return bytes % 4 ? 0 : bytes / 4;
}

bool stream_next(stream *s, stream_op *op)
{
	if (s->ops == 0 || s->fault)
		return false;
	if (s->at >= s->count) {
		s->fault = "fewer operations than the header says";
		return false;
	}
	uint32_t left = s->count - s->at, n = op_words(s->words + s->at, left);
	if (n == 0 || n > left) {
		s->fault = "an operation of unknown length";
		return false;
	}
	*op = (stream_op){s->words[s->at] & 0xff, s->words + s->at, n};
	s->at += n;
	s->ops--;
	return true;
}

// Returns bits [low, low+n) of w.
static uint64_t bits(uint32_t w, int low, int n) { return (w >> low) & ((1u << n) - 1); }

bool stream_is_descriptor(const stream_op *op, stream_descriptor *d)
{
	// Registers of a shim tile's DMA descriptors: 16 of 32 bytes from 0x1D000. The row is in bits
	// 20 to 24; shims are in row 0.
	if (op->code != OP_BLOCK_WRITE || op->count != 12)
		return false;
	uint32_t reg = op->words[2], in_tile = reg & 0xfffff;
	if (bits(reg, 20, 5) != 0 || in_tile < 0x1d000 || in_tile >= 0x1d200 || in_tile % 0x20)
		return false;
	const uint32_t *bd = op->words + 4;
	d->reg = reg;
	d->base = bits(bd[2], 0, 16) << 32 | (bd[1] & ~3u);
	// Steps are stored minus one. The two inner dimensions have sizes, and the third covers the
	// rest of the length. A dimension of size 0 covers all that is left.
	uint64_t length = bd[0], size0 = bits(bd[3], 20, 10), step0 = bits(bd[3], 0, 20) + 1;
	uint64_t size1 = bits(bd[4], 20, 10), step1 = bits(bd[4], 0, 20) + 1, step2 = bits(bd[5], 0, 20) + 1;
	uint64_t size2 = 1, extent = 0;
	if (size0 == 0) {
		size0 = length;
		size1 = 1;
	} else if (size1 == 0) {
		size1 = (length + size0 - 1) / size0;
	} else {
		size2 = (length + size0 * size1 - 1) / (size0 * size1);
	}
	if (length)
		extent = (size0 - 1) * step0 + (size1 - 1) * step1 + (size2 - 1) * step2 + 1;
	// The iteration advances the base with every repetition.
	uint64_t repeats = bits(bd[6], 20, 6), step = bits(bd[6], 0, 20) + 1;
	d->extent = 4 * (extent + repeats * step);
	return true;
}

bool stream_is_patch(const stream_op *op, stream_patch *p)
{
	if (op->code != OP_DDR_PATCH || op->count < 11)
		return false;
	*p = (stream_patch){.reg = op->words[6], .arg = op->words[8], .plus = op->words[10]};
	return true;
}

uint64_t stream_id(const void *data, uint32_t n)
{
	stream s;
	stream_op op;
	stream_descriptor d;
	uint64_t id = 0xcbf29ce484222325ull; // FNV-1a, 64 bits
	if (!stream_open(&s, data, n))
		return 0;
	while (stream_next(&s, &op)) {
		bool bd = stream_is_descriptor(&op, &d);
		for (uint32_t i = 0; i < op.count; i++) {
			uint32_t w = op.words[i];
			if (bd && i == 5)
				w = 0; // base, low
			if (bd && i == 6)
				w &= ~0xffffu; // base, high
			if (op.code == OP_LOAD_PDI && i > 0)
				w = 0; // size and address of the PDI
			for (int b = 0; b < 4; b++)
				id = (id ^ (w >> 8 * b & 0xff)) * 0x100000001b3ull;
		}
	}
	return s.fault ? 0 : id ? id : 1;
}
