/* alerts.c - the rules: a function of the numbers alone, so that who reads a run's files comes to the alerts that the
 * run had. */
#include "run/alerts.h"
#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const alert_rules[RULES] = { "exact",    "not_finite", "score",      "entropy", "entropy_falls", "clipped",
                                         "gradient", "failed",     "validation", "disk",    "memory",        "stuck" };

/* clang-format off */
const char *const alert_metrics[WATCHES][2] = {
    [WATCH_EXACT]     = { "exact/max_abs_logprob_diff" },
    [WATCH_LOSS]      = { "actor/loss", "train/loss" },
    [WATCH_GRAD]      = { "actor/grad_norm", "train/grad_norm" },
    [WATCH_SCORE]     = { "critic/score/mean" },
    [WATCH_SCORE_MAX] = { "critic/score/max" },
    [WATCH_ENTROPY]   = { "actor/entropy" },
    [WATCH_CLIPPED]   = { "response_length/clip_ratio" },
    [WATCH_FAILED]    = { "reward/failed_ratio" },
    [WATCH_VAL]       = { "val-core/score/mean" },
    [WATCH_VAL_LOW]   = { "val-aux/score/low" },
    [WATCH_VAL_HIGH]  = { "val-aux/score/high" },
};
/* clang-format on */

typedef struct {
    Alerts *a;
    int64_t step;
    AlertTell *tell;
    void *user;
} Now;

/* The rule holds now, or not; 'fmt' is said when it begins to. */
static void rule(const Now *w, AlertRule r, AlertLevel level, bool now, const char *fmt, ...) PRINTF_LIKE(5, 6);
static void rule(const Now *w, AlertRule r, AlertLevel level, bool now, const char *fmt, ...) {
    bool begins = now && !w->a->on[r];
    w->a->on[r] = now;
    if (!begins) return;
    Alert x = { .step = w->step, .rule = r, .level = level };
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(x.text, sizeof x.text, fmt, ap);
    va_end(ap);
    w->tell(w->user, &x);
}

static void entropy_rules(const Now *w, double x) {
    static const double LOW = 0.01;
    Alerts *a = w->a;
    if (!isfinite(x)) return;
    float *before = &a->entropy[a->entropies % ALERT_ENTROPY_STEPS];
    bool full = a->entropies >= ALERT_ENTROPY_STEPS;
    rule(w, RULE_ENTROPY, ALERT_WARN, x < LOW, "entropy is %.3g: the answers to a question are all the same", x);
    rule(w, RULE_ENTROPY_FALLS, ALERT_WARN, full && x < 0.5 * (double)*before && x >= LOW,
         "entropy fell from %.3g to %.3g in %d steps", full ? (double)*before : 0, x, ALERT_ENTROPY_STEPS);
    *before = (float)x;
    a->entropies++;
}

/* The ring's oldest goes out of the sorted ones, x comes in. */
static void grad_add(Alerts *a, float x) {
    int n = a->grads < ALERT_USUAL ? (int)a->grads : ALERT_USUAL, i = 0;
    float *s = a->grad_sorted, old = a->grad[a->grads % ALERT_USUAL];
    if (n == ALERT_USUAL) {
        while (s[i] != old) i++;
        memmove(s + i, s + i + 1, (size_t)(n - 1 - i) * sizeof *s);
        n--;
    }
    for (i = n; i > 0 && s[i - 1] > x; i--) s[i] = s[i - 1];
    s[i] = x;
    a->grad[a->grads % ALERT_USUAL] = x;
    a->grads++;
}

static void grad_rule(const Now *w, double x) {
    enum { FEW = 10 };
    Alerts *a = w->a;
    if (!isfinite(x)) return;
    int n = a->grads < ALERT_USUAL ? (int)a->grads : ALERT_USUAL;
    double usual = n ? (double)a->grad_sorted[n / 2] : 0;
    rule(w, RULE_GRADIENT, ALERT_WARN, n >= FEW && usual > 0 && x > 10 * usual,
         "the gradient's norm is %.3g, usually %.3g", x, usual);
    grad_add(a, (float)x);
}

/* Worse than the best by more than two intervals: half of what lies between low and high, the wider of both. */
static void validation_rule(const Now *w, double x, double low, double high) {
    Alerts *a = w->a;
    if (!isfinite(x)) return;
    double half = isfinite(low) && isfinite(high) ? (high - low) / 2 : 0;
    double wide = half > a->best_half ? half : a->best_half;
    rule(w, RULE_VALIDATION, ALERT_WARN, a->validated && wide > 0 && a->best - x > 2 * wide,
         "validation is %.3g, its best was %.3g (an interval is +-%.2g)", x, a->best, wide);
    if (!a->validated || x > a->best) a->best = x, a->best_half = half, a->validated = true;
}

void alerts_step(Alerts *a, int64_t step, const double v[WATCHES], AlertTell *tell, void *user) {
    Now w = { a, step, tell, user };
    if (!isnan(v[WATCH_EXACT]))
        rule(&w, RULE_EXACT, ALERT_ERROR, v[WATCH_EXACT] != 0,
             "the sampler's log-probs are not the trainer's: largest difference %g", v[WATCH_EXACT]);
    rule(&w, RULE_NOT_FINITE, ALERT_ERROR, isinf(v[WATCH_LOSS]) || isinf(v[WATCH_GRAD]),
         "the loss or the gradient is no finite number");
    if (isfinite(v[WATCH_SCORE])) {
        bool none = v[WATCH_SCORE] == 0 && !(v[WATCH_SCORE_MAX] != 0 && isfinite(v[WATCH_SCORE_MAX]));
        a->silent = none ? a->silent + 1 : 0;
        rule(&w, RULE_SCORE, ALERT_WARN, a->silent >= ALERT_SCORE_STEPS, "every score was 0 for %d steps",
             ALERT_SCORE_STEPS);
    }
    entropy_rules(&w, v[WATCH_ENTROPY]);
    if (isfinite(v[WATCH_CLIPPED]))
        rule(&w, RULE_CLIPPED, ALERT_WARN, v[WATCH_CLIPPED] > 0.5, "%.0f %% of the answers are cut at their limit",
             100 * v[WATCH_CLIPPED]);
    grad_rule(&w, v[WATCH_GRAD]);
    if (isfinite(v[WATCH_FAILED]))
        rule(&w, RULE_FAILED, ALERT_WARN, v[WATCH_FAILED] > 0.05, "%.0f %% of the answers could not be judged",
             100 * v[WATCH_FAILED]);
    validation_rule(&w, v[WATCH_VAL], v[WATCH_VAL_LOW], v[WATCH_VAL_HIGH]);
}

void alerts_host(Alerts *a, int64_t step, const AlertHost *h, AlertTell *tell, void *user) {
    Now w = { a, step, tell, user };
    rule(&w, RULE_DISK, ALERT_ERROR, h->disk_free < 2 * h->checkpoint, /* false where one is not known */
         "%.1f GB are free on the disk, less than two checkpoints of %.1f GB", h->disk_free / 1e9, h->checkpoint / 1e9);
    rule(&w, RULE_MEMORY, ALERT_WARN, h->memory > 0.95, "%.1f %% of the machine's memory is in use", 100 * h->memory);
}

void alerts_stuck(Alerts *a, int64_t step, double since, double usual, AlertTell *tell, void *user) {
    static const double LEAST_S = 30; /* a step of milliseconds may wait for a save */
    Now w = { a, step, tell, user };
    rule(&w, RULE_STUCK, ALERT_ERROR, usual > 0 && since > 10 * usual && since > LEAST_S,
         "no new step for %.0f s; a step usually takes %.3g s", since, usual);
}

void alert_json(Buf *out, const char *run, const Alert *a) {
    buf_puts(out, "{\"run\":");
    json_put_str(out, run, strlen(run));
    buf_printf(out, ",\"step\":%lld,\"rule\":\"%s\",\"level\":\"%s\",\"text\":", (long long)a->step,
               alert_rules[a->rule], a->level == ALERT_ERROR ? "error" : "warn");
    json_put_str(out, a->text, strlen(a->text));
    buf_puts(out, "}\n");
}
