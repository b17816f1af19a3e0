/* test_metrics.c - names set twice, spreads, and what is far above the usual. */
#include "run/metrics.h"
#include "test.h"

int main(void) {
    static Metrics m;
    metric(&m, "a", 1), metric(&m, "b", 2), metric(&m, "a", 3);
    EXPECT(m.n == 2 && metric_of(&m, "a", 0) == 3 && metric_of(&m, "c", -1) == -1, "the later value is kept");
    Spread s = { 0 };
    metric_spread(&m, &s, "mean", "max", "min");
    EXPECT(m.n == 2, "of nothing there is no mean");
    spread_add(&s, -2), spread_add(&s, 4);
    metric_spread(&m, &s, "mean", "max", "min");
    EXPECT(metric_of(&m, "mean", 0) == 1 && metric_of(&m, "max", 0) == 4 && metric_of(&m, "min", 0) == -2, "spread");
    Usual u = { 0 };
    static const double usual[] = { 1, 2, 500, 0, 1 };
    for (size_t i = 0; i < COUNT(usual); i++) EXPECT(!far_above(&u, usual[i]), "the first five say what is usual");
    EXPECT(!far_above(&u, 1000) && far_above(&u, 1e9) && !far_above(&u, 5), "a hundred times the mean");
    EXPECT(far_above(&u, 1e301) && u.mean < 1e10, "what is not a number one can add does not move the mean");
    u = (Usual){ 0 };
    for (int i = 0; i < 9; i++) EXPECT(!far_above(&u, 0), "zero is not above zero");
    return test_end();
}
