/* same.c - ranks that hold the same weights compare what each of them read. */
#include "param/param.h"

#include <string.h>
#include <unistd.h>

typedef struct {
    uint64_t sum;
    int32_t n, world;
} Said;

/* Dense rows, or experts; over tp those alone that it does not cut. */
static bool counts(const Params *p, int i, bool experts, bool whole) {
    Region r = param_region(p->at[i].desc, &p->shard.g);
    return whole ? r == REGION_WHOLE : experts == (r == REGION_EXPERT);
}

/* As on disk; the experts of a layer, which lie in one piece, with a * for their number. */
static void put_name(Buf *out, const Param *p) {
    int numbers = 0;
    for (const char *s = p->desc->name; *s; s++) {
        if (s[0] != '%') buf_putc(out, *s);
        else if (numbers++ == 0) buf_printf(out, "%d", p->layer), s++;
        else buf_putc(out, '*'), s++;
    }
}

static bool differs(const Params *p, int i, const char *dir, int mine, int first, Err *err) {
    Buf name = { 0 };
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    put_name(&name, &p->at[i]);
    err_set(err,
            "rank %d has read other bytes of %.150s than rank %d: the files of %.150s are not the same on both "
            "machines, or "
            "one is damaged (rank %d is on %s)",
            mine, name.data, first, dir, mine, host);
    buf_free(&name);
    return false;
}

/* Which it is is asked only where something is: one number of each rank, then one of each weight. */
static bool group_same(const Params *p, const Comm *c, bool experts, bool whole, const char *dir, Err *err) {
    if (c->size == 1 || comm_is_dry(c)) return true;
    Mem mem = { 0 };
    Said mine = { .world = c->world }, *all = MEM_ARRAY(&mem, Said, (size_t)c->size);
    uint64_t *own = MEM_ARRAY(&mem, uint64_t, (size_t)p->n);
    for (int i = 0; i < p->n; i++)
        if (counts(p, i, experts, whole)) {
            own[mine.n++] = p->at[i].sum;
            mine.sum = (mine.sum ^ p->at[i].sum) * 0x9E3779B97F4A7C15u;
        }
    comm_gather_host(c, all, &mine, sizeof mine);
    bool same = true, ok = true;
    for (int r = 0; r < c->size; r++) {
        CHECK(all[r].n == mine.n, "group %s: %d weights, rank %d has %d", c->name, mine.n, all[r].world, all[r].n);
        same = same && all[r].sum == all[0].sum;
    }
    if (!same) {
        uint64_t *each = MEM_ARRAY(&mem, uint64_t, (size_t)(c->size * mine.n));
        comm_gather_host(c, each, own, (size_t)mine.n * sizeof *own);
        for (int i = 0, k = 0; ok && i < p->n; i++) {
            if (!counts(p, i, experts, whole)) continue;
            if (own[k] != each[k]) ok = differs(p, i, dir, c->world, all[0].world, err);
            k++;
        }
    }
    mem_free(&mem);
    return ok;
}

void params_sum(Params *p, Dev *d) {
    enum { STAGE = 1 << 20 };
    Mem mem = { 0 };
    uint64_t *stage = mem_push(&mem, STAGE);
    for (int i = 0; i < p->n; i++) {
        Tensor t = p->at[i].t;
        int64_t n = t.rows * t.cols, each = (int64_t)dtype_size(t.dtype), most = STAGE / each;
        uint64_t h = 0;
        for (int64_t at = 0, k; at < n; at += k) {
            k = n - at < most ? n - at : most;
            size_t bytes = (size_t)(k * each);
            if (bytes % 8) stage[bytes / 8] = 0; /* the last word is not full */
            op_get(d, stage, tensor_cols(tensor_shape(t, 1, n), at, k));
            for (size_t j = 0; j < (bytes + 7) / 8; j++) h = (h ^ stage[j]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
        }
        p->at[i].sum = h;
    }
    mem_free(&mem);
}

bool params_same(const Params *p, const Groups *g, const char *dir, Err *err) {
    Err later;
    bool dense = group_same(p, &g->dense, false, false, dir, err);
    bool experts = group_same(p, &g->edp, true, false, dir, dense ? err : &later);
    bool whole = group_same(p, &g->tp, false, true, dir, dense && experts ? err : &later);
    return dense && experts && whole;
}
