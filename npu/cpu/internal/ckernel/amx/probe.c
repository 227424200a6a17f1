//go:build cgo && !windows && amd64

// Whether instructions work, found out by a child process that executes them: there are machines, virtual ones above all, that advertise what they
// then fault at.

#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

// The end of a body that faults or hangs. Dying of the signal would leave a memory dump of the whole program.
static void leave(int sig) {
    (void)sig;
    _exit(1);
}

int npk_survives(int (*body)(void), unsigned seconds) {
    int ends[2];
    if (pipe(ends)) return -1;
    // Programs started meanwhile must not keep the pipe open: the parent waits for its end. Against the moment between the calls the caller holds Go's lock of forks.
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        // The handlers of the parent, Go's among them, are not for this process.
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
        // The child says what came out; if it dies instead, the pipe ends.
        while (read(ends[0], &good, 1) < 0 && errno == EINTR) {}
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    }
    close(ends[0]);
    return child < 0 ? -1 : good != 0;
}
