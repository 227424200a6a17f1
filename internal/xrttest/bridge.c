//go:build xrt && linux && cgo

#define _GNU_SOURCE
#include "bridge.h"

#include <dlfcn.h>

#include "_cgo_export.h"

#define FIND(f) ((__typeof__(&f))dlsym(RTLD_DEFAULT, #f))

int bridge_present(void)
{
	// The emulator is loaded and has a device; without NPUEMU_ROOT it does nothing.
	return getenv("NPUEMU_ROOT") && FIND(npuemu_get_stats);
}

static int call(const npuemu_command *c, uintptr_t user) { return xrttestExecute((npuemu_command *)c, user); }

void bridge_execute(uintptr_t user) { FIND(npuemu_set_execute)(user ? call : NULL, user); }
uint64_t bridge_program(void *p, uint32_t n) { return FIND(npuemu_program)(p, n); }
const char *bridge_script(const char *text) { return FIND(npuemu_script)(text); }
void bridge_stats(npuemu_stats *out) { FIND(npuemu_get_stats)(out); }
int bridge_violation(char *text, uint32_t n) { return FIND(npuemu_take_violation)(text, n); }
void bridge_reset(void) { FIND(npuemu_reset)(); }
