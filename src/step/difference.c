/* difference.c - E3 in every run: log-probs that the trainer computes are held against the sampler's before the step's
 * first update, and what broke is laid down in RUN/difference. */
#include "step/run.h"
#include "base/file.h"
#include "file/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- noted as it is given */
static int64_t first_different(const TrainSeq *s, const float *lp, int64_t *count) {
    int64_t first = -1;
    *count = 0;
    for (int64_t t = 0; t < s->n - s->prompt; t++) {
        if ((s->mask && !s->mask[t]) || !logprob_differs(s->old[t], lp[t])) continue;
        if (first < 0) first = t;
        ++*count;
    }
    return first;
}

static void remember(Difference *d, const Given *g, int which, int64_t token) {
    d->there = true, d->kept = g->kept, d->n = g->n, d->which = which, d->token = token;
    d->seq = MEM_ARRAY(&d->mem, TrainSeq, (size_t)g->n);
    d->lp = MEM_ARRAY(&d->mem, float *, (size_t)g->n);
    for (int i = 0; i < g->n; i++) {
        size_t n = (size_t)(g->at[i + 1] - g->at[i]);
        d->seq[i] = g->seqs[g->item[i]];
        d->lp[i] = MEM_ARRAY(&d->mem, float, n + 1);
        memcpy(d->lp[i], g->lp + g->at[i], n * sizeof(float));
    }
}

/* Weights that have moved are not the sampler's. */
void step_given(void *user, const Given *g) {
    Run *r = user;
    Difference *d = &r->differs;
    for (int i = 0; i < g->n && !r->now.moved; i++) {
        int64_t n, at = first_different(&g->seqs[g->item[i]], g->lp + g->at[i], &n);
        if (n && !d->there) remember(d, g, i, at);
        d->own += n;
    }
}

static void forget(Difference *d) {
    mem_free(&d->mem);
    d->there = false, d->own = 0;
}

/* ---- the folder */
static const Rollout *answer_of(const Run *r, const TrainSeq *s) {
    for (int i = 0; i < rollouts_n(&r->sampler.roll); i++)
        if (r->sampler.roll.at[i].tokens == s->tokens) return &r->sampler.roll.at[i];
    CHECK(false, "a sequence that is no answer of the step");
    return NULL;
}

static void put_grid(Buf *b, const char *name, const GridShape *g) {
    Buf text = { 0 };
    grid_text(g, &text);
    buf_printf(b, ",\"%s\":\"%s\"", name, text.data);
    buf_free(&text);
}

/* The micro-batch's pictures, each once. */
typedef struct {
    const Picture **at;
    int n;
} Shown;
static Shown shown_in(const Difference *d, Mem *mem) {
    Shown s = { 0 };
    int most = 0;
    for (int i = 0; i < d->n; i++) most += d->seq[i].spans.n;
    s.at = MEM_ARRAY(mem, const Picture *, (size_t)most);
    for (int i = 0; i < d->n; i++)
        for (int k = 0, j; k < d->seq[i].spans.n; k++) {
            for (j = 0; j < s.n && s.at[j] != d->seq[i].spans.at[k].picture;) j++;
            if (j == s.n) s.at[s.n++] = d->seq[i].spans.at[k].picture;
        }
    return s;
}

static void put_pictures(Buf *b, const Shown *s) {
    buf_puts(b, ",\"pictures\":[");
    for (int i = 0; i < s->n; i++) {
        const Picture *p = s->at[i];
        buf_printf(b, "%s{\"t\":%d,\"h\":%d,\"w\":%d,\"clip\":%s,\"seconds\":", i ? "," : "", p->grid.t, p->grid.h,
                   p->grid.w, p->clip ? "true" : "false");
        json_put_f64(b, p->seconds);
        buf_puts(b, "}");
    }
    buf_puts(b, "]");
}
static void put_places(Buf *b, const Shown *s, const TrainSeq *of) {
    buf_puts(b, ",\"pictures\":[");
    for (int k = 0, j; k < of->spans.n; k++) {
        for (j = 0; s->at[j] != of->spans.at[k].picture;) j++;
        buf_printf(b, "%s{\"picture\":%d,\"at\":%d}", k ? "," : "", j, of->spans.at[k].at);
    }
    buf_puts(b, "]");
}

static void put_json(Buf *b, const Run *r, const Shown *shown) {
    const Difference *d = &r->differs;
    const Config *c = &r->job.c;
    const Drawing *w = &r->sampler.opts.draw;
    DevAbout about = dev_about(&r->job.o.dev);
    buf_printf(b,
               "{\"step\":%" PRId64 ",\"rank\":%d,\"sequence\":%d,\"token\":%" PRId64 ",\"sampler\":", r->job.step + 1,
               r->job.ranks.world.all.rank, d->which, d->token);
    json_put_f32(b, d->seq[d->which].old[d->token]);
    buf_puts(b, ",\"trainer\":");
    json_put_f32(b, d->lp[d->which][d->token]);
    buf_printf(b, ",\"tokens_different\":%" PRId64 ",\"update\":%s,\"cpu\":%s,\"leaves\":%d,\"act\":\"%s\",\"device\":",
               d->tokens, d->kept ? "true" : "false", about.total ? "false" : "true", r->job.o.model.leaves,
               dtype_name(r->job.o.dev.act));
    json_put_str(b, about.name, strlen(about.name));
    buf_printf(b, ",\"weights\":\"%s\",\"recompute\":\"%s\",\"keep_logits\":%s,\"page\":%" PRId64 ",\"cut\":%s",
               dtype_name(params_dtype(&r->job.o.model.w)), recompute_names[c->train.recompute].name,
               c->train.keep_logits ? "true" : "false", c->rollout.page, config_cuts(c) ? "true" : "false");
    put_grid(b, "grid", &r->job.ranks.shard.g);
    put_grid(b, "rollout_grid", &r->sampler.shard.g);
    buf_printf(b, ",\"seed\":%" PRId64 ",\"draw_step\":%" PRId64 ",\"temperature\":", c->rollout.seed, r->job.step);
    json_put_f32(b, w->temperature);
    buf_puts(b, ",\"top_p\":"), json_put_f32(b, w->top_p);
    buf_puts(b, ",\"min_p\":"), json_put_f32(b, w->min_p);
    buf_printf(b, ",\"top_k\":%d", w->top_k);
    put_pictures(b, shown);
    buf_puts(b, ",\"sequences\":[");
    for (int i = 0; i < d->n; i++) {
        const Rollout *a = answer_of(r, &d->seq[i]);
        const Prompt *p = &r->sampler.roll.prompt[a->prompt];
        buf_printf(b, "%s\n{\"row\":%" PRId64 ",\"again\":%u,\"sample\":%d,\"prompt\":%d,\"tokens\":%d", i ? "," : "",
                   p->index, p->again, a->sample, a->n_prompt, a->n);
        put_places(b, shown, &d->seq[i]);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}\n");
}

static bool write_mask(StWriter *w, const TrainSeq *s, size_t n, Err *err) {
    static const uint8_t one = 1;
    for (size_t t = 0; t < n; t++) TRY(st_write(w, s->mask ? &s->mask[t] : &one, 1, err));
    return true;
}

/* Column k of the sequences, or of the pictures, one behind the other. */
enum { MASK, SAMPLER, TOKENS, TRAINER, PIXELS, TABLE, TENSORS };
static bool write_column(StWriter *w, const Difference *d, const Shown *shown, size_t row_bytes, int k, Err *err) {
    for (int i = 0; i < d->n && k < PIXELS; i++) {
        const TrainSeq *s = &d->seq[i];
        size_t n = (size_t)(s->n - s->prompt);
        TRY(k == MASK      ? write_mask(w, s, n, err)
            : k == TOKENS  ? st_write(w, s->tokens, (size_t)s->n * 4, err)
            : k == SAMPLER ? st_write(w, s->old, n * 4, err)
                           : st_write(w, d->lp[i], n * 4, err));
    }
    for (int i = 0; i < shown->n && k == PIXELS; i++)
        TRY(st_write(w, shown->at[i]->bytes, (size_t)grid_rows(shown->at[i]->grid) * row_bytes, err));
    return k != TABLE || st_write(w, shown->at[0]->table, 3 * sizeof shown->at[0]->table[0], err);
}

/* Tokens of all sequences side by side; of their answers both log-probs, and which of them count; pixels, and what they
 * stand for. */
static bool write_micro(const Difference *d, const Shown *shown, int64_t row_bytes, const char *path, Err *err) {
    int64_t tokens = 0, answers = 0, pixels = 0;
    for (int i = 0; i < d->n; i++) tokens += d->seq[i].n, answers += d->seq[i].n - d->seq[i].prompt;
    for (int i = 0; i < shown->n; i++) pixels += grid_rows(shown->at[i]->grid) * row_bytes;
    const StSpec spec[TENSORS] = { { "mask", DT_U8, 1, { answers } },   { "sampler", DT_F32, 1, { answers } },
                                   { "tokens", DT_I32, 1, { tokens } }, { "trainer", DT_F32, 1, { answers } },
                                   { "pixels", DT_U8, 1, { pixels } },  { "pixel_table", DT_F32, 2, { 3, 256 } } };
    int n = shown->n ? TENSORS : PIXELS;
    StWriter *w = st_write_open(path, spec, (size_t)n, INT64_MAX, err);
    if (!w) return false;
    bool ok = true;
    for (int k = 0; ok && k < n; k++) ok = write_column(w, d, shown, (size_t)row_bytes, k, err);
    if (ok) return st_write_close(w, err);
    st_write_abort(w);
    return false;
}

static bool write_files(Run *r, const char *dir, Mem *mem, Err *err) {
    Buf b = { 0 };
    Shown shown = shown_in(&r->differs, mem);
    put_json(&b, r, &shown);
    bool ok = file_write(mem_printf(mem, "%s/difference.json", dir), b.data, b.n, err);
    buf_clear(&b);
    config_dump(&b, &r->job.c, DUMP_ALL);
    ok = ok && file_write(mem_printf(mem, "%s/config.yaml", dir), b.data, b.n, err)
         && write_micro(&r->differs, &shown, r->job.o.desc.d.vis.pixels, mem_printf(mem, "%s/micro.safetensors", dir),
                        err);
    buf_free(&b);
    return ok;
}

/* 'who' has seen it; it becomes visible by one rename. */
static bool lay_down(Run *r, bool who, Err *err) {
    Job *j = &r->job;
    Mem mem = { 0 };
    const char *to = mem_printf(&mem, "%s/difference", j->c.trainer.run_dir), *dir = mem_printf(&mem, "%s.tmp", to);
    CheckpointConf conf = config_saves(&j->c, &j->carried);
    bool first = ranks_first(&j->ranks);
    if (first) tree_remove(dir);
    bool ok = job_agree(j, !first || dir_make(dir, err), err)
              && job_agree(j, !who || write_files(r, dir, &mem, err), err)
              && checkpoint_weights(&j->policy, &conf, dir, err);
    if (ok && first) {
        tree_remove(to);
        ok = !rename(dir, to) || err_set(err, "%s cannot be renamed: %s", dir, strerror(errno));
    }
    ok = job_agree(j, ok, err);
    mem_free(&mem);
    return ok;
}

/* ---- what all ranks make of it */
static void describe(const Run *r, Err *what) {
    const Difference *d = &r->differs;
    const Rollout *a = answer_of(r, &d->seq[d->which]);
    err_set(what,
            "step %" PRId64 ", rank %d: token %" PRId64 " of the answer (row %" PRId64 ", sample %d) had log-prob %.9g "
            "when it was drawn and has %.9g in the trainer, at the same weights (%" PRId64 " tokens differ)",
            r->job.step + 1, r->job.ranks.world.all.rank, d->token, r->sampler.roll.prompt[a->prompt].index, a->sample,
            (double)d->seq[d->which].old[d->token], (double)d->lp[d->which][d->token], d->tokens);
}

/* The first rank that has seen one, or -1. */
static int who_saw(Run *r) {
    Difference *d = &r->differs;
    const Groups *g = &r->job.policy.m->par;
    const Comm *all = &r->job.ranks.world.all;
    Mem mem = { 0 };
    int who = -1, mine = d->there, *saw = MEM_ARRAY(&mem, int, (size_t)all->size);
    comm_gather_host(all, saw, &mine, sizeof mine);
    for (int i = all->size - 1; i >= 0; i--)
        if (saw[i]) who = i;
    mem_free(&mem);
    if (who < 0) return who;
    d->tokens += (int64_t)comm_max(all, (double)comm_sum_i64(&g->dp, d->own)); /* ranks of tp and cp have the same */
    return who;
}

static bool stop(Run *r, const Err *what, const Err *folder, Err *err) {
    r->differs.stopped = true;
    give_up(r);
    Err ignore;           /* why the run ends is what is told */
    run_save(r, &ignore); /* what the steps before did is whole */
    return err_set(err, "%s: stopped, the step is not applied.  %s%s%s (trainer.on_difference=warn would go on)",
                   what->msg, folder ? "RUN/difference was not written: " : "`hone verify --blame ",
                   folder ? folder->msg : r->job.c.trainer.run_dir, folder ? "" : "` says which op it is");
}

bool step_same(Run *r, Err *err) {
    Difference *d = &r->differs;
    int who = who_saw(r), rank = r->job.ranks.world.all.rank;
    bool stops = r->job.c.trainer.on_difference == ON_DIFFERENCE_STOP;
    if (who < 0) return true;
    Err what = { 0 }, why = { 0 };
    if (rank == who) describe(r, &what);
    comm_broadcast(&r->job.ranks.world.all, who, &what, sizeof what);
    bool ok = true;
    if (stops || !d->warned) {
        checkpoint_copied(r->job.saves);
        ok = lay_down(r, rank == who, &why);
    }
    if (!stops && !d->warned) {
        Buf line = { 0 };
        buf_printf(&line,
                   "WARNING: %s: the invariant that answers are trained with the log-probs they were drawn with is "
                   "broken; %s%s%s",
                   what.msg, ok ? "`hone verify --blame " : "RUN/difference was not written: ",
                   ok ? r->job.c.trainer.run_dir : why.msg, ok ? "` says which op it is" : "");
        run_dir_log(r->job.dir, line.data);
        buf_free(&line);
    }
    d->warned = true;
    forget(d);
    return !stops || stop(r, &what, ok ? NULL : &why, err);
}
