/* samples.c - answers to read, and their tokens: a line begins alike for every answer (docs/formats.md). */
#include "step/run.h"
#include "run/token_rows.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* adv: a token's each; NULL where there is none */
static bool put_tokens(const Run *r, int64_t step, const Rollout *a, const float *adv, int64_t *at, Err *err) {
    int n = answer_n(a);
    for (int i = 0; i < n; i++) {
        TokenRow row = { .id = a->tokens[a->n_prompt + i],
                         .logprob = a->lp[i],
                         .advantage = adv ? adv[i] : NAN,
                         .mask = !a->mask || a->mask[i],
                         .version = !a->mask || a->mask[i] ? (int32_t)(step - 1) : -1,
                         .entropy = a->ent[i] };
        token_row_put(r->flat.rows + (size_t)i * TOKEN_ROW, &row);
    }
    *at = -1;
    return !n || run_dir_tokens(r->job.dir, step, r->flat.rows, (size_t)n * TOKEN_ROW, at, err);
}

/* What was sampled and what was put there, one behind the other, special tokens as they are spelled. */
static void put_turns(Buf *b, const Run *r, const Rollout *a) {
    Buf text = { 0 };
    Err err;
    buf_puts(b, ",\"turns\":[");
    for (int from = 0, to, n = answer_n(a); from < n; from = to) {
        for (to = from; to < n && a->mask[to] == a->mask[from];) to++;
        buf_clear(&text);
        if (!tok_decode(r->sampler.tok, a->tokens + a->n_prompt + from, (size_t)(to - from), false, &text, &err))
            buf_clear(&text);
        buf_printf(b, "%s{\"role\":\"%s\",\"text\":", from ? "," : "", a->mask[from] ? "assistant" : "tool");
        json_put_str(b, text.data ? text.data : "", text.n);
        buf_printf(b, ",\"mask\":%d,\"tokens\":%d}", a->mask[from], to - from);
    }
    buf_puts(b, "]");
    buf_free(&text);
}

static bool put_sample(Buf *b, const Run *r, int64_t step, const Rollout *a, const float *adv, Err *why) {
    const Rollouts *o = &r->sampler.roll;
    Buf text = { 0 };
    const DataRow *row = o->prompt[a->prompt].row;
    Err err;
    int64_t at;
    TRY(put_tokens(r, step, a, adv, &at, why));
    buf_printf(b, "{\"step\":%" PRId64 ",\"row\":%" PRId64 ",\"sample\":%d,\"score\":", step,
               o->prompt[a->prompt].index, a->sample);
    json_put_f64(b, a->score);
    buf_puts(b, ",\"advantage\":");
    if (adv) json_put_f32(b, *adv);
    else buf_puts(b, "null");
    buf_printf(b, ",\"finish\":\"%s\",\"tokens\":%d,\"input\":", finish_name(a->finish), answer_n(a));
    if (!tok_decode(r->sampler.tok, a->tokens, (size_t)a->n_prompt, false, &text, &err)) buf_clear(&text);
    json_put_str(b, text.data ? text.data : "", text.n);
    buf_clear(&text);
    rollout_text(a, r->sampler.tok, &text);
    buf_puts(b, ",\"output\":");
    json_put_str(b, text.data ? text.data : "", text.n);
    buf_puts(b, ",\"gts\":");
    json_put_str(b, row->truth ? row->truth : "", row->truth_n);
    if (a->failed) buf_puts(b, ",\"failed\":true,\"reason\":"), json_put_str(b, a->reason, strlen(a->reason));
    if (at >= 0) buf_printf(b, ",\"at\":%" PRId64, at);
    if (a->mask) put_turns(b, r, a);
    buf_puts(b, "}\n");
    buf_free(&text);
    return true;
}

void run_failed_samples(Run *r, int from) {
    Buf b = { 0 };
    Err err;
    int64_t left = r->job.c.trainer.samples;
    bool ok = true;
    for (int i = from * r->sampler.roll.samples; i < rollouts_n(&r->sampler.roll) && left && ok; i++)
        if (r->sampler.roll.at[i].failed)
            ok = put_sample(&b, r, r->job.step + 1, &r->sampler.roll.at[i], NULL, &err), left--;
    if (!ok || (b.n && !run_dir_samples(r->job.dir, b.data, b.n, &err))) run_dir_note(r->job.dir, err.msg);
    buf_free(&b);
}

/* The i-th of 'want' that are shown.  Where several questions can be shown with all their answers, those are: what one
 * learned from is how they differ. */
static int shown_answer(const Rollouts *o, int i, int want) {
    int n = rollouts_n(o), k = o->samples, whole = want / k;
    if (want >= n) return i;
    if (whole < 2) return (int)((int64_t)i * n / want);
    return i < whole * k ? (int)((int64_t)(i / k) * o->n_prompts / whole) * k + i % k : -1;
}

bool run_samples(Run *r, Err *err) {
    Buf b = { 0 };
    int n = rollouts_n(&r->sampler.roll), want = (int)r->job.c.trainer.samples;
    bool ok = true;
    for (int i = 0; i < n && i < want && ok; i++) {
        int k = shown_answer(&r->sampler.roll, i, want);
        if (k < 0) break;
        const float *adv = r->flat.end[k] > r->flat.at[k] ? &r->flat.adv[r->flat.at[k]] : NULL;
        ok = put_sample(&b, r, r->job.step, &r->sampler.roll.at[k], adv, err);
    }
    ok = ok && (!b.n || run_dir_samples(r->job.dir, b.data, b.n, err));
    buf_free(&b);
    return ok;
}
