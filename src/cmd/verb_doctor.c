/* verb_doctor.c - `hone doctor`: is everything here that a run wants, and how quick is it?  Of several ranks the first
 * of each machine looks, and the first of all tells; --json is a cluster file for `hone plan`. */
#include "base/term.h"
#include "cmd/asked.h"
#include "cmd/cmd.h"
#include "cmd/doctor/doctor.h"
#include "run/version.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *dir;
    bool json, quick;
} Args;

static const Opt options[] = {
    { "json", OPT_FLAG, offsetof(Args, json), "", "a cluster file for `hone plan --cluster FILE`, findings in it" },
    { "dir", OPT_STR, offsetof(Args, dir), "DIR", "the disk that is measured: where runs will be (.)" },
    { "quick", OPT_FLAG, offsetof(Args, quick), "", "measure nothing" },
    { 0 },
};

static const char *const state_names[] = { "ok", "slow", "missing" };

static void print(const Patient *p, bool named, bool alone) { /* mpirun's terminal may be a file */
    static const TermColour colour[] = { TERM_GOOD, TERM_HEAD, TERM_BAD };
    if (named) printf("%s\n", p->host);
    for (int i = 0; i < p->n; i++) {
        const Finding *f = &p->at[i];
        printf("%s%-8s%s %-14s %s\n", alone ? term_colour(STDOUT_FILENO, colour[f->state]) : "", state_names[f->state],
               alone ? term_colour(STDOUT_FILENO, TERM_END) : "", f->name, f->found);
        if (*f->todo) printf("%24s%s\n", "", f->todo);
    }
}

static void member(Buf *b, const char *key, const char *value) {
    buf_printf(b, "\"%s\":", key);
    json_put_str(b, value, strlen(value));
}

static void put_findings(Buf *b, const Patient *p) {
    buf_puts(b, "{"), member(b, "host", p->host), buf_puts(b, ",\"checks\":[");
    for (int i = 0; i < p->n; i++) {
        const Finding *f = &p->at[i];
        buf_puts(b, i ? ",{" : "{"), member(b, "name", f->name), buf_putc(b, ',');
        member(b, "state", state_names[f->state]), buf_putc(b, ','), member(b, "found", f->found);
        if (*f->todo) buf_putc(b, ','), member(b, "todo", f->todo);
        buf_putc(b, '}');
    }
    buf_puts(b, "]}");
}

/* The first machine's rates for all: a cluster is of one kind. */
static void print_json(const Patient *all, int n, int ranks) {
    const Machine *card = *all->card ? machine_card(all->card) : NULL;
    Buf b = { 0 };
    buf_puts(&b, "{"), member(&b, "type", card ? card->name : "this"), buf_putc(&b, ',');
    member(&b, "name", card ? all->card : all->host);
    int per_node = card ? (all->gpus ? all->gpus : 1) : (ranks + n - 1) / n;
    buf_printf(&b, ",\"gpus\":%d,\"gpus_per_node\":%d", card ? per_node * n : ranks, per_node);
    const struct {
        const char *key;
        double value;
    } size[] = { { "memory", card ? 0 : all->m.memory },      { "host_memory", all->m.host_memory },
                 { "flops", card ? 0 : all->m.flops },        { "bandwidth", card ? 0 : all->m.bandwidth },
                 { "host_bandwidth", all->m.host_bandwidth }, { "storage", all->disk_write * n } };
    for (size_t i = 0; i < COUNT(size); i++)
        if (size[i].value > 0) buf_printf(&b, ",\"%s\":%.0f", size[i].key, size[i].value);
    buf_puts(&b, ",\"found\":{"), member(&b, "hone", HONE_VERSION), buf_puts(&b, ",\"machines\":[");
    for (int i = 0; i < n; i++) {
        if (i) buf_putc(&b, ',');
        put_findings(&b, &all[i]);
    }
    buf_puts(&b, "]}}");
    puts(b.data);
    buf_free(&b);
}

static void tell(const Args *a, const Ranks *r, Patient *all) {
    int n = 0, ranks = ranks_count(r);
    for (int i = 0; i < ranks; i++)
        if (all[i].n) all[n++] = all[i]; /* the first of each machine */
    if (a->json) {
        print_json(all, n, ranks);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (i) putchar('\n');
        print(&all[i], n > 1, ranks == 1);
    }
    if (ranks > 1)
        printf("%s%d ranks on %d machine%s speak to each other\n", n > 1 ? "\n" : "", ranks, n, n > 1 ? "s" : "");
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .dir = "." };
    Ranks r;
    Err err;
    int rc = opt_parse(v, &a, NULL, 0, 0, NULL, argc, argv);
    if (rc >= 0) return rc;
    if (!asked_ranks(&r, v, &a, &err)) return cmd_fail(v, &err);
    Mem mem = { 0 };
    Patient *all = MEM_ARRAY(&mem, Patient, (size_t)ranks_count(&r)), *mine = MEM_NEW(&mem, Patient);
    if (!r.world.local_rank) {
        look_at_machine(mine, &r);
        look_at_parts(mine);
        look_at_gpu(mine);
        if (!a.quick) look_at_rates(mine, a.dir);
    }
    comm_gather_host(&r.world.all, all, mine, sizeof *mine);
    if (ranks_first(&r)) tell(&a, &r, all);
    mem_free(&mem);
    ranks_close(&r);
    return 0;
}

const Verb verb_doctor = {
    .name = "doctor",
    .usage = "[--dir DIR] [--quick] [--json]",
    .summary = "is all here that a run wants, and how quick is it",
    .options = options,
    .run = run,
    .ranks = true,
    .detail =
        "Lines are ok, slow or missing, with what to do.  Nothing that is missing stops a run which does not want\n"
        "it.  Under mpirun each machine is looked at once.\n",
};
