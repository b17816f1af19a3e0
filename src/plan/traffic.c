/* traffic.c - bytes that ranks of this program send each other, phase by phase: the sums of what layer/, par/, model/
 * and train/ ask for, in closed form.
 *
 * A gathering over n ranks sends every row n - 1 times, and so does a sum, whose parts are float32.  Rows of experts go
 * one by one, as many as were chosen, to each rank that has the expert (etp), and come back; of those a rank keeps its
 * own.  Routing is taken as even. */
#include "cut/mixer.h"
#include "par/par.h"
#include "plan/plan.h"
#include "plan/syncplan.h"

#include <math.h>

static double hidden(const Plan *p) { return (double)p->sum->model->d.hidden; }
static double act(const Plan *p) { return p->cluster.gpu.is_cpu ? 4 : 2; } /* bytes of an activation */
static const double SUM = 4, COUNT_BYTES = 4;

/* A feed-forward that tp cuts: its input is gathered, its output summed; backward gathers the gradient, too. */
static double dense_forward(const Plan *p) { return (act(p) + SUM) * hidden(p); }
static double dense_backward(const Plan *p) { return (2 * act(p) + SUM) * hidden(p); }

/* Chosen rows of a token, once to their experts or back. */
static double rows_sent(const Plan *p, int ep, int etp, double element) {
    return (double)p->sum->model->d.topk * (etp - 1.0 / ep) * hidden(p) * element;
}
static double back_element(const Plan *p, int etp) { return etp > 1 ? SUM : act(p); }

typedef struct {
    int tp, cp, ep, etp;
} Ways;
static Ways trainer(const Plan *p) {
    const GridShape *g = &p->layout.g;
    return (Ways){ g->tp, g->cp, g->ep, g->etp };
}
/* Experts for which no ep is said are cut by tp, as everything else. */
static Ways engine(const Plan *p) {
    int tp = p->layout.gen_tp, ep = p->layout.gen_ep;
    return (Ways){ tp, 1, ep, p->sum->model->d.experts && ep == 1 ? tp : 1 };
}

static MixerSent mixer_sent(const Plan *p, int layer, int tp) {
    MixerSent m;
    mixer_cost_of(&p->sum->model->d, layer)->sent(&p->sum->model->d, tp, !p->cluster.gpu.is_cpu, &m);
    return m;
}
static SentBytes attention_forward(const Plan *p, int layer, Ways c) {
    MixerSent m = mixer_sent(p, layer, c.tp);
    return (SentBytes){ .tp = (c.tp - 1) * (act(p) * m.tp + SUM * hidden(p)), .cp = (c.cp - 1) * c.tp * act(p) * m.cp };
}
static SentBytes layer_forward(const Plan *p, int layer, Ways c) {
    const Dims *d = &p->sum->model->d;
    SentBytes s = attention_forward(p, layer, c);
    bool moe = sum_is_moe(p->sum, layer);
    if (!moe || d->shared) s.tp += (c.tp - 1) * dense_forward(p);
    if (moe) s.ep = rows_sent(p, c.ep, c.etp, act(p)) + rows_sent(p, c.ep, c.etp, back_element(p, c.etp));
    if (!moe || c.ep * c.etp == 1) s.ep = 0;
    return s;
}

SentBytes sent_forward(const Plan *p, int layer) { return layer_forward(p, layer, trainer(p)); }
/* Where ranks of etp share their experts, rows come in more rounds than the one whose rows are kept: what share of them
 * is sent once more in the backward (par.h). */
static double in_more_rounds(const Plan *p) {
    const GridShape *g = &p->layout.g;
    double micro = p->tokens / p->mini_batches * work_epochs(&p->work) / g->dp / g->cp / p->micro_batches;
    double own = micro / g->tp * (double)p->sum->model->d.topk;
    return fmax(0, 1 - (own + own / 4 + 16) / (g->etp * own));
}
/* A block that is computed again sends all of it again but what attention was: that is remembered. */
SentBytes sent_backward(const Plan *p, int layer) {
    const Dims *d = &p->sum->model->d;
    Ways c = trainer(p);
    MixerSent m = mixer_sent(p, layer, c.tp);
    bool moe = sum_is_moe(p->sum, layer);
    Recompute way = recompute_of(p->layout.drop);
    SentBytes s = { .tp = (c.tp - 1) * (act(p) * (hidden(p) + m.tp_back) + SUM * m.tp_back_sums),
                    .cp = (c.cp - 1) * c.tp * act(p) * m.cp_back };
    if (!moe || d->shared) s.tp += (c.tp - 1) * dense_backward(p);
    if (moe && c.ep * c.etp > 1) {
        double out = rows_sent(p, c.ep, c.etp, act(p)), back = rows_sent(p, c.ep, c.etp, back_element(p, c.etp));
        s.ep = out + back + (way == RECOMPUTE_SELECTIVE ? 1 : in_more_rounds(p)) * out;
    }
    if (way == RECOMPUTE_FULL) {
        SentBytes again = sent_forward(p, layer);
        s.tp += again.tp, s.ep += again.ep;
    }
    return s;
}

/* Counts of rows, a reading a layer: everybody's to everybody. */
static double counts_sent(const Plan *p, int ranks) {
    return ranks > 1 ? (double)ranks * (ranks - 1) * COUNT_BYTES * (double)(p->sum->model->d.experts + 1) : 0;
}
SentBytes sent_decode(const Plan *p, int layer, double rows) {
    Ways c = engine(p);
    int ranks = c.ep * c.etp, replicas = layout_engine(&p->layout) / c.tp;
    SentBytes one = layer_forward(p, layer, c), s = { .tp = one.tp * rows * replicas, .ep = one.ep * rows * replicas };
    if (!sum_is_moe(p->sum, layer) || ranks == 1) return s;
    double groups = (double)layout_engine(&p->layout) / ranks;
    if (!ep_is_even(ranks)) return s.ep += groups * counts_sent(p, ranks), s;
    /* par.h: everybody's tokens to everybody, and a row for each expert of each token back from everybody */
    double each = ceil(rows / c.tp), k = (double)p->sum->model->d.topk;
    s.ep = groups * ranks * (ranks - 1) * each * hidden(p) * (act(p) + k * back_element(p, c.etp));
    return s;
}

/* ---- the ends of a model */
static double most_vocab(const Plan *p, int tp) { /* ids of the rank that has most */
    GridShape g = { .tp = tp, .pp = 1, .ep = 1, .etp = 1, .cp = 1, .dp = 1, .vpp = 1 };
    int64_t most = 0;
    for (GridAt at = { 0 }; at.tp < tp; at.tp++) {
        int64_t n = grid_local(p->sum->model, &g, at).vocab;
        most = n > most ? n : most;
    }
    return (double)most;
}
static double embedding_sent(const Plan *p, int tp) { return (tp - 1) * SUM * hidden(p); }
static double outputs_sent(const Plan *p, int tp) { return (tp - 1) * act(p) * hidden(p); }
/* Leaves of a log-prob: three sums of each and the own logit, of the rank that has most, from every rank. */
static double logprob_sent(const Plan *p, int tp) {
    return tp * (tp - 1.0) * SUM * (3 * ceil(most_vocab(p, tp) / VOCAB_UNIT) + 1);
}
/* Logits of a row come together on one rank; the token, its log-prob and entropy go to all. */
static double drawing_sent(const Plan *p, int tp) { return (tp - 1) * (SUM * most_vocab(p, tp) + 3 * 4); }

/* ---- phases */
static double over_layers(const Plan *p, SentBytes (*of)(const Plan *, int)) {
    double sum = 0;
    for (int l = 0; l < p->sum->layers; l++) {
        SentBytes s = of(p, l);
        sum += s.tp + s.cp + s.ep;
    }
    return sum;
}
static double moe_layers(const Plan *p) {
    double n = 0;
    for (int l = 0; l < p->sum->layers; l++) n += sum_is_moe(p->sum, l);
    return n;
}
static double answer_tokens(const Plan *p) { return p->work.prompts * p->work.answers * p->work.mean; }
static double trained_tokens(const Plan *p) {
    return p->work.prompts * p->work.answers * (p->work.prompt_mean + p->work.mean);
}
/* Counts of one pass over all layers, all micro-batches of a step. */
static double all_counts(const Plan *p) {
    const GridShape *g = &p->layout.g;
    int ranks = g->ep * g->etp;
    return p->micro_batches * p->mini_batches * grid_stage_ranks(g) / ranks * moe_layers(p) * counts_sent(p, ranks);
}
static double hops(const Plan *p) { return (p->layout.g.pp * p->layout.g.vpp - 1) * act(p) * hidden(p); }

/* An output is an answer's token: what share of all tokens. */
SentBytes sent_ends(const Plan *p, bool first, bool last, bool back) {
    int tp = p->layout.g.tp, cp = p->layout.g.cp;
    double outputs = answer_tokens(p) / trained_tokens(p);
    SentBytes s = { 0 };
    if (first) s.tp += back ? (tp - 1) * act(p) * hidden(p) : embedding_sent(p, tp);
    if (!last) return s;
    if (back) s.tp += outputs * (tp - 1) * (SUM + act(p)) * hidden(p);
    else s.tp += outputs_sent(p, tp) + outputs * logprob_sent(p, tp), s.cp += outputs * 2 * (cp - 1) * tp * SUM;
    return s;
}
static double of_all(SentBytes s) { return s.tp + s.cp + s.ep; }
static double score_sent(const Plan *p) {
    double token = over_layers(p, sent_forward) + of_all(sent_ends(p, true, true, false)) + hops(p);
    return trained_tokens(p) * token + all_counts(p);
}
static double back_sent(const Plan *p) {
    double token = over_layers(p, sent_backward) + of_all(sent_ends(p, true, true, true)) + hops(p);
    return trained_tokens(p) * token + (p->layout.drop & DROP_ALL ? 2 : 1) * all_counts(p);
}
/* Gradients to the ranks that step them, weights from those: every element of every other rank. */
static double optimizer_sent(const Plan *p) {
    const GridShape *g = &p->layout.g;
    const ModelSum *s = p->sum;
    double n = g->dp * g->cp, both = SUM + p->profile->weight, sum = 0, whole = s->final_norm;
    for (int i = 0; i < p->stages; i++)
        sum += p->stage[i].dense * g->tp * (n - 1) * both
               + p->stage[i].expert * layout_expert_cut(&p->layout) * (grid_edp(g) - 1) * both;
    if (s->model->d.tied && g->pp > 1) sum += 2 * n * SUM * s->embed; /* it is at both ends */
    for (int l = 0; l < s->layers; l++) whole += s->at[l].norm + s->at[l].router + s->at[l].attn_whole;
    return p->mini_batches * (sum + n * (g->tp - 1) * whole * 2 * SUM); /* whole ones: each rank of tp saw its tokens */
}

static double sync_sent(const Plan *p) {
    const Layout *l = &p->layout;
    Ways e = engine(p);
    GridShape to = { .tp = e.tp, .pp = 1, .ep = e.ep, .etp = e.etp, .cp = 1, .vpp = 1 };
    if (plan_shares(p) || !p->profile->one_copy) return 0;
    Mem mem = { 0 };
    SyncPlan *out = MEM_NEW(&mem, SyncPlan);
    to.dp = p->cluster.gpus / l->gen_tp, to.layers[0] = p->sum->layers;
    sync_plan(out, p->sum, &l->g, &to, &p->cluster, p->profile->weight, 64 << 20);
    double moved = out->moved;
    mem_free(&mem);
    return moved;
}

/* A prompt is computed once for all its answers, which draw their first token from its last row. */
static double rollout_sent(const Plan *p) {
    const Workload *w = &p->work;
    Ways c = engine(p);
    int ranks = c.ep * c.etp;
    double engines = (double)p->cluster.gpus / layout_engine(&p->layout), replicas = (double)p->cluster.gpus / c.tp;
    double token = embedding_sent(p, c.tp) + outputs_sent(p, c.tp), decode = 0;
    double rows = w->prompts * w->answers / replicas, steps = w->mean - 1;
    double prefill = token * w->prompts * w->prompt_mean;
    for (int l = 0; l < p->sum->layers; l++) {
        SentBytes one = layer_forward(p, l, c), s = sent_decode(p, l, rows);
        prefill += (one.tp + one.ep) * w->prompts * w->prompt_mean;
        if (sum_is_moe(p->sum, l)) prefill += (double)p->cluster.gpus / ranks * counts_sent(p, ranks);
        decode += engines * (s.tp + s.ep);
    }
    return prefill + steps * (decode + token * rows * replicas) + answer_tokens(p) * drawing_sent(p, c.tp);
}

double plan_sent(const Plan *p, Phase ph) {
    switch (ph) {
    case PH_ROLLOUT: return rollout_sent(p);
    case PH_SYNC: return sync_sent(p);
    case PH_REF: return p->work.kl ? score_sent(p) : 0;
    case PH_UPDATE: return work_epochs(&p->work) * (score_sent(p) + back_sent(p)) + optimizer_sent(p);
    default: return 0;
    }
}
