//go:build cgo && !windows && (amd64 || arm64)

// Whether instructions work, found out by a child process that executes them: there are machines, virtual ones above all, that advertise what they
// then fault at.

#include "probe.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

int npk_survives(int (*body)(void), unsigned seconds) {
    int ends[2];
    if (pipe(ends)) return 0;
    pid_t child = fork();
    if (child == 0) {
        // The handlers of the parent, Go's among them, are not for this process: it shall die of what it does wrong, and of waiting.
        const int fatal[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGSYS, SIGALRM};
        sigset_t all;
        for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
        sigfillset(&all);
        for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) sigdelset(&all, fatal[i]);
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
    return good != 0;
}
