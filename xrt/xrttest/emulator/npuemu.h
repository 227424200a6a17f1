// npuemu plays the amdxdna kernel driver and an XDNA 2 NPU for the unmodified XRT libraries, inside the process that uses them.
//
// It is a shared library that is loaded before all others (ld.so --preload, LD_PRELOAD). Paths of the device and of its sysfs entries lead
// to a folder, $NPUEMU_ROOT, and ioctls on the device node are answered here, as the driver would. The node is a sparse file, so that
// open, mmap and close are the kernel's own. Programs are not executed on cores: the process gives a function that computes them.
//
// In the environment: NPUEMU_TRACE says on standard error what happens, NPUEMU_SCRIPT is a first script, NPUEMU_SVA gives data buffers the
// process's addresses as a machine with shared virtual addresses does, and NPUEMU_SHADOW=0 gives host and device one view of them.
//
// This header is what a test process may call. It finds the functions with dlsym, so that it runs without the emulator too.
#pragma once
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// What runs see of an argument: device memory from the argument's address to the end of its buffer.
typedef struct {
	void *data; // NULL where the program does not use the argument
	uint64_t bytes;
	uint64_t address;
} npuemu_argument;

enum { NPUEMU_MAX_ARGS = 64 };

typedef struct {
	uint64_t program;             // npuemu_program of the instructions
	const void *instructions;     // as the device reads them
	uint32_t instruction_bytes;
	uint32_t context;
	int32_t kernel;               // place of the kernel in its context's configuration, -1 for full ELFs
	uint32_t nargs;
	npuemu_argument args[NPUEMU_MAX_ARGS];
} npuemu_command;

// States in which a command can end (ert_cmd_state).
enum { NPUEMU_COMPLETED = 4, NPUEMU_ERROR = 5, NPUEMU_ABORT = 6, NPUEMU_TIMEOUT = 8 };

// Computes one command and returns the state it ends in. Called on the emulator's thread, one at a time.
typedef int (*npuemu_execute)(const npuemu_command *command, uintptr_t user);
void npuemu_set_execute(npuemu_execute f, uintptr_t user);

// A number that is the same for two instruction streams that differ only in addresses, and 0 for what is no stream.
uint64_t npuemu_program(const void *instructions, uint32_t bytes);

// Replaces the faults to come; see script.c for the language. Returns NULL, or what is wrong with the text.
const char *npuemu_script(const char *text);

typedef struct {
	uint32_t contexts, buffers, syncobjs; // alive now
	uint64_t buffer_bytes, heap_bytes;    // alive now; heap_bytes is what is taken of the device heap
	uint64_t locked_bytes;                // mapped with MAP_LOCKED now
	uint64_t malloc_bytes;                // that the process holds of malloc: the C++ libraries' memory
	uint64_t commands, chains, syncs, ioctls; // since the start
	uint32_t violations;                  // recorded and not yet taken
	uint32_t qos[6];                      // what the last context asked for, in the order of amdxdna_qos_info
} npuemu_stats;
void npuemu_get_stats(npuemu_stats *out);

// Takes the oldest recorded violation: something that a device would not forgive, though the driver does not notice. Returns 0 when
// there is none.
int npuemu_take_violation(char *text, uint32_t n);

// Frees what is left and brings a removed device back, as unloading and loading the driver would. No device may be open.
void npuemu_reset(void);

#ifdef __cplusplus
}
#endif
