// Buffer objects: memory in the node's file or of the user, a device address, and a separate copy
// that only the device sees.
#include "emu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static buffer buffers[MAX_BUFFERS]; // by handle, from 1
static uint32_t used_end = 1;       // handles at or above are unused
// The file starts with the heap's region, so that heap buffers are contiguous as in the device's
// address space.
static range_space file = {.base = HEAP_ALIGN + HEAP_MAX, .size = 1ull << 46};
static range_space heap = {.base = HEAP_BASE, .size = 0};
static uint8_t *heap_host, *heap_device;

static uint32_t free_handle(void)
{
	for (uint32_t h = 1; h < MAX_BUFFERS; h++)
		if (!buffers[h].used)
			return h;
	return 0;
}

buffer *buffer_get(uint32_t handle)
{
	return handle > 0 && handle < used_end && buffers[handle].used ? &buffers[handle] : NULL;
}

static void *map_file(uint64_t offset, uint64_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, device_fd(), (off_t)offset);
	return p == MAP_FAILED ? NULL : p;
}

// Device memory starts with bytes that are NaN in every format, so that reads of unsynced memory
// are noticed.
static uint8_t *device_copy(uint64_t n, bool poison)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (poison && n <= POISON_MAX)
		memset(p, 0xff, n);
	return p;
}

static int create_heap(buffer *b)
{
	if (b->size % HEAP_ALIGN)
		return -EINVAL;
	if (heap.size + b->size > (limit_heap < HEAP_MAX ? limit_heap : HEAP_MAX))
		return -ENOMEM;
	if (!heap_host) {
		if (ftruncate(device_fd(), (off_t)(HEAP_ALIGN + HEAP_MAX)) && errno != EINVAL)
			return -errno;
		heap_host = map_file(HEAP_ALIGN, HEAP_MAX);
		heap_device = emu_shadow ? device_copy(HEAP_MAX, false) : heap_host;
		if (!heap_host || !heap_device)
			return -ENOMEM;
	}
	b->address = HEAP_BASE + heap.size;
	b->file = HEAP_ALIGN + heap.size;
	b->host = heap_host + heap.size;
	b->device = heap_device + heap.size;
	heap.size += b->size;
	return 0;
}

static int create_heap_part(buffer *b)
{
	// The driver returns EAGAIN if the heap is full, and the xdna library then enlarges it.
	b->address = range_alloc(&heap, (b->size + HEAP_UNIT - 1) & ~(HEAP_UNIT - 1), HEAP_UNIT);
	if (b->address == ~0ull)
		return -EAGAIN;
	b->host = heap_host + (b->address - HEAP_BASE);
	b->device = heap_device + (b->address - HEAP_BASE);
	if (emu_shadow && b->size <= POISON_MAX)
		memset(b->device, 0xff, b->size);
	return 0;
}

static int create_user(buffer *b, uint64_t table)
{
	const struct amdxdna_drm_va_tbl *t = (const void *)(uintptr_t)table;
	if (t->num_entries != 1) // the xdna library passes one; a dmabuf has none
		return -EOPNOTSUPP;
	if (t->va_entries[0].vaddr % PAGE || t->va_entries[0].len % PAGE || t->va_entries[0].len == 0)
		return -EINVAL;
	b->user = true;
	b->size = t->va_entries[0].len;
	b->host = (uint8_t *)(uintptr_t)t->va_entries[0].vaddr;
	b->device = emu_shadow ? device_copy(b->size, true) : b->host;
	b->address = t->va_entries[0].vaddr;
	return b->device ? 0 : -ENOMEM;
}

static int create_own(buffer *b)
{
	b->file = range_alloc(&file, b->size, PAGE);
	if (b->file == ~0ull)
		return -ENOMEM;
	off_t end = (off_t)(b->file + b->size);
	if (lseek(device_fd(), 0, SEEK_END) < end && ftruncate(device_fd(), end)) {
		range_free(&file, b->file);
		return -ENOMEM;
	}
	b->host = map_file(b->file, b->size);
	// The driver reads commands through the cache; only data has two views.
	b->device = emu_shadow && b->type == AMDXDNA_BO_SHARE ? device_copy(b->size, true) : b->host;
	b->address = IOVA_BASE + b->file;
	if (b->host && b->device)
		return 0;
	if (b->host)
		emu_unmap(b->host, b->size);
	range_free(&file, b->file);
	return -ENOMEM;
}

int buffer_create(struct amdxdna_drm_create_bo *a)
{
	int err = script_errno(ON_CREATE_BO);
	uint32_t h = free_handle();
	if (err)
		return err;
	if (!h)
		return -ENOSPC;
	if (a->flags || (a->size == 0 && a->vaddr == 0) || a->size > 1ull << 45)
		return -EINVAL;
	buffer b = {.type = a->type, .size = (a->size + PAGE - 1) & ~(PAGE - 1), .file = ~0ull};
	switch (a->type) {
	case AMDXDNA_BO_SHARE: err = a->vaddr ? create_user(&b, a->vaddr) : create_own(&b); break;
	case AMDXDNA_BO_CMD: err = create_own(&b); break;
	case AMDXDNA_BO_DEV_HEAP: err = create_heap(&b); break;
	case AMDXDNA_BO_DEV: err = create_heap_part(&b); break;
	default: err = -EINVAL;
	}
	TRACE("create buffer type %u, %llu bytes: %u at 0x%llx, %d", a->type,
		(unsigned long long)a->size, h, (unsigned long long)b.address, err);
	if (err)
		return err;
	b.used = true;
	buffers[h] = b;
	if (h >= used_end)
		used_end = h + 1;
	a->handle = h;
	return 0;
}

int buffer_info(struct amdxdna_drm_get_bo_info *a)
{
	buffer *b = buffer_get(a->handle);
	if (!b)
		return -ENOENT;
	a->map_offset = b->file;
	a->vaddr = 0;
	a->xdna_addr = emu_sva && b->type == AMDXDNA_BO_SHARE ? ~0ull : b->address;
	return 0;
}

// With shared virtual addresses (SVA) the IOMMU uses the process's page table. The driver assigns
// no address to data buffers, and the xdna library uses the address at which they are mapped.
void buffer_mapped(uint64_t offset, void *at)
{
	for (uint32_t h = 1; emu_sva && h < used_end; h++)
		if (buffers[h].used && buffers[h].type == AMDXDNA_BO_SHARE && buffers[h].file == offset)
			buffers[h].address = (uint64_t)(uintptr_t)at;
}

int buffer_sync(struct amdxdna_drm_sync_bo *a)
{
	buffer *b = buffer_get(a->handle);
	if (!b)
		return -ENOENT;
	if (a->direction > SYNC_DIRECT_FROM_DEVICE || a->offset > b->size || a->size > b->size - a->offset)
		return -EINVAL;
	emu_stats.syncs++;
	TRACE("sync %u %s, %llu bytes from %llu", a->handle,
		a->direction ? "from device" : "to device", (unsigned long long)a->size,
	      (unsigned long long)a->offset);
	if (b->device == b->host)
		return 0;
	if (a->direction == SYNC_DIRECT_TO_DEVICE)
		memcpy(b->device + a->offset, b->host + a->offset, a->size);
	else
		memcpy(b->host + a->offset, b->device + a->offset, a->size);
	return 0;
}

int buffer_close(uint32_t handle)
{
	buffer *b = buffer_get(handle);
	if (!b)
		return -EINVAL;
	TRACE("close buffer %u", handle);
	if (b->pins > 0) {
		// The driver keeps it too. But the process released memory that the device still writes,
		// which is always a bug.
		if (!b->closing)
			emu_violation("buffer %u of %llu bytes was closed while a command uses it", handle,
				(unsigned long long)b->size);
		b->closing = true;
		return 0;
	}
	bool own = b->file != ~0ull && b->type != AMDXDNA_BO_DEV_HEAP;
	if (own) {
		emu_unmap(b->host, b->size);
		range_free(&file, b->file);
	}
	if ((own || b->user) && b->device != b->host)
		emu_unmap(b->device, b->size);
	if (b->file != ~0ull) // the next buffer there starts with zeros, and the memory is freed at once
		fallocate(device_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->file, (off_t)b->size);
	if (b->type == AMDXDNA_BO_DEV)
		range_free(&heap, b->address);
	if (b->type == AMDXDNA_BO_DEV_HEAP)
		heap.size -= b->size; // a device closes its whole heap, never a part
	memset(b, 0, sizeof *b);
	while (used_end > 1 && !buffers[used_end - 1].used)
		used_end--;
	return 0;
}

void buffer_pin(uint32_t handle)
{
	if (buffer_get(handle))
		buffers[handle].pins++;
}

void buffer_unpin(uint32_t handle)
{
	buffer *b = buffer_get(handle);
	if (b && b->pins > 0 && --b->pins == 0 && b->closing)
		buffer_close(handle);
}

void buffer_reset(void)
{
	for (uint32_t h = used_end - 1; h > 0; h--)
		if (buffers[h].used)
			buffer_close(h);
	range_clear(&heap);
	heap.size = 0;
}

static void *within(buffer *b, uint64_t address, uint64_t n, uint64_t *left)
{
	if (!b || address < b->address || address - b->address > b->size || n > b->size - (address - b->address))
		return NULL;
	if (left)
		*left = b->size - (address - b->address);
	return b->device + (address - b->address);
}

void *buffer_at(uint64_t address, uint64_t n, const uint32_t *only, uint32_t count, uint64_t *left)
{
	void *p = NULL;
	if (only) {
		for (uint32_t i = 0; i < count && !p; i++)
			p = within(buffer_get(only[i]), address, n, left);
		return p;
	}
	for (uint32_t h = 1; h < used_end && !p; h++)
		if (buffers[h].used && buffers[h].type != AMDXDNA_BO_DEV_HEAP && buffers[h].type != AMDXDNA_BO_CMD)
			p = within(&buffers[h], address, n, left);
	return p;
}

void buffer_usage(npuemu_stats *s)
{
	for (uint32_t h = 1; h < used_end; h++)
		if (buffers[h].used) {
			s->buffers++;
			s->buffer_bytes += buffers[h].type == AMDXDNA_BO_DEV ? 0 : buffers[h].size;
		}
	s->heap_bytes = heap.taken;
}

uint64_t buffer_heap_used(void) { return heap.taken; }
