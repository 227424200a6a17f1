// C API over XRT's C++ API for package xrt: opaque handles, and errors as values.
//
// A function that can fail returns NULL on success, or an error that the caller must free with
// nx_error_free. Exceptions never escape. Handles are created by ..._open, ..._parse and ..._new
// and deleted by ..._free, in any order: a handle keeps alive the objects that XRT needs, e.g. a
// kernel its context, and a run its kernel and buffers. Strings returned through char ** must be
// freed with free(3). No function uses XRT's timed waits, which lose ETIME and then report running
// work as idle.
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nx_device nx_device;
typedef struct nx_xclbin nx_xclbin;
typedef struct nx_elf nx_elf;
typedef struct nx_context nx_context;
typedef struct nx_buffer nx_buffer;
typedef struct nx_kernel nx_kernel;
typedef struct nx_run nx_run;
typedef struct nx_runlist nx_runlist;

typedef struct nx_error {
	int code;  // errno from XRT, or 0
	int state; // ERT state of a failed command, else 0
	int run;   // index of the failed run in its runlist, else -1
	char *text;
} nx_error;
void nx_error_free(nx_error *e);

nx_error *nx_version(unsigned version[4]); // major, minor, patch, build
nx_error *nx_device_count(unsigned *n);

nx_error *nx_device_open(unsigned index, nx_device **out);
nx_error *nx_device_open_bdf(const char *bdf, nx_device **out);
nx_error *nx_device_text(nx_device *d, int what, char **out); // what: a string-valued xrt::info::device
nx_error *nx_device_last_error(nx_device *d, int error_class, uint64_t *code, uint64_t *time_us, char **out);
void nx_device_free(nx_device *d);

// Descriptions are lines of tab-separated fields; control characters in names are replaced by '?'.
//   kernel <name> <number of arguments>
//   arg <index> <name> <host type> <offset> <bytes>     after its kernel (xclbin)
//   instance <name>                                     after its kernel (ELF)
//   elf <full 0|1>
nx_error *nx_xclbin_parse(const void *data, size_t n, nx_xclbin **out);
nx_error *nx_xclbin_describe(nx_xclbin *x, char **out);
void nx_xclbin_free(nx_xclbin *x);
nx_error *nx_elf_parse(const void *data, size_t n, nx_elf **out);
nx_error *nx_elf_describe(nx_elf *e, char **out);
void nx_elf_free(nx_elf *e);

// QoS is passed as parallel arrays of names and values.
nx_error *nx_context_xclbin(nx_device *d, nx_xclbin *x, const char **names,
	const uint32_t *values, size_t n, nx_context **out);
nx_error *nx_context_elf(nx_device *d, nx_elf *e, const char **names, const uint32_t *values,
	size_t n, nx_context **out);
void nx_context_free(nx_context *c);

nx_error *nx_buffer_host(nx_device *d, size_t n, nx_buffer **out);
nx_error *nx_buffer_cacheable(nx_device *d, size_t n, uint32_t group, nx_buffer **out);
nx_error *nx_buffer_user(nx_device *d, void *p, size_t n, nx_buffer **out);
nx_error *nx_buffer_sub(nx_buffer *parent, size_t offset, size_t n, nx_buffer **out);
nx_error *nx_buffer_map(nx_buffer *b, void **p, uint64_t *address);
nx_error *nx_buffer_sync(nx_buffer *b, int from_device, size_t offset, size_t n);
void nx_buffer_free(nx_buffer *b);

nx_error *nx_kernel_xclbin(nx_context *c, const char *name, nx_kernel **out);
nx_error *nx_kernel_elf(nx_context *c, const char *instance, nx_kernel **out);
nx_error *nx_kernel_module(nx_context *c, nx_elf *e, const char *name, nx_kernel **out);
nx_error *nx_kernel_group(nx_kernel *k, int arg, int *group);
void nx_kernel_free(nx_kernel *k);

nx_error *nx_run_new(nx_kernel *k, nx_run **out);
nx_error *nx_run_set_buffer(nx_run *r, int arg, nx_buffer *b);
nx_error *nx_run_set_scalar(nx_run *r, int arg, const void *value, size_t n);
nx_error *nx_run_start(nx_run *r);
nx_error *nx_run_state(nx_run *r, int *state);
nx_error *nx_run_result(nx_run *r); // valid only in a final state; the failure, or NULL
void nx_run_free(nx_run *r);        // not while it runs: XRT aborts the process

nx_error *nx_runlist_new(nx_context *c, nx_runlist **out);
nx_error *nx_runlist_add(nx_runlist *l, nx_run *r, int new_chain);  // new_chain: start another submission
// submitted: chains submitted, even on failure
nx_error *nx_runlist_execute(nx_runlist *l, int *submitted);
nx_error *nx_runlist_state(nx_runlist *l, int *state);              // running until all chains are done
nx_error *nx_runlist_result(nx_runlist *l);                         // as nx_run_result, but only once
nx_error *nx_runlist_reset(nx_runlist *l);
void nx_runlist_free(nx_runlist *l);

#ifdef __cplusplus
}
#endif
