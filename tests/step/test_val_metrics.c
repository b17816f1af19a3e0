/* test_val_metrics.c - validation by source under verl's names: values worked out by hand,
 * best and worst against all draws. */
#include "base/file.h"
#include "step/val_metrics.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

static Dataset *two_sources(char path[32]) {
    static const char text[] = "{\"data_source\":\"a/b\",\"prompt\":\"1\"}\n{\"data_source\":\"c\",\"prompt\":\"2\"}\n";
    Err err;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1, "%s", path);
    close(fd);
    const char *file = path;
    DataOptions o = { .files = &file, .n_files = 1 };
    Dataset *d = dataset_open(&o, &err);
    CHECK(d, "%s", err.msg);
    return d;
}

static bool is(const Metrics *m, const char *name, double want) { return fabs(metric_of(m, name, NAN) - want) < 1e-12; }

static void by_hand(const Dataset *d) {
    Mem mem = { 0 };
    Metrics *m = MEM_NEW(&mem, Metrics);
    ValMetrics *v = val_metrics_open(d, 3, &mem);
    Rollout right = { .score = 1, .acc = 1, .pred = 7 }, wrong = { .score = -1, .acc = 0, .pred = 8 },
            silent = { .score = 0.5, .acc = NAN };
    val_metrics_add(v, "a/b", (Rollout[]){ right, wrong, right });
    val_metrics_add(v, "a/b", (Rollout[]){ wrong, wrong, right });
    val_metrics_add(v, "c", (Rollout[]){ silent, silent, silent });
    val_metrics_put(v, m);
    EXPECT(is(m, "val-core/a/b/acc/mean@3", 0.5) && is(m, "val-core/a/b/acc/maj@3/mean", 0.5), "acc");
    EXPECT(is(m, "val-aux/a/b/reward/mean@3", 0) && is(m, "val-aux/a/b/reward/maj@3/mean", 0), "reward");
    EXPECT(is(m, "val-aux/a/b/acc/std@3", sqrt(2) / 3), "std %g", metric_of(m, "val-aux/a/b/acc/std@3", NAN));
    EXPECT(is(m, "val-core/a/b/acc/best@3/mean", ((27. - 1) / 27 + (27. - 8) / 27) / 2), "best");
    EXPECT(is(m, "val-aux/a/b/acc/worst@3/mean", (8. / 27 + 1. / 27) / 2), "worst");
    EXPECT(is(m, "val-core/c/reward/mean@3", 0.5), "a scorer without acc: the reward is the main number");
    EXPECT(isnan(metric_of(m, "val-aux/c/acc/mean@3", NAN)), "and there is no acc");
    EXPECT(isnan(metric_of(m, "val-core/c/reward/maj@3/mean", NAN)), "nor a vote");
    val_metrics_clear(v);
    metrics_clear(m);
    /* acc is a share as well as a yes or no; who has no verdict has no vote: of two failed and two right answers that
     * each say something else, a right one is the majority's */
    Rollout part = { .score = 1, .acc = 0.25, .pred = 7 }, more = { .score = 1, .acc = 0.75, .pred = 9 },
            failed = { .score = 0, .acc = NAN, .failed = true }, none = { .score = 0, .acc = NAN, .failed = true };
    none.pred = 8;
    val_metrics_add(v, "a/b", (Rollout[]){ failed, none, part });
    val_metrics_add(v, "a/b", (Rollout[]){ none, none, more });
    val_metrics_put(v, m);
    EXPECT(is(m, "val-core/a/b/acc/mean@3", 1. / 6) && is(m, "val-core/a/b/acc/maj@3/mean", 0.5), "acc %g, maj %g",
           metric_of(m, "val-core/a/b/acc/mean@3", NAN), metric_of(m, "val-core/a/b/acc/maj@3/mean", NAN));
    EXPECT(is(m, "val-aux/a/b/reward/maj@3/mean", 1), "reward");
    val_metrics_clear(v);
    metrics_clear(m);
    val_metrics_put(v, m);
    EXPECT(m->n == 0, "nothing was asked, %d numbers are told", m->n);
    mem_free(&mem);
}

/* best@2 of 4 is the mean over all 16 draws of two. */
static void all_draws(const Dataset *d) {
    Mem mem = { 0 };
    Metrics *m = MEM_NEW(&mem, Metrics);
    ValMetrics *v = val_metrics_open(d, 4, &mem);
    static const double x[4] = { 0.3, -1, 2, 0.3 };
    Rollout a[4] = { { .acc = NAN }, { .acc = NAN }, { .acc = NAN }, { .acc = NAN } };
    double best = 0, worst = 0;
    for (int i = 0; i < 4; i++) {
        a[i].score = x[i];
        for (int j = 0; j < 4; j++) best += fmax(x[i], x[j]) / 16, worst += fmin(x[i], x[j]) / 16;
    }
    val_metrics_add(v, "c", a);
    val_metrics_put(v, m);
    EXPECT(is(m, "val-aux/c/reward/best@2/mean", best), "%g %g", metric_of(m, "val-aux/c/reward/best@2/mean", 0), best);
    EXPECT(is(m, "val-aux/c/reward/worst@2/mean", worst), "worst");
    EXPECT(!isnan(metric_of(m, "val-core/c/reward/best@4/mean", NAN)), "best of all n is a main number");
    mem_free(&mem);
}

int main(void) {
    char path[32] = "/tmp/hone-val-XXXXXX";
    Dataset *d = two_sources(path);
    by_hand(d);
    all_draws(d);
    dataset_close(d);
    unlink(path);
    return test_end();
}
