/* slow.c - a rank whose core is slow: preloaded, it sleeps SLOW_MS after each millisecond that rank SLOW_RANK has
 * computed.  What it waits for others takes no processor time and stays as long as it was. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static struct timespec nap;

static void sleep_a_while(int sig) {
    (void)sig;
    nanosleep(&nap, NULL);
}

__attribute__((constructor)) static void begin(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *slow = getenv("SLOW_RANK"), *ms = getenv("SLOW_MS");
    if (!rank || !slow || !ms || strcmp(rank, slow)) return;
    struct sigaction sa = { .sa_handler = sleep_a_while, .sa_flags = SA_RESTART };
    struct itimerval each = { { 0, 1000 }, { 0, 1000 } };
    nap.tv_nsec = 1000000L * atoi(ms);
    sigaction(SIGPROF, &sa, NULL);
    setitimer(ITIMER_PROF, &each, NULL);
}
