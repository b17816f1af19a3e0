/* start.c - from the command line of train and sft to a configuration that is checked. */
#include "cmd/start.h"
#include "comm/world.h"
#include "cmd/options.h"
#include "cmd/plan_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void end_line(int64_t step, int64_t steps, const char *run_dir) {
    if (step < steps)
        printf("told to stop after step %" PRId64 " of %" PRId64 "; saved: the same command goes on\n", step, steps);
    else printf("all %" PRId64 " steps are done\n", step);
    printf("the run is in %s; look at it with hone show, take the model with hone export\n", run_dir);
}

const Opt start_options[] = {
    { "list-options", OPT_FLAG, offsetof(StartArgs, list_options), "",
      "print every option with its default, and verl's name for it" },
    { "check", OPT_FLAG, offsetof(StartArgs, check), "", "print the configuration, check it, and stop" },
    { "memory", OPT_INT, offsetof(StartArgs, memory), "N",
      "count the memory of N ranks, to the byte, a line for each kind of rank, hold it against plan.cluster, and stop; "
      "nothing is written",
      1, COMM_MOST },
    { "all-ranks", OPT_FLAG, offsetof(StartArgs, all_ranks), "", "with --memory: a line for each rank" },
    DEVICE_OPTIONS(StartArgs), /* trainer.device and trainer.compute, by the names that other verbs have for them */
    { 0 },
};

/* What can be known without reading weights or data: all that is wrong, a line each. */
static int wrong(const Config *c, int ranks, Buf *list) {
    Mem mem = { 0 };
    ModelDesc m;
    Err err;
    int n = config_check_list(c, list);
    bool said = n && strstr(list->data, "model."); /* its folder is of no use already */
    if (!said && model_desc_load(&m, c->from.path, &mem, &err) && model_desc_runs(&m, &err))
        n += config_check_model_list(c, &m, ranks > 1 ? ranks : 1, list);
    else if (!said) {
        buf_printf(list, "  %s\n", err.msg);
        n++;
    }
    mem_free(&mem);
    return n;
}

int start(const Verb *v, Config *c, ConfVerb verb, StartArgs *a, int argc, char **argv) {
    Err err;
    Buf text = { 0 };
    const char *words[256];
    char device[64], compute[64];
    int n, rc = opt_parse(v, a, words, 0, COUNT(words) - 2, &n, argc, argv);
    if (rc >= 0) return rc;
    if (a->list_options) {
        config_list_options(&text, verb);
        fputs(text.data, stdout);
        buf_free(&text);
        return 0;
    }
    if (!n) return cmd_usage(v, "CONFIG.yaml is missing");
    if (a->all_ranks && !a->memory) return cmd_usage(v, "--all-ranks goes with --memory N");
    if (a->device) snprintf(device, sizeof device, "trainer.device=%s", a->device), words[n++] = device;
    if (a->compute) snprintf(compute, sizeof compute, "trainer.compute=%s", a->compute), words[n++] = compute;
    bool file = !strchr(words[0], '=');
    if (!config_load(c, verb, file ? words[0] : NULL, words + file, n - file, &text, &err)) {
        rc = cmd_fail(v, &err);
        if (speaks() && text.n && memchr(text.data, '\n', text.n) != text.data + text.n - 1) fputs(text.data, stderr);
        buf_free(&text);
        return rc;
    }
    if (!config_fetch(c, &err)) {
        rc = cmd_fail(v, &err);
        buf_free(&text);
        return config_free(c), rc;
    }
    config_find_model(c);
    config_idle(c);
    config_dump(&text, c, DUMP_GIVEN);
    for (size_t i = 0; i < c->notes.n; i++) printf("note: %s\n", c->notes.at[i]);
    if (text.n) puts(text.data);
    buf_free(&text);
    fflush(stdout);
    buf_clear(&text);
    int bad = wrong(c, a->memory ? (int)a->memory : world_launch().size, &text);
    if (!bad && a->memory && file && !plan_args_cluster(&a->cluster, words[0], &c->mem, &err))
        bad = 1, buf_printf(&text, "  %s\n", err.msg);
    if (!bad && a->check)
        printf("checked: nothing is wrong that can be seen without reading weights and data%s\n",
               a->memory ? "" : " (--memory N: whether N ranks have room)");
    if (!bad && (a->memory || !a->check)) return buf_free(&text), -1;
    if (bad == 1) err_set(&err, "%.*s", (int)text.n - 3, text.data + 2);
    else if (bad) err_set(&err, "%d settings cannot be had", bad);
    config_free(c);
    rc = bad ? cmd_fail(v, &err) : 0;
    if (bad > 1 && speaks()) fputs(text.data, stderr);
    buf_free(&text);
    return rc;
}
