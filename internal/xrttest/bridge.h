// Emulator functions, looked up at run time, so that programs linked with this package also run
// without the emulator.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include "emulator/npuemu.h"

int bridge_present(void);
void bridge_execute(uintptr_t user); // 0: no function computes programs
uint64_t bridge_program(void *instructions, uint32_t bytes);
const char *bridge_script(const char *text);
void bridge_stats(npuemu_stats *out);
int bridge_violation(char *text, uint32_t n);
void bridge_reset(void);
