// Tests of the ioctls: errors that XRT's library never causes, and behavior that it relies on. Runs
// under the emulator.
#include "../npuemu.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <drm/drm.h>
#include <drm/amdxdna_accel.h>

static int fd;

// Returns 0 or the negative errno of an ioctl.
static int call(unsigned long request, void *arg) { return ioctl(fd, request, arg) < 0 ? -errno : 0; }

static int create(uint32_t type, uint64_t size, uint32_t *handle)
{
	struct amdxdna_drm_create_bo a = {.type = type, .size = size};
	int err = call(DRM_IOCTL_AMDXDNA_CREATE_BO, &a);
	*handle = a.handle;
	return err;
}

static int destroy(uint32_t handle)
{
	struct drm_gem_close a = {.handle = handle};
	return call(DRM_IOCTL_GEM_CLOSE, &a);
}

static struct amdxdna_drm_get_bo_info info(uint32_t handle)
{
	struct amdxdna_drm_get_bo_info a = {.handle = handle};
	CHECK(call(DRM_IOCTL_AMDXDNA_GET_BO_INFO, &a) == 0);
	return a;
}

static void *map(uint32_t handle, size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)info(handle).map_offset);
	CHECK(p != MAP_FAILED);
	return p;
}

static int open_context(uint32_t tiles, uint32_t *handle, uint32_t *syncobj)
{
	struct amdxdna_qos_info qos = {0};
	struct amdxdna_drm_create_hwctx a = {.qos_p = (uintptr_t)&qos, .num_tiles = tiles};
	int err = call(DRM_IOCTL_AMDXDNA_CREATE_HWCTX, &a);
	*handle = a.handle;
	*syncobj = a.syncobj_handle;
	return err;
}

static void close_context(uint32_t handle, uint32_t syncobj)
{
	struct amdxdna_drm_destroy_hwctx a = {.handle = handle};
	struct drm_syncobj_destroy s = {.handle = syncobj};
	CHECK(call(DRM_IOCTL_AMDXDNA_DESTROY_HWCTX, &a) == 0);
	CHECK(call(DRM_IOCTL_SYNCOBJ_DESTROY, &s) == 0);
}

static int submit(uint32_t context, uint32_t command, const uint32_t *args, uint32_t n, uint64_t *seq)
{
	struct amdxdna_drm_exec_cmd a = {.hwctx = context, .cmd_handles = command, .cmd_count = 1,
		.args = (uintptr_t)args, .arg_count = n};
	int err = call(DRM_IOCTL_AMDXDNA_EXEC_CMD, &a);
	*seq = a.seq;
	return err;
}

static int wait_ms(uint32_t context, uint64_t seq, uint32_t ms)
{
	struct amdxdna_drm_wait_cmd a = {.hwctx = context, .timeout = ms, .seq = seq};
	return call(DRM_IOCTL_AMDXDNA_WAIT_CMD, &a);
}

static void buffers(void)
{
	uint32_t h, heap, part;
	CHECK(create(AMDXDNA_BO_SHARE, 0, &h) == -EINVAL);
	CHECK(create(AMDXDNA_BO_INVALID, 4096, &h) == -EINVAL);
	CHECK(create(99, 4096, &h) == -EINVAL);
	CHECK(create(AMDXDNA_BO_SHARE, ~0ull, &h) == -EINVAL);
	CHECK(create(AMDXDNA_BO_DEV, 4096, &h) == -EAGAIN); // no heap yet
	CHECK(create(AMDXDNA_BO_DEV_HEAP, 4096, &h) == -EINVAL);
	CHECK(create(AMDXDNA_BO_DEV_HEAP, 64 << 20, &heap) == 0 && info(heap).xdna_addr == 0x4000000);
	CHECK(create(AMDXDNA_BO_DEV, 1, &part) == 0 && info(part).xdna_addr == 0x4000000);
	CHECK(create(AMDXDNA_BO_DEV, 64 << 20, &h) == -EAGAIN);
	CHECK(destroy(part) == 0 && destroy(part) == -EINVAL);
	CHECK(create(AMDXDNA_BO_DEV, 64 << 20, &part) == 0 && destroy(part) == 0 && destroy(heap) == 0);

	CHECK(create(AMDXDNA_BO_SHARE, 5000, &h) == 0);
	unsigned char *p = map(h, 8192);
	CHECK(p[0] == 0 && p[8191] == 0);
	memset(p, 7, 8192);
	const struct { uint64_t offset, size; uint32_t direction; int want; } syncs[] = {
		{0, 8192, 0, 0}, {8192, 0, 0, 0}, {0, 8193, 0, -EINVAL}, {8193, 0, 0, -EINVAL},
		{~0ull, 2, 1, -EINVAL}, {0, 1, 2, -EINVAL}};
	for (size_t i = 0; i < sizeof syncs / sizeof *syncs; i++) {
		struct amdxdna_drm_sync_bo a = {.handle = h, .direction = syncs[i].direction,
			.offset = syncs[i].offset, .size = syncs[i].size};
		CHECK(call(DRM_IOCTL_AMDXDNA_SYNC_BO, &a) == syncs[i].want);
	}
	munmap(p, 8192);
	CHECK(destroy(h) == 0);
	uint32_t again;
	CHECK(create(AMDXDNA_BO_SHARE, 8192, &again) == 0); // the same place in the file, zeroed again
	p = map(again, 8192);
	CHECK(p[0] == 0 && p[8191] == 0);
	munmap(p, 8192);
	CHECK(destroy(again) == 0 && destroy(0) == -EINVAL && destroy(1 << 30) == -EINVAL);
}

static void contexts(void)
{
	uint32_t h[33], s[33];
	CHECK(open_context(0, &h[0], &s[0]) == -EINVAL && open_context(3, &h[0], &s[0]) == -EINVAL &&
		open_context(36, &h[0], &s[0]) == -EINVAL);
	for (int i = 0; i < 32; i++)
		CHECK(open_context(32, &h[i], &s[i]) == 0 && h[i] != 0 && s[i] != 0);
	CHECK(open_context(32, &h[32], &s[32]) == -ENOENT);
	for (int i = 0; i < 32; i++)
		close_context(h[i], s[i]);
	struct amdxdna_drm_destroy_hwctx gone = {.handle = h[0]};
	CHECK(call(DRM_IOCTL_AMDXDNA_DESTROY_HWCTX, &gone) == -EINVAL);
}

// A chain and its commands, which run opcode 3 on instructions that only wait.
enum { MOST = 70 };
static struct {
	uint32_t context, syncobj, heap, instructions, chain, commands[MOST];
	uint32_t *words, *packets[MOST];
} rig;

// Writes a command with the given number of unset buffer arguments.
static void make_command(uint32_t *p, uint32_t op, uint32_t args)
{
	uint64_t at = info(rig.instructions).xdna_addr;
	uint32_t count = 1 + 5 + 2 * args;
	memset(p, 0, 4096);
	p[0] = op << 23 | count << 12 | 1;
	p[1] = 1; // the first kernel
	p[2] = 3;
	p[4] = (uint32_t)at;
	p[5] = (uint32_t)(at >> 32);
	p[6] = 8;
}

// Submits the first n commands as a chain, returns its final state and stores its error index in
// *failed. Restores the first command, which the driver overwrites if the chain fails.
static uint32_t run_chain(uint32_t n, uint32_t *failed)
{
	uint32_t first[1024];
	uint64_t seq;
	memcpy(first, rig.packets[0], sizeof first);
	memset(rig.words, 0, 4096);
	rig.words[0] = 19u << 23 | (6 + 2 * n) << 12 | 1;
	rig.words[1] = n;
	for (uint32_t i = 0; i < n && i < MOST; i++)
		rig.words[7 + 2 * i] = rig.commands[i];
	CHECK(submit(rig.context, rig.chain, &rig.instructions, 1, &seq) == 0);
	CHECK(wait_ms(rig.context, seq, 5000) == 0);
	if (failed)
		*failed = rig.words[3];
	if (n > 0 && (rig.words[0] & 15) != NPUEMU_COMPLETED)
		CHECK(rig.packets[0][1] == ((rig.words[0] & 15) == NPUEMU_TIMEOUT ? 1 : ~0u) &&
			rig.packets[0][1023] == ~0u);
	memcpy(rig.packets[0], first, sizeof first);
	return rig.words[0] & 15;
}

static void commands(void)
{
	static const uint32_t stream[] = {0x06040100, 0x00000108, 1, 32, 0x80, 16, 0, 0x00010100};
	const char *(*script)(const char *) = (const char *(*)(const char *))dlsym(RTLD_DEFAULT, "npuemu_script");
	uint32_t failed;
	uint64_t seq;
	CHECK(open_context(32, &rig.context, &rig.syncobj) == 0);
	CHECK(create(AMDXDNA_BO_DEV_HEAP, 64 << 20, &rig.heap) == 0 &&
		create(AMDXDNA_BO_SHARE, 4096, &rig.instructions) == 0);
	CHECK(create(AMDXDNA_BO_CMD, 4096, &rig.chain) == 0);
	void *code = map(rig.instructions, 4096);
	memcpy(code, stream, sizeof stream);
	rig.words = map(rig.chain, 4096);
	for (int i = 0; i < MOST; i++) {
		CHECK(create(AMDXDNA_BO_CMD, 4096, &rig.commands[i]) == 0);
		rig.packets[i] = map(rig.commands[i], 4096);
		make_command(rig.packets[i], 0, 0);
	}
	CHECK(submit(rig.context, rig.commands[0], &rig.instructions, 1, &seq) == 0 &&
		wait_ms(rig.context, seq, 5000) == 0);
	CHECK((rig.packets[0][0] & 15) == NPUEMU_COMPLETED);

	CHECK(submit(99, rig.commands[0], NULL, 0, &seq) == -EINVAL);
	CHECK(submit(rig.context, rig.instructions, NULL, 0, &seq) == -EINVAL); // not a command buffer
	CHECK(submit(rig.context, 1 << 30, NULL, 0, &seq) == -EINVAL);
	CHECK(submit(rig.context, rig.commands[0], (uint32_t[]){1 << 30}, 1, &seq) == -ENOENT);

	// 56 slots of 52 + 20 bytes fit
	CHECK(run_chain(1, NULL) == NPUEMU_COMPLETED && run_chain(56, NULL) == NPUEMU_COMPLETED);
	CHECK(run_chain(57, NULL) == NPUEMU_ABORT);
	CHECK(run_chain(0, NULL) == NPUEMU_ABORT);
	// two words of payload: 65 slots of 60 bytes would fit, and the first command would fail
	for (int i = 0; i < 65; i++)
		rig.packets[i][0] = 3u << 12 | 1;
	CHECK(run_chain(65, NULL) == NPUEMU_ABORT);
	for (int i = 0; i < 65; i++)
		make_command(rig.packets[i], 0, 0);
	make_command(rig.packets[3], 20, 0); // a different kind of command
	CHECK(run_chain(5, NULL) == NPUEMU_ABORT);
	for (int i = 0; i < 24; i++)
		make_command(rig.packets[i], 0, 12);
	CHECK(run_chain(24, NULL) == NPUEMU_COMPLETED); // 24 * (52 + 20 + 12 * 8) = 4032
	for (int i = 0; i < 24; i++)
		make_command(rig.packets[i], 0, 13);
	CHECK(run_chain(24, NULL) == NPUEMU_ABORT);

	CHECK(script("run 2 error") == NULL && run_chain(4, &failed) == NPUEMU_ERROR && failed == 1);
	CHECK(script("run 4 timeout") == NULL && run_chain(4, &failed) == NPUEMU_TIMEOUT && failed == 3);
	CHECK(script("run 1 delay 60") == NULL && submit(rig.context, rig.commands[0],
		&rig.instructions, 1, &seq) == 0);
	CHECK(wait_ms(rig.context, seq, 5) == -ETIME && wait_ms(rig.context, seq, 0) == 0);
	// A timeout resets the context: queued commands are aborted, later ones run.
	uint64_t after;
	CHECK(script("run 1 delay 30; run 2 timeout") == NULL);
	for (int i = 0; i < 3; i++)
		CHECK(submit(rig.context, rig.commands[i], &rig.instructions, 1, &after) == 0);
	CHECK(wait_ms(rig.context, after, 5000) == 0);
	CHECK((rig.packets[0][0] & 15) == NPUEMU_COMPLETED &&
		(rig.packets[1][0] & 15) == NPUEMU_TIMEOUT && (rig.packets[2][0] & 15) == NPUEMU_ABORT);
	// A timeout stores the context's health in the command; other failures store nothing readable.
	CHECK(rig.packets[1][1] == 1 && rig.packets[1][2] == 0 && rig.packets[1][3] == 5 &&
		rig.packets[1][9] == ~0u && rig.packets[2][1] == ~0u);
	make_command(rig.packets[2], 0, 0);
	CHECK(submit(rig.context, rig.commands[2], &rig.instructions, 1, &after) == 0 &&
		wait_ms(rig.context, after, 5000) == 0);
	CHECK((rig.packets[2][0] & 15) == NPUEMU_COMPLETED);
	CHECK(script(NULL) == NULL);

	for (int i = 0; i < MOST; i++) {
		munmap(rig.packets[i], 4096);
		CHECK(destroy(rig.commands[i]) == 0);
	}
	munmap(rig.words, 4096);
	munmap(code, 4096);
	CHECK(destroy(rig.chain) == 0 && destroy(rig.instructions) == 0 && destroy(rig.heap) == 0);
	close_context(rig.context, rig.syncobj);
}

static void queries(void)
{
	struct amdxdna_drm_query_aie_metadata m;
	struct amdxdna_drm_get_info a = {.param = DRM_AMDXDNA_QUERY_AIE_METADATA,
		.buffer = (uintptr_t)&m, .buffer_size = sizeof m};
	CHECK(call(DRM_IOCTL_AMDXDNA_GET_INFO, &a) == 0 && m.cols == 8 && m.rows == 6 && m.core.row_count == 4);
	unsigned char guard[8];
	memset(guard, 0xee, sizeof guard);
	a = (struct amdxdna_drm_get_info){.param = DRM_AMDXDNA_QUERY_AIE_VERSION,
		.buffer = (uintptr_t)guard, .buffer_size = 4};
	CHECK(call(DRM_IOCTL_AMDXDNA_GET_INFO, &a) == 0 && guard[4] == 0xee); // truncated to the buffer
	a.param = 9999;
	CHECK(call(DRM_IOCTL_AMDXDNA_GET_INFO, &a) == -EOPNOTSUPP);
	struct amdxdna_drm_get_array array = {.param = 9999};
	CHECK(call(DRM_IOCTL_AMDXDNA_GET_ARRAY, &array) == -EOPNOTSUPP);
	struct amdxdna_drm_set_state state = {.param = DRM_AMDXDNA_SET_POWER_MODE};
	CHECK(call(DRM_IOCTL_AMDXDNA_SET_STATE, &state) == -EACCES);
	CHECK(call(DRM_IOWR(0x9f, struct amdxdna_drm_get_info), &a) == -ENOTTY);
}

int main(void)
{
	npuemu_stats s;
	void (*stats)(npuemu_stats *) = (void (*)(npuemu_stats *))dlsym(RTLD_DEFAULT, "npuemu_get_stats");
	int (*violation)(char *, uint32_t) = (int (*)(char *, uint32_t))dlsym(RTLD_DEFAULT,
		"npuemu_take_violation");
	if (!stats || !violation) {
		fprintf(stderr, "driver_test must run under the emulator\n");
		return 2;
	}
	fd = open("/dev/accel/accel0", O_RDWR);
	CHECK(fd >= 0);
	buffers();
	contexts();
	commands();
	queries();
	close(fd);
	stats(&s);
	CHECK(s.buffers == 0 && s.contexts == 0 && s.syncobjs == 0 && s.heap_bytes == 0);
	char text[256];
	while (violation(text, sizeof text)) {
		fprintf(stderr, "violation: %s\n", text);
		failures++;
	}
	return failures != 0;
}
