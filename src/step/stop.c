/* stop.c - being told to stop. */
#include "step/job.h"

#include <signal.h>

static volatile sig_atomic_t stop; /* the one thing a signal may touch */
static void on_signal(int sig) {
    (void)sig;
    stop = 1;
}

bool stop_asked(void) { return stop; }

/* A launcher's word may come while a run still loads; a terminal's ends it then at once. */
void stop_listen_early(void) { signal(SIGUSR1, on_signal); }

void stop_listen(void) {
    struct sigaction sa = { .sa_handler = on_signal };
    static const int which[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1 }; /* USR1: mpirun hands it on, TERM it does not */
    for (size_t i = 0; i < COUNT(which); i++) {
        struct sigaction was;
        bool ignored = !sigaction(which[i], NULL, &was) && was.sa_handler == SIG_IGN;
        if (!ignored || which[i] != SIGHUP) sigaction(which[i], &sa, NULL);
    }
}
