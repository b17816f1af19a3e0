/* test_shape.c - groups, filters and weights: the corners that the reference values do not have. */
#include "algo/advantage.h"
#include "algo/shape.h"
#include "test.h"

#include <math.h>

static void advantages_of_corner_cases(void) {
    Mem mem = { 0 };
    Arena tmp = arena_in(&mem, "tmp", adv_scratch(6, 9));
    static const int64_t at[] = { 0, 2, 3, 3, 5, 8, 9 };
    static const int32_t group[] = { 7, -1, 7, -1, 7, 5 }; /* not in order, one negative, one alone, one answer empty */
    float reward[9] = { 0, 1, 1, 0, 1, 0, 0, 0, 0.25f }, adv[9];
    uint8_t mask[9] = { 1, 1, 1, 0, 1, 1, 1, 1, 1 };
    AdvIn in = { .a = { 6, at, mask }, .reward = reward, .group = group };
    Err err = { { 0 } };
    AdvConf c = { .kind = ADV_GRPO, .norm_by_std = true };
    EXPECT(advantage(adv, NULL, &c, &in, &tmp, &err), "%s", err.msg);
    EXPECT(adv[2] == 0 && adv[4] == 0, "a group of equal scores teaches nothing: %g %g", adv[2], adv[4]);
    EXPECT(adv[3] == 0, "a masked token has no advantage");
    double mean = 1.0 / 3, std = sqrt((4.0 / 9 + 1.0 / 9 + 1.0 / 9) / 2);
    EXPECT(fabs(adv[0] - (1 - mean) / (std + 1e-6)) < 1e-6 && adv[1] == adv[0], "%g", adv[0]);
    EXPECT(fabs(adv[8] - 0.25) < 1e-6, "a group of one keeps its score: %g", adv[8]);
    EXPECT(tmp.used == 0, "scratch is given back");
    c.kind = ADV_RLOO;
    EXPECT(advantage(adv, NULL, &c, &in, &tmp, &err) && fabs(adv[0] - 1) < 1e-6, "rloo: 1 - mean(0, 0) = %g", adv[0]);
    c.kind = ADV_PASSK;
    EXPECT(!advantage(adv, NULL, &c, &in, &tmp, &err) && strstr(err.msg, "group 5 has only one"), "%s", err.msg);
    EXPECT(tmp.used == 0, "scratch is given back after an error");
    mem_free(&mem);
}

static void filters(void) {
    Mem mem = { 0 };
    Arena tmp = arena_in(&mem, "tmp", filter_scratch(7));
    static const int32_t group[] = { 3, 1, 3, 1, 2, 9, 9 };
    static const float metric[] = { 1, 0, 1, 1, 0, 0, 0 };
    uint8_t keep[7];
    EXPECT(filter_groups(keep, group, metric, 7, &tmp) == 2, "two groups kept");
    static const uint8_t want[] = { 0, 1, 0, 1, 1, 0, 0 };
    EXPECT(!memcmp(keep, want, 7), "the mixed group and the lone answer stay");
    mem_free(&mem);
}

static void weights(void) {
    static const int64_t at[] = { 0, 2, 3 };
    float train[] = { -1, -1, -1 }, roll[] = { -1.5f, -0.75f, -4 }, w[3];
    Answers a = { 2, at, NULL };
    TisSum s = { 0 };
    tis_weights(w, &s, TIS_TOKEN, 2, &a, train, roll);
    EXPECT(fabs(w[0] - exp(0.5)) < 1e-6 && fabs(w[1] - exp(-0.25)) < 1e-6 && w[2] == 2, "%g %g %g", w[0], w[1], w[2]);
    EXPECT(s.count == 3 && s.above == 1 && s.max == 2 && fabs(s.min - exp(-0.25)) < 1e-12, "sums");
    tis_weights(w, &s, TIS_SEQUENCE, 2, &a, train, roll);
    EXPECT(fabs(w[0] - exp(0.25)) < 1e-6 && w[1] == w[0], "sequence %g %g", w[0], w[1]);
}

int main(void) {
    advantages_of_corner_cases();
    filters();
    weights();
    return test_end();
}
