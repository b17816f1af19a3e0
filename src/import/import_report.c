/* import_report.c - what became of verl's settings: a table to read, and the configuration with where each line
 * comes from. */
#include "import/import_verl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const TITLE[FATES] = { [FATE_TAKEN] = "taken over",
                                          [FATE_CHANGED] = "taken over with a change",
                                          [FATE_NOT_NEEDED] = "not needed here",
                                          [FATE_NOT_SUPPORTED] = "not supported" };

static int count(const Import *im, Fate fate) {
    int n = 0;
    for (size_t i = 0; i < im->rows.n; i++) n += im->rows.at[i].fate == fate;
    return n;
}

/* line, key, value, what became of it */
static void put_row(Buf *out, const ImportRow *r) {
    char line[16] = "-";
    const char *name = r->fate <= FATE_CHANGED && strcmp(r->name, r->set->key) ? r->name : "",
               *why = r->why ? r->why : "";
    const char *text = r->set->text ? r->set->text : ""; /* what no key of the script said has none */
    if (r->set->line) snprintf(line, sizeof line, "%d", r->set->line);
    buf_printf(out, "%6s  %-58s %-16.60s%s%s%s%s%s", line, r->set->key, text, strlen(text) > 60 ? "..." : "",
               *name || *why ? "  " : "", *name ? "-> " : "", name, *name && *why ? ": " : "");
    buf_printf(out, "%s\n", why);
}

/* Sizes both ways: what verl counts and what hone counts. */
static void put_numbers(Buf *out, const Import *im) {
    const Config *c = &im->c;
    int64_t gpus = c->grid.nodes * c->grid.gpus_per_node;
    if (im->sft) return;
    int64_t batch = c->data.train_batch_size,
            mini = c->train.mini_batch_size == CONF_UNSET ? batch : c->train.mini_batch_size;
    buf_printf(out,
               "\na step: %" PRId64 " questions x %" PRId64 " answers = %" PRId64 " sequences, in %" PRId64
               " updates of %" PRId64 " questions\n",
               batch, c->rollout.n, batch * c->rollout.n, mini ? (batch + mini - 1) / mini : 0, mini);
    if (gpus > 1)
        buf_printf(out,
                   "%" PRId64 " GPUs = tp %" PRId64 " x pp %" PRId64 " x cp %" PRId64 " x dp %" PRId64
                   "; an engine has %" PRId64 "\n",
                   gpus, c->grid.tp, c->grid.pp, c->grid.cp, c->grid.dp,
                   c->rollout.grid.tp * c->rollout.grid.dp * c->rollout.grid.pp);
}

void import_table(Buf *out, const Import *im) {
    for (int f = 0; f < FATES; f++) {
        int n = count(im, (Fate)f);
        if (n) buf_printf(out, "%s%s (%d):\n", out->n ? "\n" : "", TITLE[f], n);
        for (size_t i = 0; i < im->rows.n; i++)
            if ((int)im->rows.at[i].fate == f) put_row(out, &im->rows.at[i]);
    }
    put_numbers(out, im);
}

void import_yaml(Buf *out, const Import *im) {
    buf_printf(out, "# made by `hone import-verl %s`%s%s\n", im->in.script, im->in.module ? " from a launch of " : "",
               im->in.module ? im->in.module : "");
    buf_printf(out, "# check: hone %s FILE --check%s\n", im->sft ? "sft" : "train",
               im->sft ? "" : "     plan: hone plan MODEL --recipe FILE --cluster TYPExN");
    for (size_t i = 0; i < im->notes.n; i++) buf_printf(out, "# note: %s\n", im->notes.at[i]);
    for (size_t i = 0; i < im->rows.n; i++)
        if (im->rows.at[i].fate == FATE_NOT_SUPPORTED)
            buf_printf(out, "# not supported: %s%s%s: %s\n", im->rows.at[i].set->key,
                       im->rows.at[i].set->text ? "=" : "", im->rows.at[i].set->text ? im->rows.at[i].set->text : "",
                       im->rows.at[i].why);
    config_dump(out, &im->c, DUMP_GIVEN);
}
