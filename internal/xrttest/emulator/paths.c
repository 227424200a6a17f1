// The libc functions with which XRT finds and opens the device. Device paths are redirected to the
// folder $NPUEMU_ROOT.
#include "emu.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const prefixes[] = {"/sys/bus/pci/", "/sys/devices/pci0000:00/0000:00:08.2/",
	"/sys/module/amdxdna", "/dev/accel"};

const char *emu_root(void)
{
	const char *r = getenv("NPUEMU_ROOT");
	return r && *r ? r : NULL;
}

void *emu_symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static const char *redirect(const char *path, char *buf)
{
	const char *root = emu_root();
	for (size_t i = 0; root && path && i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(path, prefixes[i], strlen(prefixes[i])))
			return snprintf(buf, PATH_MAX, "%s%s", root, path) < PATH_MAX ? buf : path;
	return path;
}

// The libc function that this definition overrides.
#define NEXT(f) ({ \
	static __typeof__(&f) next; \
	if (!next) \
		next = (__typeof__(&f))dlsym(RTLD_NEXT, #f); \
	next; \
})

// Returns whether the script rejects an open of the node. Sets errno.
static bool refused(const char *path, const char *real)
{
	if (real == path || strncmp(path, "/dev/accel/", 11) || device_fd() < 0)
		return false;
	pthread_mutex_lock(&emu_lock);
	int err = emu_removed ? -ENODEV : script_errno(ON_OPEN);
	pthread_mutex_unlock(&emu_lock);
	errno = -err;
	return err != 0;
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
	char buf[PATH_MAX];
	const char *real = redirect(path, buf);
	return refused(path, real) ? -1 : NEXT(openat)(dir, real, flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	mode_t mode = mode_of(flags, args);
	va_end(args);
	return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	mode_t mode = mode_of(flags, args);
	va_end(args);
	return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	mode_t mode = mode_of(flags, args);
	va_end(args);
	return open_at(dir, path, flags, mode);
}

int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }

FILE *fopen(const char *path, const char *mode)
{
	char buf[PATH_MAX];
	return NEXT(fopen)(redirect(path, buf), mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	char buf[PATH_MAX];
	return NEXT(fopen64)(redirect(path, buf), mode);
}

int stat(const char *restrict path, struct stat *restrict s)
{
	char buf[PATH_MAX];
	return NEXT(stat)(redirect(path, buf), s);
}

int lstat(const char *restrict path, struct stat *restrict s)
{
	char buf[PATH_MAX];
	return NEXT(lstat)(redirect(path, buf), s);
}

DIR *opendir(const char *path)
{
	char buf[PATH_MAX];
	return NEXT(opendir)(redirect(path, buf));
}

// XRT parses a device's real path, so the folder is removed from it.
char *realpath(const char *restrict path, char *restrict out)
{
	char buf[PATH_MAX], real[PATH_MAX], root[PATH_MAX];
	const char *lead = redirect(path, buf);
	if (!NEXT(realpath)(lead, real))
		return NULL;
	const char *seen = real;
	if (lead != path && NEXT(realpath)(emu_root(), root) && !strncmp(real, root, strlen(root)))
		seen = real + strlen(root);
	return out ? strcpy(out, seen) : strdup(seen);
}

// Locked mappings of the node count against the scripted limit but are not locked, so that the
// machine's own limit does not matter.
enum { MAX_LOCKED = 1 << 14 };
static struct { uint64_t at, n; } locked[MAX_LOCKED];
static int locked_end; // entries at or above are unused
static uint64_t locked_sum;

uint64_t locked_bytes(void) { return locked_sum; }

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	if (fd < 0 || !(flags & MAP_LOCKED) || !is_device(fd))
		return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
	pthread_mutex_lock(&emu_lock);
	int err = emu_removed ? -ENODEV : script_errno(ON_MMAP);
	if (!err && (locked_sum > limit_memlock || n > limit_memlock - locked_sum))
		err = -EAGAIN;
	void *p = err ? MAP_FAILED : (void *)syscall(SYS_mmap, at, n, prot, flags & ~MAP_LOCKED, fd, offset);
	if (p != MAP_FAILED) {
		int i = 0;
		buffer_mapped((uint64_t)offset, p);
		while (i < locked_end && locked[i].n)
			i++;
		if (i < MAX_LOCKED) {
			locked[i].at = (uint64_t)(uintptr_t)p;
			locked[i].n = n;
			locked_sum += n;
			locked_end = i >= locked_end ? i + 1 : locked_end;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	if (err)
		errno = -err;
	return p;
}

int munmap(void *at, size_t n)
{
	uint64_t from = (uint64_t)(uintptr_t)at;
	pthread_mutex_lock(&emu_lock);
	for (int i = 0; i < locked_end; i++)
		if (locked[i].n && locked[i].at >= from && locked[i].at - from < n) {
			locked_sum -= locked[i].n;
			locked[i].n = 0;
		}
	while (locked_end > 0 && !locked[locked_end - 1].n)
		locked_end--;
	pthread_mutex_unlock(&emu_lock);
	return emu_unmap(at, n);
}

int emu_unmap(void *at, size_t n) { return (int)syscall(SYS_munmap, at, n); }
