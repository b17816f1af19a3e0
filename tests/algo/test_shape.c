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
    AdvIn in = { .a = { 6, at, at + 1, mask }, .reward = reward, .group = group };
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

/* Answers lie in columns as their places are, not as they follow each other: the numbers are those of answers side by
 * side, and what lies between stays as it was. */
static void columns_with_gaps(void) {
    Mem mem = { 0 };
    Arena tmp = arena_in(&mem, "tmp", adv_scratch(3, 32));
    static const int64_t at[] = { 0, 3, 3, 8 }, from[] = { 16, 8, 0 }, to[] = { 19, 8, 5 };
    static const int32_t group[] = { 1, 1, 1 };
    static const AdvKind kinds[] = { ADV_GRPO, ADV_RPP, ADV_RPP_BASELINE };
    for (size_t k = 0; k < COUNT(kinds); k++) {
        float reward[8] = { 0, 0, 1, 0.5f, 0, 0.25f, 0, -1 }, adv[8], there[32], out[32];
        for (int t = 0; t < 32; t++) there[t] = NAN, out[t] = 77;
        for (int i = 0; i < 3; i++)
            memcpy(there + from[i], reward + at[i], (size_t)(at[i + 1] - at[i]) * sizeof *reward);
        AdvConf c = { .kind = kinds[k], .norm_by_std = true, .gamma = 0.9 };
        AdvIn in = { .a = { 3, at, at + 1, NULL }, .reward = reward, .group = group };
        AdvIn apart = { .a = { 3, from, to, NULL }, .reward = there, .group = group };
        Err err = { { 0 } };
        EXPECT(advantage(adv, NULL, &c, &in, &tmp, &err) && advantage(out, NULL, &c, &apart, &tmp, &err), "%s",
               err.msg);
        for (int i = 0; i < 3; i++)
            EXPECT(!memcmp(out + from[i], adv + at[i], (size_t)(at[i + 1] - at[i]) * sizeof *adv), "kind %d, answer %d",
                   kinds[k], i);
        for (int t = 5; t < 16; t++) EXPECT(out[t] == 77, "between answers: %g", out[t]);
    }
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
    Answers a = { 2, at, at + 1, NULL };
    TisSum s = { 0 };
    tis_weights(w, &s, TIS_TOKEN, 2, &a, train, roll);
    EXPECT(fabs(w[0] - exp(0.5)) < 1e-6 && fabs(w[1] - exp(-0.25)) < 1e-6 && w[2] == 2, "%g %g %g", w[0], w[1], w[2]);
    EXPECT(s.count == 3 && s.above == 1 && s.max == 2 && fabs(s.min - exp(-0.25)) < 1e-12, "sums");
    tis_weights(w, &s, TIS_SEQUENCE, 2, &a, train, roll);
    EXPECT(fabs(w[0] - exp(0.25)) < 1e-6 && w[1] == w[0], "sequence %g %g", w[0], w[1]);
}

int main(void) {
    advantages_of_corner_cases();
    columns_with_gaps();
    filters();
    weights();
    return test_end();
}
