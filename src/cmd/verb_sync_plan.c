/* verb_sync_plan.c - `hone sync-plan`: what moving the weights from the trainer's cut to the engine's would take. */
#include "cmd/cmd.h"
#include "plan/syncplan.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *from, *to, *cluster, *from_split, *to_split, *dtype;
    int64_t buffer;
    bool json;
} Args;

#define A(field) offsetof(Args, field)
static const Opt OPTIONS[] = {
    { "from", OPT_STR, A(from), "GRID", "the trainer's cut: tp8,pp12,ep8" },
    { "to", OPT_STR, A(to), "GRID", "the engine's cut: tp32, or tp8,ep32; repeated over the cluster" },
    { "from-split", OPT_STR, A(from_split), "LIST",
      "layers of each of the trainer's stages: 6,5x11 (as even as can be)" },
    { "to-split", OPT_STR, A(to_split), "LIST", "likewise of the engine's" },
    { "cluster", OPT_STR, A(cluster), "SPEC",
      "H20-96x96, or a file; default: H100 and as many as the larger grid has" },
    { "dtype", OPT_STR, A(dtype), "bf16|f32", "of the weights (bf16)" },
    { "buffer", OPT_INT, A(buffer), "MIB", "the most that a transfer may take beside the weights (256)", 1, 1e6 },
    { "json", OPT_FLAG, A(json), "", "as JSON" },
    { 0 },
};

static bool read_cluster(Cluster *c, const Args *a, Mem *mem, Err *err) {
    if (a->cluster) return cluster_parse(c, a->cluster, mem, err);
    int from = syncgrid_ranks(a->from), to = syncgrid_ranks(a->to);
    if (!from || !to) return err_set(err, "grid '%s' is not understood: write tp8,pp12,ep8", from ? a->to : a->from);
    *c = (Cluster){ *machine_find("H100"), from > to ? from : to };
    return true;
}

static void print_text(const SyncPlan *p, const Args *a, const Cluster *c) {
    const double GB = 1e9;
    printf("%s -> %s on %d x %s, %.1f GB of weights in %.0f tensors\n", a->from, a->to, c->gpus, c->gpu.name,
           p->weights / GB, p->tensors);
    printf("  a rank holds     %10.2f GB at most, and needs %.2f GB\n", p->held / GB, p->needed / GB);
    printf("  a rank receives  %10.2f GB at most, %.2f GB of it from other nodes; it sends %.2f GB\n", p->received / GB,
           p->received_far / GB, p->sent / GB);
    printf("  all ranks move   %10.2f GB, %.2f GB of it between nodes; %.2f GB are in place already\n", p->moved / GB,
           p->moved_far / GB, p->kept / GB);
    printf("  peak buffer      %10.2f MB, tensor by tensor\n", p->buffer / 1e6);
    printf("  takes            %10.2f s on the wire by the bytes of the fullest rank,\n", p->seconds);
    printf(
        "                   %10.2f s by the busiest port of each turn, in the order in which they go: %.1f GB between "
        "nodes\n",
        p->ordered, p->ordered_far / GB);
    printf("if every rank rebuilt every tensor: %.1f GB through each GPU, %.2f s on the wire", p->weights / GB,
           p->seconds_whole);
    if (p->received > 0) printf(": %.0f times as much\n", p->weights / p->received);
    else printf("; here nothing has to move\n");
}

static void print_json(const SyncPlan *p) {
    const struct {
        const char *name;
        double x;
    } all[] = { { "ranks", p->ranks },
                { "weights", p->weights },
                { "tensors", p->tensors },
                { "held", p->held },
                { "needed", p->needed },
                { "moved", p->moved },
                { "moved_between_nodes", p->moved_far },
                { "in_place", p->kept },
                { "received_most", p->received },
                { "received_most_between_nodes", p->received_far },
                { "sent_most", p->sent },
                { "peak_buffer", p->buffer },
                { "seconds", p->seconds },
                { "seconds_in_order", p->ordered },
                { "busiest_port_between_nodes", p->ordered_far },
                { "seconds_every_rank_rebuilds", p->seconds_whole } };
    Buf b = { 0 };
    for (size_t i = 0; i < COUNT(all); i++) {
        buf_puts(&b, i ? "," : "{");
        json_put_str(&b, all[i].name, strlen(all[i].name));
        buf_putc(&b, ':');
        json_put_f64(&b, all[i].x);
    }
    printf("%s}\n", b.data);
    buf_free(&b);
}

static bool plan(SyncPlan *p, Cluster *c, const Args *a, const char *path, Mem *mem, Err *err) {
    ModelDesc *m = MEM_NEW(mem, ModelDesc);
    ModelSum *s = MEM_NEW(mem, ModelSum);
    GridShape *from = MEM_NEW(mem, GridShape), *to = MEM_NEW(mem, GridShape);
    if (!a->from || !a->to) return err_set(err, "--from and --to are needed, e.g. --from tp8,pp12,ep8 --to tp32");
    if (strcmp(a->dtype, "bf16") && strcmp(a->dtype, "f32"))
        return err_set(err, "--dtype is bf16 or f32, not %s", a->dtype);
    TRY(model_desc_load(m, path, mem, err));
    model_sum(s, m);
    TRY(read_cluster(c, a, mem, err));
    TRY(syncgrid_parse(from, a->from, a->from_split, c->gpus, m, err));
    TRY(syncgrid_parse(to, a->to, a->to_split, c->gpus, m, err));
    sync_plan(p, s, from, to, c, strcmp(a->dtype, "f32") ? 2 : 4, (double)a->buffer * (1 << 20));
    return true;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .dtype = "bf16", .buffer = SYNC_BUFFER >> 20 };
    const char *path;
    int n, rc = opt_parse(v, &a, &path, 1, 1, &n, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Err err = { 0 };
    SyncPlan p;
    Cluster c;
    bool ok = plan(&p, &c, &a, path, &mem, &err);
    if (ok && a.json) print_json(&p);
    else if (ok) print_text(&p, &a, &c);
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_sync_plan = { .name = "sync-plan",
                              .usage = "MODEL|config.json --from GRID --to GRID",
                              .options = OPTIONS,
                              .run = run,
                              .summary = "what moving the weights between two layouts would take" };
