/* blame.c - both ways to compute the same tokens, side by side. */
#include "step/blame.h"
#include "step/oplog.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const SampleOpts *opts;
    const int32_t *tokens;
    int prompt, samples, first; /* first: of its sequences */
    int64_t row;
    uint32_t again;
} Question;

/* One way's results, sequence by sequence: so many log-probs. */
typedef struct {
    float **lp;
    int *n;
} Way;

typedef struct {
    const BlameConf *c;
    Model *m;
    Engine *engine;
    Policy policy;
    Question *q;
    int n_q, next_q;
    int64_t *base, slots; /* [n]: slot of a sequence's first token */
    int *count, *other;   /* [n]: tokens drawn so far; the first that was another, or -1 */
    int32_t *drew;        /* [n]: it */
    Way now;              /* of the run under way */
    OpLog *log;           /* of it, or NULL */
    Mem mem;
} Both;

static int answer_of(const BlameSeq *s) { return s->n - s->prompt; }

/* ---- the sampler's way */
static int seq_of(const Both *b, const Question *q, int sample) {
    for (int i = 0; i < b->c->n; i++)
        if (b->c->seq[i].row == q->row && b->c->seq[i].again == q->again && b->c->seq[i].sample == sample) return i;
    return -1;
}

static bool next(void *user, Request *out) {
    Both *b = user;
    if (b->next_q == b->n_q) return false;
    const Question *q = &b->q[b->next_q++];
    *out = (Request){ .tokens = q->tokens,
                      .n = q->prompt,
                      .samples = q->samples,
                      .key = (uint64_t)q->row,
                      .opts = q->opts,
                      .user = (void *)q,
                      .again = q->again,
                      .spans = b->c->seq[q->first].spans };
    return true;
}

/* Answers of the question that are not asked about end at once. */
static bool token(void *user, const Request *r, int sample, int32_t id, float lp) {
    (void)lp;
    Both *b = user;
    int i = seq_of(b, r->user, sample);
    if (i < 0) return true;
    const BlameSeq *s = &b->c->seq[i];
    int at = b->count[i]++;
    if (id == s->tokens[s->prompt + at]) return at + 1 == answer_of(s);
    b->other[i] = at, b->drew[i] = id;
    return true;
}

static void answer(void *user, const Answer *a) {
    Both *b = user;
    int i = seq_of(b, a->request->user, a->sample);
    if (i < 0) return;
    int most = b->other[i] >= 0 ? b->other[i] : answer_of(&b->c->seq[i]);
    b->now.n[i] = a->n < most ? a->n : most;
    memcpy(b->now.lp[i], a->lp, (size_t)b->now.n[i] * sizeof(float));
}

/* The prompt's rows are computed once for all answers: they are the first one's that is asked about. */
static int64_t slot_of(const Both *b, const RowName *r) {
    const Question *q = r->of;
    int i = r->at < q->prompt - 1 ? q->first : seq_of(b, q, r->sample);
    if (i < 0 && r->at < q->prompt) i = q->first;
    return i < 0 || r->at >= b->c->seq[i].n ? -1 : b->base[i] + r->at;
}
static Both *both_of(Watch *w);
static void on_rows(Watch *w, const RowName *row, int64_t n, const RowName *draw, int64_t n_draws) {
    Both *b = both_of(w);
    Mem mem = { 0 };
    int64_t *rows = MEM_ARRAY(&mem, int64_t, (size_t)n), *draws = MEM_ARRAY(&mem, int64_t, (size_t)n_draws);
    for (int64_t i = 0; i < n; i++) rows[i] = slot_of(b, &row[i]);
    for (int64_t i = 0; i < n_draws; i++) {
        int s = seq_of(b, draw[i].of, draw[i].sample);
        draws[i] = s < 0 || draw[i].at >= b->c->seq[s].n ? -1 : b->base[s] + draw[i].at;
    }
    oplog_pass(b->log, rows, n, draws, n_draws);
    mem_free(&mem);
}

static bool by_sampler(Both *b, Err *err) {
    (void)err;
    Feed f = { .next = next, .token = token, .answer = answer, .user = b, .seed = b->c->seed, .step = b->c->step };
    b->next_q = 0;
    for (int i = 0; i < b->c->n; i++) b->count[i] = 0, b->other[i] = -1;
    engine_flush(b->engine);
    if (b->log) b->log->watch.rows = on_rows;
    engine_run(b->engine, &f);
    return true;
}

/* ---- the trainer's way */
/* What follows is backward. */
static void given(void *user, const Given *g) {
    Both *b = user;
    b->m->dev->watch = NULL;
    for (int i = 0; i < g->n; i++) {
        b->now.n[g->item[i]] = (int)(g->at[i + 1] - g->at[i]);
        memcpy(b->now.lp[g->item[i]], g->lp + g->at[i], (size_t)b->now.n[g->item[i]] * sizeof(float));
    }
}

static bool by_trainer(Both *b, Err *err) {
    const BlameConf *c = b->c;
    Mem mem = { 0 };
    TrainSeq *seq = MEM_ARRAY(&mem, TrainSeq, (size_t)c->n);
    int64_t *row = MEM_ARRAY(&mem, int64_t, (size_t)b->slots), *draw = MEM_ARRAY(&mem, int64_t, (size_t)b->slots),
            n = 0;
    for (int i = 0; i < c->n; i++) {
        const BlameSeq *s = &c->seq[i];
        float *adv = MEM_ARRAY(&mem, float, (size_t)s->n);
        for (int t = 0; t < s->n; t++) adv[t] = 1; /* with 0 there would be no backward, and another forward */
        seq[i] = (TrainSeq){ .tokens = s->tokens,
                             .n = s->n,
                             .prompt = s->prompt,
                             .draw = c->draw,
                             .old = s->sampler,
                             .adv = adv,
                             .spans = s->spans,
                             .mask = NULL };
        for (int t = 0; t < s->n; t++) row[b->base[i] + t] = b->base[i] + t;
        for (int t = s->prompt; t < s->n; t++) draw[n++] = b->base[i] + t - 1;
    }
    if (b->log) oplog_pass(b->log, row, b->slots, draw, n);
    LossConf loss = { .agg = AGG_TOKEN_MEAN, .clip_low = 0.2, .clip_high = 0.2, .clip_c = 3 };
    UpdateStats st;
    Exact sum = { 0 };
    bool ok = c->update ? policy_grads(&b->policy, seq, c->n, &loss, &st, err)
                        : policy_compare(&b->policy, seq, c->n, &sum, err);
    mem_free(&mem);
    return ok;
}

/* ---- both */
static EngineConf engine_of(const ModelDesc *m, const BlameConf *c) {
    int64_t answers = 0, longest = 1;
    for (int i = 0; i < c->n; i++) { /* at most: a question for each sequence */
        answers += c->seq[i].sample + 1;
        if (c->seq[i].n > longest) longest = c->seq[i].n;
    }
    EngineConf e = engine_conf(answers < 256 ? answers : 256, longest + 1, c->rows, c->page);
    for (int i = 0; i < c->n; i++) {
        int64_t feats, patches;
        engine_images(m, c->seq[i].spans, &feats, &patches);
        e.feats += (int)feats;
        if (patches > e.patches) e.patches = patches;
    }
    return e;
}

static bool cuts(const Drawing *d) { return d->top_p < 1 || d->min_p > 0 || d->top_k > 0; }

static PolicyConf policy_of(const ModelDesc *desc, const BlameConf *c, const Model *m, Both *b) {
    int64_t tokens = 0;
    PicturesShape shape = { 0 };
    for (int i = 0; i < c->n; i++) {
        tokens += c->seq[i].n;
        for (int k = 0; k < c->seq[i].spans.n; k++) pictures_add(&shape, c->seq[i].spans.at[k].picture, &desc->d);
    }
    return (PolicyConf){ .micro_tokens = tokens,
                         .max_seqs = c->n,
                         .trained.recompute = c->recompute,
                         .trained.keep_logits = c->keep_logits,
                         .states = { .weights = m ? params_dtype(&m->w) : DT_F32 },
                         .truncated = cuts(&c->draw),
                         .trains = c->update,
                         .no_steps = true,
                         .pictures = shape,
                         .given = given,
                         .user = b };
}

size_t blame_tmp_bytes(const ModelDesc *m, const BlameConf *c, DevKind like) {
    EngineConf e = engine_of(m, c);
    PolicyConf p = policy_of(m, c, NULL, NULL);
    size_t engine = engine_tmp_bytes(m, &e, like), policy = policy_sizes(m, NULL, &p, like).tmp;
    return engine > policy ? engine : policy;
}

typedef bool WayFn(Both *b, Err *err);

typedef struct {
    OpLog log; /* first: a watch is found by its address */
    Both *both;
} Logged;
static Both *both_of(Watch *w) { return ((Logged *)(void *)w)->both; }

/* log NULL: as it always runs */
static bool run_way(Both *b, WayFn *way, Way *to, Logged *log, Err *err) {
    const BlameConf *c = b->c;
    to->lp = MEM_ARRAY(&b->mem, float *, (size_t)c->n), to->n = MEM_ARRAY(&b->mem, int, (size_t)c->n);
    for (int i = 0; i < c->n; i++) to->lp[i] = MEM_ARRAY(&b->mem, float, (size_t)c->seq[i].n);
    b->now = *to, b->log = log ? &log->log : NULL;
    b->m->dev->watch = log ? &log->log.watch : NULL;
    bool ok = way(b, err);
    b->m->dev->watch = NULL;
    return ok;
}

static void logged(Both *b, Logged *l) {
    const Dims *d = &b->m->desc->d;
    oplog_open(&l->log, b->slots, d->experts ? d->topk : 1, &b->mem);
    l->both = b;
}

/* The first token whose log-probs are not the same, among those that both have. */
static bool first_different(const BlameConf *c, float *const *x, const int *nx, float *const *y, const int *ny,
                            int *seq, int *at) {
    for (*seq = 0; *seq < c->n; ++*seq) {
        int n = nx[*seq] < ny[*seq] ? nx[*seq] : ny[*seq];
        for (*at = 0; *at < n; ++*at) {
            const uint8_t *mask = c->seq[*seq].mask;
            if ((!mask || mask[*at]) && logprob_differs(x[*seq][*at], y[*seq][*at])) return true;
        }
    }
    return false;
}

/* ---- words */
static void name_place(const Both *b, int64_t slot, int *seq, int *at) {
    for (*seq = b->c->n - 1; *seq > 0 && b->base[*seq] > slot;) --*seq;
    *at = (int)(slot - b->base[*seq]);
}

static const char *means(const char *op) {
    static const struct {
        const char *op, *means;
    } list[] = {
        { "attend", " (drawing: attend_kv over pages that kv_put and kv_copy wrote; training: attend)" },
        { "logprob", " (drawing: sample)" },
        { "queries", " (rope, headwise, copy_heads: of their first head nothing differs)" },
        { "values", " (headwise: of its first head nothing differs)" },
        { "keys", " (rope: of its first head nothing differs)" },
    };
    for (size_t i = 0; i < COUNT(list); i++)
        if (!strcmp(op, list[i].op)) return list[i].means;
    return "";
}

static void tell_values(char *to, size_t room, const OpLog *s, const OpLog *t) {
    *to = 0;
    for (int64_t c = 0; s->value && t->value && c < s->n_values && c < t->n_values; c++)
        if (logprob_differs(s->value[c], t->value[c])) {
            snprintf(to, room, ", in column %lld %.9g when drawn and %.9g when trained", (long long)c,
                     (double)s->value[c], (double)t->value[c]);
            return;
        }
}

/* A norm that a block makes for the next one, while it has it at hand, is the next one's. */
static void tell_op(Blame *out, const Both *b, const OpLog *s, const OpLog *t, const OpPlace *p) {
    const OpRows *e = &t->at[p->op];
    const char *part = e->part;
    int seq, at, layer = e->layer;
    char values[160], where[64] = "";
    if (!strcmp(e->op, "rmsnorm") && p->op + 1 < t->n && t->at[p->op + 1].layer == layer + 1 && layer >= 0)
        layer++, part = "norm before attention";
    if (!strcmp(e->op, "embed") && p->op > 0 && !strcmp(t->at[p->op - 1].op, "embed"))
        part = "vision tower, whose rows are laid among the text's";
    name_place(b, p->slot, &seq, &at);
    tell_values(values, sizeof values, s, t);
    if (layer >= 0) snprintf(where, sizeof where, "layer %d, ", layer);
    const BlameSeq *q = &b->c->seq[seq];
    out->kind = BLAME_OP;
    bool given = !strcmp(e->op, "queries") || !strcmp(e->op, "keys") || !strcmp(e->op, "values");
    snprintf(out->text, sizeof out->text,
             "%s%s: %s%s%s is the first op whose output differs: row %d of sequence %d (data row %lld, sample %d; its "
             "answer begins at %d)%s",
             where, part, given ? "a later head of what makes the " : "op_", e->op, means(e->op), at, seq,
             (long long)q->row, q->sample, q->prompt, values);
}

/* Which of the run's two values is what is computed now. */
static void tell_agreed(Blame *out, const Both *b, const Way *s, const Way *t) {
    const BlameConf *c = b->c;
    Mem mem = { 0 };
    float **ran[2] = { MEM_ARRAY(&mem, float *, (size_t)c->n), MEM_ARRAY(&mem, float *, (size_t)c->n) };
    int seq, at, other = -1;
    for (int i = 0; i < c->n; i++) {
        ran[0][i] = (float *)c->seq[i].sampler, ran[1][i] = (float *)c->seq[i].trainer;
        if (b->other[i] >= 0 && other < 0) other = i;
    }
    bool sampled = !first_different(c, ran[0], t->n, t->lp, t->n, &seq, &at),
         trained = !first_different(c, ran[1], t->n, t->lp, t->n, &seq, &at);
    const char *which = sampled && !trained   ? "what the run's trainer had was wrong"
                        : trained && !sampled ? "what the run's sampler had was wrong"
                                              : "what the run had was wrong on both sides";
    int n = snprintf(out->text, sizeof out->text,
                     "run again both ways agree, bit for bit: %s, and its cause does not come again with these weights "
                     "and tokens on one rank: memory or a processor that fails, ranks that ran different things, pages "
                     "of other answers, or an exchange between ranks",
                     which);
    (void)s;
    if (other >= 0 && n < (int)sizeof out->text)
        snprintf(
            out->text + n, sizeof out->text - (size_t)n,
            ".  Of sequence %d token %d is drawn as %d now, the run had drawn %d: only what comes before was compared",
            other, b->other[other], b->drew[other], c->seq[other].tokens[c->seq[other].prompt + b->other[other]]);
    out->kind = BLAME_NONE;
    mem_free(&mem);
}

/* The same once more, to have the row itself. */
static bool look_closer(Both *b, const OpPlace *p, Logged *s, Logged *t, Err *err) {
    Way ignore;
    logged(b, s), logged(b, t);
    s->log.wants = t->log.wants = true, s->log.want = t->log.want = *p;
    bool ok = run_way(b, by_sampler, &ignore, s, err) && run_way(b, by_trainer, &ignore, t, err);
    oplog_close(&s->log), oplog_close(&t->log);
    return ok;
}

static bool find(Blame *out, Both *b, Err *err) {
    Way s, t, ws, wt;
    Logged ls, lt;
    OpPlace at;
    int seq, token_at, k;
    TRY(run_way(b, by_sampler, &s, NULL, err) && run_way(b, by_trainer, &t, NULL, err));
    bool differ = first_different(b->c, s.lp, s.n, t.lp, t.n, &seq, &token_at);
    logged(b, &ls), logged(b, &lt);
    TRY(run_way(b, by_sampler, &ws, &ls, err) && run_way(b, by_trainer, &wt, &lt, err));
    oplog_close(&ls.log), oplog_close(&lt.log);
    for (int i = 0; i < b->c->n; i++) /* the log-prob of another token */
        if (b->other[i] >= 0) oplog_forget(&ls.log, "logprob", 0, b->base[i] + b->c->seq[i].prompt - 1 + b->other[i]);
    if (!oplog_in_step(&ls.log, &lt.log, &k))
        return err_set(err, "the two ways do not call the same ops: call %d is %s when drawn and %s when trained", k,
                       k < ls.log.n ? ls.log.at[k].op : "none", k < lt.log.n ? lt.log.at[k].op : "none");
    if (oplog_differ(&ls.log, &lt.log, &at)) {
        TRY(look_closer(b, &at, &ls, &lt, err));
        return tell_op(out, b, &ls.log, &lt.log, &at), true;
    }
    if (!differ) return tell_agreed(out, b, &s, &t), true;
    out->kind = BLAME_TOGETHER;
    snprintf(
        out->text, sizeof out->text,
        "token %d of sequence %d has log-prob %.9g when drawn and %.9g when trained, but op by op both ways agree: "
        "the cause is in calls that are done together (op_fused_list.h, chains, captured steps)",
        token_at, seq, (double)s.lp[seq][token_at], (double)t.lp[seq][token_at]);
    return true;
}

static void ask(Both *b, SampleOpts *opts) {
    const BlameConf *c = b->c;
    b->q = MEM_ARRAY(&b->mem, Question, (size_t)c->n);
    b->base = MEM_ARRAY(&b->mem, int64_t, (size_t)c->n);
    b->count = MEM_ARRAY(&b->mem, int, (size_t)c->n), b->other = MEM_ARRAY(&b->mem, int, (size_t)c->n);
    b->drew = MEM_ARRAY(&b->mem, int32_t, (size_t)c->n);
    *opts = (SampleOpts){ .draw = c->draw, .ignore_eos = true, .max_tokens = 1 };
    for (int i = 0; i < c->n; i++) {
        const BlameSeq *s = &c->seq[i];
        b->base[i] = b->slots, b->slots += s->n;
        if (answer_of(s) > opts->max_tokens) opts->max_tokens = answer_of(s);
        int k = 0;
        while (k < b->n_q && (b->q[k].row != s->row || b->q[k].again != s->again)) k++;
        if (k == b->n_q) b->q[b->n_q++] = (Question){ opts, s->tokens, s->prompt, 0, i, s->row, s->again };
        if (s->sample >= b->q[k].samples) b->q[k].samples = s->sample + 1;
    }
}

bool blame_find(Blame *out, Model *m, const BlameConf *c, Err *err) {
    Both b = { .c = c, .m = m };
    SampleOpts opts;
    EngineConf e = engine_of(m->desc, c);
    PolicyConf p = policy_of(m->desc, c, m, &b);
    ask(&b, &opts);
    b.engine = engine_open(m, &e, &b.mem);
    policy_open(&b.policy, m, &p, &b.mem);
    bool ok = find(out, &b, err);
    policy_close(&b.policy);
    engine_close(b.engine);
    mem_free(&b.mem);
    return ok;
}
