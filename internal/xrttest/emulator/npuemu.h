// npuemu emulates the amdxdna kernel driver and an XDNA 2 NPU for the unmodified XRT libraries,
// inside the process that uses them.
//
// It is a shared library that must be loaded first (ld.so --preload, LD_PRELOAD). It redirects
// paths of the device and its sysfs entries to the folder $NPUEMU_ROOT and handles ioctls on the
// device node as the driver would. The node is a sparse file, so open, mmap and close are the
// kernel's own. Cores are not emulated: a function of the process computes each program.
//
// Environment variables: NPUEMU_TRACE logs to standard error. NPUEMU_SCRIPT is an initial script.
// NPUEMU_SVA assigns process addresses to data buffers, like a machine with shared virtual
// addresses. NPUEMU_SHADOW=0 makes host and device share one view of buffers.
//
// A test process may call the functions in this header. It finds them with dlsym, so that it also
// runs without the emulator.
#pragma once
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// An argument of a run: device memory from the argument's address to the end of its buffer.
typedef struct {
	void *data; // NULL if the program does not use the argument
	uint64_t bytes;
	uint64_t address;
} npuemu_argument;

enum { NPUEMU_MAX_ARGS = 64 };

typedef struct {
	uint64_t program;             // npuemu_program of the instructions
	const void *instructions;     // the device's view
	uint32_t instruction_bytes;
	uint32_t context;
	int32_t kernel;               // index in the context's configuration, -1 for full ELFs
	uint32_t nargs;
	npuemu_argument args[NPUEMU_MAX_ARGS];
} npuemu_command;

// Final states of a command (ert_cmd_state).
enum { NPUEMU_COMPLETED = 4, NPUEMU_ERROR = 5, NPUEMU_ABORT = 6, NPUEMU_TIMEOUT = 8 };

// Computes one command and returns its final state. Called on the emulator's thread, one call at a
// time.
typedef int (*npuemu_execute)(const npuemu_command *command, uintptr_t user);
void npuemu_set_execute(npuemu_execute f, uintptr_t user);

// Returns an ID that is equal for instruction streams that differ only in addresses, or 0 if the
// instructions are not a stream.
uint64_t npuemu_program(const void *instructions, uint32_t bytes);

// Replaces the script; see script.c for the language. Returns NULL, or an error message if the text
// is invalid.
const char *npuemu_script(const char *text);

typedef struct {
	uint32_t contexts, buffers, syncobjs; // currently open
	uint64_t buffer_bytes, heap_bytes;    // current sizes; heap_bytes is the part of the device heap in use
	uint64_t locked_bytes;                // currently mapped with MAP_LOCKED
	uint64_t malloc_bytes;                // allocated with malloc by the process, including the C++ libraries
	uint64_t commands, chains, syncs, ioctls; // counters
	uint32_t violations;                  // recorded and not yet taken
	uint32_t qos[6];                      // of the last context, in the order of amdxdna_qos_info
} npuemu_stats;
void npuemu_get_stats(npuemu_stats *out);

// Removes the oldest violation and copies it to text: an error that would corrupt a real device
// although the driver does not detect it. Returns 0 if there is none.
int npuemu_take_violation(char *text, uint32_t n);

// Frees all resources and restores a removed device, as reloading the driver would. No device may
// be open.
void npuemu_reset(void);

#ifdef __cplusplus
}
#endif
