// Execution of a command: finds the instructions, checks every descriptor in them, and calls the
// process to compute the program.
#include "emu.h"

#include <string.h>
#include <time.h>

// Opcodes in a command's header (ert.h).
enum { ERT_START = 0, ERT_CHAIN = 19, ERT_NPU = 20, ERT_NPU_PREEMPT = 21, ERT_NPU_PREEMPT_ELF = 22 };

static npuemu_execute compute;
static uintptr_t compute_user;

void npuemu_set_execute(npuemu_execute f, uintptr_t user)
{
	pthread_mutex_lock(&emu_lock);
	compute = f;
	compute_user = user;
	pthread_mutex_unlock(&emu_lock);
}

uint64_t npuemu_program(const void *instructions, uint32_t bytes) { return stream_id(instructions, bytes); }

// A parsed command buffer: header, kernel masks, payload.
typedef struct {
	uint32_t *header;
	uint32_t op, payload_words;
	int kernel; // from the masks, -1 if none
	const uint32_t *payload;
} packet;

static bool packet_open(packet *p, uint32_t handle)
{
	buffer *b = buffer_get(handle);
	if (!b || b->type != AMDXDNA_BO_CMD)
		return false;
	p->header = (uint32_t *)b->host;
	uint32_t h = *p->header, count = h >> 12 & 0x7ff, masks = 1 + (h >> 10 & 3);
	p->op = h >> 23 & 0x1f;
	p->kernel = -1;
	if (4 + 4ull * count > b->size)
		return false;
	if (p->op == ERT_CHAIN) {
		p->payload = p->header + 1;
		p->payload_words = count;
		return true;
	}
	if (count < masks)
		return false;
	for (uint32_t i = 0; i < masks && p->kernel < 0; i++)
		if (p->header[1 + i])
			p->kernel = (int)(32 * i) + __builtin_ctz(p->header[1 + i]);
	p->payload = p->header + 1 + masks;
	p->payload_words = count - masks;
	return true;
}

static void set_state(uint32_t *header, int state)
{
	__atomic_store_n(header, (*header & ~0xfu) | (uint32_t)state, __ATOMIC_RELEASE); // the process polls it
}

// Overwrites a failed command as the driver does (amdxdna_ctx.c, amdxdna_cmd_set_error): everything
// after the header becomes 0xff, and after a timeout the context's health is stored there (ert.h,
// ert_ctx_health_data_v1). The command must be rewritten before the run is started again.
static void overwrite_failed(buffer *b, int state)
{
	// Version, generation, operation at which it hangs, program counter, fatal error type,
	// exception, its address, module.
	static const uint32_t health[] = {1, 0, 5, 0, 0, 0, 0, 0};
	memset(b->host + 4, 0xff, b->size - 4);
	if (state == NPUEMU_TIMEOUT)
		memcpy(b->host + 4, health, sizeof health);
}

static uint64_t load64(const uint32_t *w)
{
	return w[0] | (uint64_t)w[1] << 32;
}

// Opcode 3 for an xclbin kernel: the payload has the addresses of instructions and arguments, and
// the firmware patches descriptors.
static bool read_start(npuemu_command *c, const packet *p, const submission *s)
{
	if (p->payload_words < 5 || load64(p->payload) != 3) {
		emu_violation("kernel started with opcode %llu and %u words; want opcode 3, instructions "
			"and their length",
			      p->payload_words < 2 ? 0ull : (unsigned long long)load64(p->payload), p->payload_words);
		return false;
	}
	uint64_t at = load64(p->payload + 2);
	c->instruction_bytes = p->payload[4] * 4;
	c->instructions = p->payload[4] > 1u << 28 ? NULL :
		buffer_at(at, c->instruction_bytes, s->args, s->nargs, NULL);
	if (!c->instructions) {
		emu_violation("instructions at 0x%llx, %u words: not inside a buffer of the command",
			(unsigned long long)at, p->payload[4]);
		return false;
	}
	for (uint32_t w = 5; w + 1 < p->payload_words && c->nargs < NPUEMU_MAX_ARGS; w += 2) {
		npuemu_argument *a = &c->args[c->nargs++];
		a->address = load64(p->payload + w);
		if (a->address)
			a->data = buffer_at(a->address, 1, s->args, s->nargs, &a->bytes);
		if (a->address && !a->data)
			emu_violation("argument %u at 0x%llx: not inside a buffer of the command",
				c->nargs - 1, (unsigned long long)a->address);
	}
	return true;
}

// ELF flows: the payload has the address and length of the instructions in bytes, and XRT has
// patched the descriptors.
static bool read_npu(npuemu_command *c, const packet *p)
{
	uint32_t length_at = p->op == ERT_NPU ? 2 : 6;
	if (p->payload_words <= length_at)
		return false;
	uint64_t at = load64(p->payload);
	c->instruction_bytes = p->payload[length_at];
	// XRT does not list its own buffers in a submission
	c->instructions = buffer_at(at, c->instruction_bytes, NULL, 0, NULL);
	if (!c->instructions)
		emu_violation("instructions at 0x%llx, %u bytes: not inside a buffer",
			(unsigned long long)at, c->instruction_bytes);
	return c->instructions;
}

// Checks that every descriptor in the instructions is inside one buffer of the command. In ELF
// flows it derives the arguments from XRT's patches: a descriptor's base minus the offset that its
// patch adds.
static bool check_stream(npuemu_command *c, const submission *s, bool patched)
{
	stream st;
	stream_op op;
	struct { stream_descriptor d; bool known; } last[16 * 8] = {0}; // by descriptor and column
	bool ok = stream_open(&st, c->instructions, c->instruction_bytes);
	while (ok && stream_next(&st, &op)) {
		stream_descriptor d;
		stream_patch p;
		if (stream_is_descriptor(&op, &d)) {
			uint32_t column = d.reg >> 25 & 7, n = (d.reg & 0x1ff) / 0x20;
			last[column * 16 + n].d = d;
			last[column * 16 + n].known = true;
		} else if (stream_is_patch(&op, &p)) {
			uint32_t column = p.reg >> 25 & 7, n = (p.reg & 0x1ff) / 0x20;
			if (!last[column * 16 + n].known || last[column * 16 + n].d.reg + 4 != p.reg) {
				emu_violation("a patch of register 0x%x has no descriptor before it", p.reg);
				return false;
			}
			d = last[column * 16 + n].d;
			if (p.arg >= NPUEMU_MAX_ARGS || (!patched && (p.arg >= c->nargs || !c->args[p.arg].address))) {
				emu_violation("descriptor 0x%x uses argument %u, which is not set", d.reg, p.arg);
				return false;
			}
			uint64_t address = patched ? d.base - DDR_OFFSET : c->args[p.arg].address + p.plus;
			uint64_t left;
			void *data = buffer_at(address, d.extent, s->args, s->nargs, &left);
			if (!data) {
				emu_violation("descriptor 0x%x of argument %u covers %llu bytes from 0x%llx: not "
					"inside a buffer of the command", d.reg,
					      p.arg, (unsigned long long)d.extent, (unsigned long long)address);
				return false;
			}
			if (patched && !c->args[p.arg].data) {
				npuemu_argument *a = &c->args[p.arg];
				a->address = address - p.plus;
				a->data = buffer_at(a->address, 1, s->args, s->nargs, &a->bytes);
				if (c->nargs <= p.arg)
					c->nargs = p.arg + 1;
			}
		}
	}
	if (!ok || st.fault) {
		emu_violation("instruction stream of %u bytes: %s", c->instruction_bytes, st.fault);
		return false;
	}
	return true;
}

static void pause_ms(uint64_t ms)
{
	struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
	nanosleep(&t, NULL);
}

static int run_one(const packet *p, const submission *s)
{
	npuemu_command c = {.context = s->ctx, .kernel = p->kernel};
	emu_stats.commands++;
	bool elf = p->op == ERT_NPU || p->op == ERT_NPU_PREEMPT || p->op == ERT_NPU_PREEMPT_ELF;
	if (!elf && p->op != ERT_START)
		return NPUEMU_ERROR;
	script_step step = script_next(ON_RUN);
	if (step.action == DO_STATE)
		return (int)step.value;
	if (step.action == DO_REMOVE) {
		emu_removed = true;
		pthread_cond_broadcast(&emu_changed);
		return NPUEMU_ABORT;
	}
	if (step.action == DO_ASYNC) {
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		async_code = step.value;
		async_time_us = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
		return NPUEMU_ERROR;
	}
	if (elf ? !read_npu(&c, p) : !read_start(&c, p, s))
		return NPUEMU_ERROR;
	if (!check_stream(&c, s, elf))
		return NPUEMU_ERROR;
	c.program = stream_id(c.instructions, c.instruction_bytes);
	npuemu_execute f = compute;
	uintptr_t user = compute_user;
	pthread_mutex_unlock(&emu_lock); // the process submits and polls meanwhile
	if (step.action == DO_DELAY)
		pause_ms(step.value);
	int state = f ? f(&c, user) : NPUEMU_COMPLETED;
	pthread_mutex_lock(&emu_lock);
	TRACE("program %016llx with %u arguments: state %d", (unsigned long long)c.program, c.nargs, state);
	return emu_removed ? NPUEMU_ABORT : state;
}

// A chain: count, submitted index, error index, three reserved words, then 64-bit command handles.
static int run_chain(uint32_t *payload, uint32_t words, const submission *s)
{
	packet p;
	uint32_t n = words > 6 ? payload[0] : 0, op = 0;
	uint64_t bytes = 0;
	emu_stats.chains++;
	if (n == 0 || n > MAX_CHAIN || words < 6 + 2 * n)
		return NPUEMU_ABORT;
	// the driver fills all slots first and rejects the chain if one does not fit
	for (uint32_t i = 0; i < n; i++) {
		if (!packet_open(&p, payload[6 + 2 * i]) || p.op == ERT_CHAIN || (i > 0 && p.op != op))
			return NPUEMU_ABORT;
		op = p.op;
		bytes += CHAIN_SLOT + 4ull * p.payload_words;
	}
	if (bytes > CHAIN_BUFFER) {
		TRACE("a chain of %u commands needs %llu bytes, %d fit", n, (unsigned long long)bytes, CHAIN_BUFFER);
		return NPUEMU_ABORT;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!packet_open(&p, payload[6 + 2 * i]))
			return NPUEMU_ABORT;
		int state = run_one(&p, s); // the driver sets only the chain's state; XRT sets those of its commands
		if (state != NPUEMU_COMPLETED) {
			payload[2] = i;
			return state;
		}
	}
	return NPUEMU_COMPLETED;
}

void execute(const submission *s)
{
	packet p;
	context *c = &contexts[s->ctx];
	if (!packet_open(&p, s->command))
		return; // the process closed a running command, which XRT never does
	int state;
	if (emu_removed || s->epoch != c->epoch)
		state = NPUEMU_ABORT;
	else if (p.op == ERT_CHAIN)
		state = run_chain((uint32_t *)(uintptr_t)p.payload, p.payload_words, s);
	else
		state = run_one(&p, s);
	if (state != NPUEMU_COMPLETED) {
		// The driver overwrites the first command of a chain, regardless of which failed.
		buffer *b = buffer_get(p.op == ERT_CHAIN && p.payload_words > 6 ? p.payload[6] : s->command);
		c->errors++;
		if (b)
			overwrite_failed(b, state);
	}
	if (state == NPUEMU_TIMEOUT)
		c->epoch++; // the driver resets the context and aborts its queue
	set_state(p.header, state);
}
