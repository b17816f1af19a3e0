/* verb_page.c - `hone page RUN...`: runs in a browser. */
#include "base/file.h"
#include "cmd/cmd.h"
#include "http/http.h"
#include "page/page.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RUNS_MOST = 16 };
typedef struct {
    int64_t port, parent;
    const char *listen, *name, *alert_command;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "port",   OPT_INT, offsetof(Args, port),   "N",       "port (default 8265); 0: any that is free", 0, 65535 },
    { "listen", OPT_STR, offsetof(Args, listen), "ADDRESS",
      "numeric address to listen on (default 127.0.0.1 and ::1)" },
    { "name",   OPT_STR, offsetof(Args, name),   "HOST[:PORT]",
      "a name under which browsers ask too, such as a tunnel's" },
    { "alert-command", OPT_STR, offsetof(Args, alert_command), "COMMAND",
      "a shell line that gets a line of JSON when a run has stopped moving" },
    { "parent", OPT_INT, offsetof(Args, parent), "PID",
      "of the run that started this page (trainer.page): it ends with it, and prints nothing", 1, 1e9 },
    { 0 },
};
/* clang-format on */

/* Of a run: whatever becomes of it, the page goes with it, and takes no time that the run wants. */
static bool child_of(int64_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpriority(PRIO_PROCESS, 0, 10);
    cpu_set_t all; /* a launcher may have bound the run to some cores: those are not for pages */
    memset(&all, 0xFF, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
    return getppid() == (pid_t)parent;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .port = 8265 };
    const char *words[RUNS_MOST];
    int n;
    Err err;
    int rc = opt_parse(v, &a, words, 1, RUNS_MOST, &n, argc, argv);
    if (rc >= 0) return rc;
    if (a.listen && !web_address(a.listen)) return cmd_usage(v, "--listen '%s' is not a numeric address", a.listen);
    for (int i = 0; i < n; i++)
        if (!dir_exists(words[i])) {
            err_set(&err,
                    file_exists(words[i]) ? "%s: is a file; name the folder of a run" : "%s: there is no such folder",
                    words[i]);
            return cmd_fail(v, &err);
        }
    if (a.parent && !child_of(a.parent)) return 0; /* it has ended already */
    if (a.listen && !web_loopback(a.listen))
        fprintf(stderr,
                "hone page: %s is seen by other machines: whoever has the token reads these runs, and the token "
                "travels unencrypted; a tunnel (ssh -L) needs no --listen\n",
                a.listen);
    PageConf c = { .run = words,
                   .runs = n,
                   .listen = a.listen,
                   .name = a.name,
                   .alert_command = a.alert_command,
                   .port = (int)a.port,
                   .quiet = a.parent > 0 };
    return page_serve(&c, &err) ? 0 : cmd_fail(v, &err);
}

const Verb verb_page = {
    .name = "page",
    .usage = "RUN... [options]",
    .summary = "runs in a browser, live: curves, answers, alerts",
    .options = options,
    .run = run,
    .detail =
        "Prints the page's address, with a token that a browser needs; RUN/page.url has it too.  Only this machine\n"
        "can ask (--listen).  Nothing of a run is changed but that file.\n",
};
