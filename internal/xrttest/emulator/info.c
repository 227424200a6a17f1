// Device information from the driver, read by XRT's device queries and xrt-smi.
#include "emu.h"

#include <string.h>
#include <unistd.h>

// Copies an answer, truncated to the caller's buffer, as the driver does.
static int copy_answer(struct amdxdna_drm_get_info *a, const void *answer, uint32_t n)
{
	memcpy((void *)(uintptr_t)a->buffer, answer, a->buffer_size < n ? a->buffer_size : n);
	return 0;
}

int info_get(struct amdxdna_drm_get_info *a)
{
	switch (a->param) {
	case DRM_AMDXDNA_QUERY_AIE_METADATA: {
		// Rows: a shim, a memory tile and four cores (AMD AM020). A column's address space has 2^25
		// bytes.
		struct amdxdna_drm_query_aie_metadata m = {.col_size = 1 << 25, .cols = 8, .rows = 6, .version = {2, 0},
			.core = {.row_count = 4, .row_start = 2, .dma_channel_count = 2, .lock_count = 16,
				.event_reg_count = 4},
			.mem = {.row_count = 1, .row_start = 1, .dma_channel_count = 6, .lock_count = 64,
				.event_reg_count = 6},
			.shim = {.row_count = 1, .row_start = 0, .dma_channel_count = 2, .lock_count = 16,
				.event_reg_count = 6}};
		return copy_answer(a, &m, sizeof m);
	}
	case DRM_AMDXDNA_QUERY_AIE_VERSION: {
		struct amdxdna_drm_query_aie_version v = {2, 0};
		return copy_answer(a, &v, sizeof v);
	}
	case DRM_AMDXDNA_QUERY_FIRMWARE_VERSION: {
		struct amdxdna_drm_query_firmware_version v = {1, 1, 2, 64};
		return copy_answer(a, &v, sizeof v);
	}
	case DRM_AMDXDNA_QUERY_CLOCK_METADATA: {
		struct amdxdna_drm_query_clock_metadata m = {.mp_npu_clock = {"MP-NPU Clock", 1267, 0},
			.h_clock = {"H Clock", 1800, 0}};
		return copy_answer(a, &m, sizeof m);
	}
	case DRM_AMDXDNA_QUERY_RESOURCE_INFO: {
		struct amdxdna_drm_get_resource_info r = {.npu_clk_max = 1800, .npu_tops_max = 51,
			.npu_task_max = 16, .npu_tops_curr = 51};
		return copy_answer(a, &r, sizeof r);
	}
	case DRM_AMDXDNA_GET_POWER_MODE: {
		struct amdxdna_drm_get_power_mode m = {POWER_MODE_DEFAULT, {0}};
		return copy_answer(a, &m, sizeof m);
	}
	case DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE:
	case DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE:
		return copy_answer(a, &(struct amdxdna_drm_attribute_state){0},
			sizeof(struct amdxdna_drm_attribute_state));
	case DRM_AMDXDNA_QUERY_HW_CONTEXTS:
	case DRM_AMDXDNA_QUERY_SENSORS:
		a->buffer_size = 0;
		return 0;
	}
	return -EOPNOTSUPP;
}

// Copies element i of an answer.
static void copy_element(struct amdxdna_drm_get_array *a, uint32_t i, const void *e, uint32_t n)
{
	memcpy((char *)(uintptr_t)a->buffer + (uint64_t)i * a->element_size, e,
		a->element_size < n ? a->element_size : n);
}

int info_array(struct amdxdna_drm_get_array *a)
{
	uint32_t n = 0;
	switch (a->param) {
	case DRM_AMDXDNA_HW_CONTEXT_ALL:
		for (uint32_t h = 1; h <= MAX_CONTEXTS && n < a->num_element; h++)
			if (contexts[h].used) {
				struct amdxdna_drm_hwctx_entry e = {.context_id = h, .num_col = 8, .hwctx_id = h,
					.pid = getpid(),
					.command_submissions = contexts[h].submitted, .command_completions = contexts[h].completed,
					.errors = contexts[h].errors, .state = AMDXDNA_HWCTX_STATE_ACTIVE,
						.heap_usage = buffer_heap_used()};
				copy_element(a, n++, &e, sizeof e);
			}
		break;
	case DRM_AMDXDNA_HW_LAST_ASYNC_ERR:
		if (async_code && a->num_element > 0) {
			struct amdxdna_async_error e = {.err_code = async_code, .ts_us = async_time_us};
			copy_element(a, n++, &e, sizeof e);
		}
		break;
	case DRM_AMDXDNA_BO_USAGE:
		if (a->num_element > 0) {
			npuemu_stats s = {0};
			buffer_usage(&s);
			struct amdxdna_drm_bo_usage u = {.pid = getpid(), .total_usage = s.buffer_bytes,
				.heap_usage = s.heap_bytes};
			copy_element(a, n++, &u, sizeof u);
		}
		break;
	default: return -EOPNOTSUPP;
	}
	a->num_element = n;
	return 0;
}

int info_set(struct amdxdna_drm_set_state *a)
{
	(void)a;
	// the driver allows only root in the initial namespace to set power modes; tests do not need it
	return -EACCES;
}
