// Declarations shared by the emulator's files. emu_lock guards everything except the running
// command of the queue.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <drm/drm.h>
#include <drm/amdxdna_accel.h>

#include "npuemu.h"
#include "range.h"
#include "stream.h"

// Limits of the driver and of the NPU4 family (Strix, Krackan), from amd/xdna-driver.
enum {
	MAX_CONTEXTS = 32,          // npu4_family.h ctx_limit; more are refused with ENOENT (aie2_ctx_runqueue.c)
	MAX_CHAIN = 64,             // amdxdna_ctx.h: commands in a chain
	CHAIN_BUFFER = 4096,        // aie2_msg_priv.h: bytes for the slots of a chain
	CHAIN_SLOT = 52,            // bytes of a slot before its payload
	MAX_PENDING = 4,            // aie2_pci.h HWCTX_MAX_CMDS: submissions in flight per context
	MAX_BUFFERS = 1 << 16,      // emulator limit
	MAX_SYNCOBJS = 1 << 12,     // emulator limit
};
#define HEAP_BASE 0x4000000ull      // AIE2_DEVM_BASE
#define HEAP_ALIGN (64ull << 20)    // alignment of a heap buffer
#define HEAP_MAX (512ull << 20)     // emulator limit: maximum heap size
#define HEAP_UNIT 0x8000ull         // allocation granularity in the heap
#define IOVA_BASE 0x100000000ull    // device address of data buffers; never a host address
#define DDR_OFFSET 0x80000000ull    // AIE address of device address 0
#define PAGE 4096ull
#define POISON_MAX (64ull << 20)    // larger buffers start with zeros on the device side, to save memory

typedef struct buffer {
	bool used, user;      // user: process memory, CREATE_BO with an address table
	bool closing;         // closed by the process but pinned
	uint32_t pins;        // submissions in progress that use it
	uint32_t type;        // amdxdna_bo_type
	uint64_t size;        // rounded up to pages
	uint64_t file;        // offset in the node's file, ~0 for user memory and heap parts
	uint64_t address;     // device address
	uint8_t *host;        // the emulator's mapping of the host's view, or user memory
	uint8_t *device;      // the device's view; equal to host if the views are shared
} buffer;

typedef struct context {
	bool used;
	uint32_t syncobj, kernels;
	uint64_t submitted, completed;
	uint64_t errors;
	uint32_t epoch; // number of resets: commands of an earlier epoch are aborted
} context;

extern pthread_mutex_t emu_lock;
extern pthread_cond_t emu_changed; // a command completed, or a queue has room
extern bool emu_trace, emu_shadow, emu_sva, emu_removed;
extern npuemu_stats emu_stats; // only the counters
extern context contexts[MAX_CONTEXTS + 1]; // from 1

#define TRACE(...) do { if (emu_trace) emu_log(__VA_ARGS__); } while (0)
void emu_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void emu_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

// device.c
int device_fd(void); // the emulator's own descriptor of the node, for its mappings
bool is_device(int fd);
// paths.c
const char *emu_root(void);
void *emu_symbol(const char *name); // of any library in the process
uint64_t locked_bytes(void);
int emu_unmap(void *at, size_t n); // munmap for the emulator itself, which holds the lock

// buffer.c
int buffer_create(struct amdxdna_drm_create_bo *a);
int buffer_info(struct amdxdna_drm_get_bo_info *a);
// the process mapped this part of the node's file at this address
void buffer_mapped(uint64_t offset, void *at);
int buffer_sync(struct amdxdna_drm_sync_bo *a);
int buffer_close(uint32_t handle);
void buffer_pin(uint32_t handle);
void buffer_unpin(uint32_t handle);
void buffer_reset(void);
buffer *buffer_get(uint32_t handle);
// Returns the device's view of [address, address+n) if one buffer contains it. Searches the handles
// only[0..count), or all if only is NULL.
void *buffer_at(uint64_t address, uint64_t n, const uint32_t *only, uint32_t count, uint64_t *left);
void buffer_usage(npuemu_stats *s);
uint64_t buffer_heap_used(void);

// context.c
int context_create(struct amdxdna_drm_create_hwctx *a);
int context_destroy(uint32_t handle);
int context_configure(struct amdxdna_drm_config_hwctx *a);
context *context_get(uint32_t handle);
int syncobj_wait(struct drm_syncobj_timeline_wait *a);
int syncobj_create(uint32_t *handle);
int syncobj_destroy(uint32_t handle);
int command_wait(struct amdxdna_drm_wait_cmd *a);
void context_reset(void);
void context_usage(npuemu_stats *s);

// queue.c
int queue_submit(struct amdxdna_drm_exec_cmd *a);

// execute.c
typedef struct {
	uint32_t ctx, command, nargs;
	uint32_t *args; // handles used by the submission; pinned while it is in progress
	uint64_t seq;
	uint32_t epoch;
} submission;
void execute(const submission *s);

// info.c
int info_get(struct amdxdna_drm_get_info *a);
int info_array(struct amdxdna_drm_get_array *a);
int info_set(struct amdxdna_drm_set_state *a);

// script.c
enum script_event { ON_OPEN, ON_MMAP, ON_CREATE_BO, ON_CREATE_HWCTX, ON_SUBMIT, ON_RUN, EVENTS };
enum script_action { DO_NOTHING, DO_ERRNO, DO_STATE, DO_DELAY, DO_REMOVE, DO_ASYNC };
typedef struct {
	enum script_action action;
	uint64_t value; // errno, state, milliseconds or error code
} script_step;
script_step script_next(enum script_event e);
int script_errno(enum script_event e); // negative errno, or 0
extern uint64_t limit_contexts, limit_memlock, limit_heap;
extern uint64_t async_code, async_time_us;
