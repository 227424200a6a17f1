// Hardware contexts, and the sync objects that signal their completions.
#include "emu.h"

#include <string.h>
#include <time.h>

context contexts[MAX_CONTEXTS + 1];
static struct {
	bool used;
	uint32_t owner; // context, 0 if destroyed
} syncobjs[MAX_SYNCOBJS]; // by handle, from 1

int syncobj_create(uint32_t *handle)
{
	for (uint32_t h = 1; h < MAX_SYNCOBJS; h++)
		if (!syncobjs[h].used) {
			syncobjs[h].used = true;
			syncobjs[h].owner = 0;
			*handle = h;
			return 0;
		}
	return -ENOMEM;
}

int syncobj_destroy(uint32_t handle)
{
	if (handle == 0 || handle >= MAX_SYNCOBJS || !syncobjs[handle].used)
		return -EINVAL;
	syncobjs[handle].used = false;
	return 0;
}

context *context_get(uint32_t handle)
{
	return handle > 0 && handle <= MAX_CONTEXTS && contexts[handle].used ? &contexts[handle] : NULL;
}

int context_create(struct amdxdna_drm_create_hwctx *a)
{
	int err = script_errno(ON_CREATE_HWCTX);
	if (err)
		return err;
	// four cores per column, eight columns
	if (a->ext || a->ext_flags || a->num_tiles == 0 || a->num_tiles % 4 || a->num_tiles > 32)
		return -EINVAL;
	uint32_t h = 1, alive = 0;
	for (uint32_t i = 1; i <= MAX_CONTEXTS; i++)
		alive += contexts[i].used;
	while (h <= MAX_CONTEXTS && contexts[h].used)
		h++;
	if (h > MAX_CONTEXTS || alive >= limit_contexts)
		return -ENOENT;
	uint32_t so;
	if ((err = syncobj_create(&so)))
		return err;
	syncobjs[so].owner = h;
	_Static_assert(sizeof emu_stats.qos == sizeof(struct amdxdna_qos_info), "six numbers");
	memset(emu_stats.qos, 0, sizeof emu_stats.qos);
	if (a->qos_p)
		memcpy(emu_stats.qos, (const void *)(uintptr_t)a->qos_p, sizeof emu_stats.qos);
	contexts[h] = (context){.used = true, .syncobj = so};
	a->handle = h;
	a->syncobj_handle = so;
	a->umq_doorbell = AMDXDNA_INVALID_DOORBELL_OFFSET;
	TRACE("create context of %u tiles: %u, sync object %u", a->num_tiles, h, so);
	return 0;
}

int context_configure(struct amdxdna_drm_config_hwctx *a)
{
	context *c = context_get(a->handle);
	if (!c)
		return -EINVAL;
	if (a->param_type != DRM_AMDXDNA_HWCTX_CONFIG_CU)
		return 0; // debug buffers
	const struct amdxdna_hwctx_param_config_cu *p = (const void *)(uintptr_t)a->param_val;
	if (a->param_val_size < sizeof *p || a->param_val_size > PAGE || p->num_cus == 0 ||
	    a->param_val_size < sizeof *p + p->num_cus * sizeof p->cu_configs[0])
		return -EINVAL;
	if (c->kernels)
		return -EINVAL; // a context can be configured only once
	for (int i = 0; i < p->num_cus; i++)
		if (!buffer_get(p->cu_configs[i].cu_bo))
			return -EINVAL;
	c->kernels = p->num_cus;
	return 0;
}

int context_destroy(uint32_t handle)
{
	context *c = context_get(handle);
	if (!c)
		return -EINVAL;
	while (c->completed < c->submitted) // the driver drains a context before destroying it
		pthread_cond_wait(&emu_changed, &emu_lock);
	TRACE("destroy context %u", handle);
	if (syncobjs[c->syncobj].owner == handle)
		syncobjs[c->syncobj].owner = 0;
	memset(c, 0, sizeof *c);
	return 0;
}

// Waits until a context has completed submission seq. No time limit if deadline is NULL.
static int wait_for(context *c, uint64_t seq, const struct timespec *deadline)
{
	while (c->used && c->completed <= seq && !emu_removed)
		if (deadline) {
			if (pthread_cond_clockwait(&emu_changed, &emu_lock, CLOCK_MONOTONIC, deadline) == ETIMEDOUT)
				return -ETIME;
		} else {
			pthread_cond_wait(&emu_changed, &emu_lock);
		}
	return 0;
}

int syncobj_wait(struct drm_syncobj_timeline_wait *a)
{
	uint32_t h = *(const uint32_t *)(uintptr_t)a->handles;
	uint64_t point = *(const uint64_t *)(uintptr_t)a->points;
	if (a->count_handles != 1 || h == 0 || h >= MAX_SYNCOBJS || !syncobjs[h].used)
		return -ENOENT;
	if (!syncobjs[h].owner)
		return 0;
	struct timespec t = {a->timeout_nsec / 1000000000, a->timeout_nsec % 1000000000};
	return wait_for(&contexts[syncobjs[h].owner], point, a->timeout_nsec == INT64_MAX ? NULL : &t);
}

int command_wait(struct amdxdna_drm_wait_cmd *a)
{
	context *c = context_get(a->hwctx);
	if (!c)
		return -EINVAL;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	uint64_t ns = (uint64_t)t.tv_nsec + (uint64_t)(a->timeout % 1000) * 1000000;
	t.tv_sec += a->timeout / 1000 + (time_t)(ns / 1000000000);
	t.tv_nsec = (long)(ns % 1000000000);
	return wait_for(c, a->seq, a->timeout ? &t : NULL);
}

void context_reset(void)
{
	memset(contexts, 0, sizeof contexts);
	memset(syncobjs, 0, sizeof syncobjs);
}

void context_usage(npuemu_stats *s)
{
	for (uint32_t i = 1; i <= MAX_CONTEXTS; i++)
		s->contexts += contexts[i].used;
	for (uint32_t i = 1; i < MAX_SYNCOBJS; i++)
		s->syncobjs += syncobjs[i].used;
}
