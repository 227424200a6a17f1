// The device node: its file descriptors and ioctls.
#include "emu.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

pthread_mutex_t emu_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t emu_changed = PTHREAD_COND_INITIALIZER;
bool emu_trace, emu_shadow, emu_sva, emu_removed;
npuemu_stats emu_stats;

static int own_fd = -1;
static struct stat node;

enum { MAX_VIOLATIONS = 32, VIOLATION_TEXT = 256 };
// oldest first; those beyond the last entry are only counted
static char violations[MAX_VIOLATIONS][VIOLATION_TEXT];
static uint32_t nviolations;

void emu_log(const char *format, ...)
{
	char line[512] = "npuemu: ";
	va_list args;
	va_start(args, format);
	size_t n = strlen(line);
	vsnprintf(line + n, sizeof line - n - 1, format, args);
	va_end(args);
	strcat(line, "\n");
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return; // ignore errors of the log
}

void emu_violation(const char *format, ...)
{
	char text[VIOLATION_TEXT];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	TRACE("violation: %s", text);
	if (nviolations < MAX_VIOLATIONS)
		memcpy(violations[nviolations], text, sizeof text);
	nviolations++;
}

int npuemu_take_violation(char *text, uint32_t n)
{
	pthread_mutex_lock(&emu_lock);
	bool any = nviolations > 0;
	if (any) {
		snprintf(text, n, "%s", violations[0]);
		uint32_t kept = nviolations < MAX_VIOLATIONS ? nviolations : MAX_VIOLATIONS;
		memmove(violations[0], violations[1], (kept - 1) * sizeof violations[0]);
		if (nviolations > MAX_VIOLATIONS)
			snprintf(violations[kept - 1], sizeof violations[0], "(too many violations to record)");
		nviolations--;
	}
	pthread_mutex_unlock(&emu_lock);
	return any;
}

// The emulator starts with the process, after XRT's constructors and before XRT reads its settings.
// It configures XRT to pass every sync to the driver; otherwise XRT may use cache instructions,
// which the emulator cannot see.
__attribute__((constructor)) static void start(void)
{
	if (!emu_root())
		return;
	own_fd = open("/dev/accel/accel0", O_RDWR | O_CLOEXEC);
	if (own_fd < 0 || fstat(own_fd, &node)) {
		emu_log("cannot open dev/accel/accel0 under %s: %s", emu_root(), strerror(errno));
		_exit(2);
	}
	emu_trace = getenv("NPUEMU_TRACE") != NULL;
	int (*set)(const char *, const char *) = (int (*)(const char *, const char *))emu_symbol("xrtIniStringSet");
	emu_sva = getenv("NPUEMU_SVA") != NULL;
	const char *shadow = getenv("NPUEMU_SHADOW");
	emu_shadow = set && set("Debug.force_driver_sync", "true") == 0 && !(shadow && !strcmp(shadow, "0"));
	const char *wrong = npuemu_script(getenv("NPUEMU_SCRIPT"));
	if (wrong) {
		emu_log("NPUEMU_SCRIPT: %s", wrong);
		_exit(2);
	}
}

int device_fd(void) { return own_fd; }

bool is_device(int fd)
{
	struct stat s;
	return own_fd >= 0 && fd != own_fd && !fstat(fd, &s) && s.st_ino == node.st_ino && s.st_dev == node.st_dev;
}

// A removed device rejects every request except those that release resources. The driver frees
// resources when the node is closed; the emulator frees them on request.
static bool releases(unsigned nr)
{
	return nr == _IOC_NR(DRM_IOCTL_GEM_CLOSE) || nr == _IOC_NR(DRM_IOCTL_AMDXDNA_DESTROY_HWCTX) ||
		nr == _IOC_NR(DRM_IOCTL_SYNCOBJ_DESTROY);
}

// Dispatches by number only, as DRM does, because WAIT_CMD of the xdna library differs from the
// header in direction.
static int answer(unsigned long request, void *a)
{
	emu_stats.ioctls++;
	if (emu_removed && !releases(_IOC_NR(request)))
		return -ENODEV;
	switch (_IOC_NR(request)) {
	case _IOC_NR(DRM_IOCTL_AMDXDNA_CREATE_BO): return buffer_create(a);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_GET_BO_INFO): return buffer_info(a);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_SYNC_BO): return buffer_sync(a);
	case _IOC_NR(DRM_IOCTL_GEM_CLOSE): return buffer_close(((struct drm_gem_close *)a)->handle);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_CREATE_HWCTX): return context_create(a);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_DESTROY_HWCTX):
		return context_destroy(((struct amdxdna_drm_destroy_hwctx *)a)->handle);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_CONFIG_HWCTX): return context_configure(a);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_EXEC_CMD): return queue_submit(a);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_WAIT_CMD): return command_wait(a);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT): return syncobj_wait(a);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_CREATE): return syncobj_create(&((struct drm_syncobj_create *)a)->handle);
	case _IOC_NR(DRM_IOCTL_SYNCOBJ_DESTROY): return syncobj_destroy(((struct drm_syncobj_destroy *)a)->handle);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_GET_INFO): return info_get(a);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_GET_ARRAY): return info_array(a);
	case _IOC_NR(DRM_IOCTL_AMDXDNA_SET_STATE): return info_set(a);
	}
	TRACE("unknown ioctl 0x%lx", request);
	return -ENOTTY;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	va_start(args, request);
	void *a = va_arg(args, void *);
	va_end(args);
	if (_IOC_TYPE(request) != DRM_IOCTL_BASE || !is_device(fd))
		return (int)syscall(SYS_ioctl, fd, request, a);
	pthread_mutex_lock(&emu_lock);
	int r = answer(request, a);
	pthread_mutex_unlock(&emu_lock);
	if (r >= 0)
		return r;
	errno = -r;
	return -1;
}

void npuemu_get_stats(npuemu_stats *out)
{
	pthread_mutex_lock(&emu_lock);
	*out = emu_stats;
	buffer_usage(out);
	context_usage(out);
	out->locked_bytes = locked_bytes();
	out->violations = nviolations;
	pthread_mutex_unlock(&emu_lock);
	struct mallinfo2 m = mallinfo2();
	out->malloc_bytes = m.uordblks + m.hblkhd;
}

void npuemu_reset(void)
{
	pthread_mutex_lock(&emu_lock);
	buffer_reset();
	context_reset();
	emu_removed = false;
	nviolations = 0;
	async_code = 0;
	pthread_mutex_unlock(&emu_lock);
}
