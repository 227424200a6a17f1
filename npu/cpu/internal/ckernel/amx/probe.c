//go:build cgo && !windows && amd64

// Probes instructions in a child process, because some machines, mostly virtual ones, advertise
// instructions that fault.

#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

// Ends a body that faults or hangs. Dying of the signal would dump the memory of the whole program.
static void leave(int sig) {
    (void)sig;
    _exit(1);
}

int npk_survives(int (*body)(void), unsigned seconds) {
    int ends[2];
    if (pipe(ends)) return -1;
    // Programs started meanwhile must not keep the pipe open, because the parent waits for its end.
    // The caller holds Go's fork lock, which covers the moment between the two calls.
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        // The parent's handlers, Go's among them, are not for this process.
        const int fatal[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGSYS, SIGALRM};
        sigset_t all;
        sigfillset(&all);
        for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
            signal(fatal[i], leave);
            sigdelset(&all, fatal[i]);
        }
        sigprocmask(SIG_SETMASK, &all, NULL);
        alarm(seconds);
        char good = (char)body();
        _exit(write(ends[1], &good, 1) != 1);
    }
    close(ends[1]);
    char good = 0;
    if (child > 0) {
        // The child writes the result. If it dies instead, the pipe ends.
        while (read(ends[0], &good, 1) < 0 && errno == EINTR) {}
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    }
    close(ends[0]);
    return child < 0 ? -1 : good != 0;
}
