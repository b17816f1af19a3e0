/* test_balance.c - partitions against verl's, and that every item is in exactly one part. */
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "test.h"
#include "train/balance.h"

#include <math.h>

static void sums(double *lo, double *hi, int64_t *small, int64_t *large, const int32_t *part, const double *cost,
                 int64_t n, int64_t k) {
    double sum[256] = { 0 };
    int64_t size[256] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        EXPECT(part[i] >= 0 && part[i] < k, "part %d", part[i]);
        sum[part[i]] += cost[i], size[part[i]]++;
    }
    *lo = *hi = sum[0], *small = *large = size[0];
    for (int64_t j = 1; j < k; j++) {
        *lo = fmin(*lo, sum[j]), *hi = fmax(*hi, sum[j]);
        if (size[j] < *small) *small = size[j];
        if (size[j] > *large) *large = size[j];
    }
}

static void golden(void) {
    Mem mem = { 0 };
    Buf text = { 0 };
    Err err = { { 0 } };
    Json file;
    bool ok = file_read(&text, FIXTURE("verl/balance.json"), &err) && json_parse(&file, text.data, text.n, &mem, &err);
    EXPECT(ok, "%s", err.msg);
    for (size_t c = 0; ok && c < file.n; c++) {
        const Json *o = &file.items[c], *lens = json_get(o, "lengths"), *work = json_get(o, "workload");
        int64_t n = (int64_t)lens->n, k = json_get(o, "k")->integer, small, large;
        bool equal = json_get(o, "equal_size")->flag;
        double *cost = MEM_ARRAY(&mem, double, (size_t)n), lo, hi;
        int32_t *part = MEM_ARRAY(&mem, int32_t, (size_t)n);
        for (int64_t i = 0; i < n; i++) cost[i] = (double)lens->items[i].integer;
        for (size_t i = 0; i < work->n; i++)
            EXPECT(verl_workload(lens->items[i].integer) == json_number(&work->items[i]), "workload");
        Arena tmp = arena_in(&mem, "tmp", balance_scratch(n, k));
        balance(part, cost, n, k, equal, &tmp);
        sums(&lo, &hi, &small, &large, part, cost, n, k);
        EXPECT(hi == json_number(json_get(o, "max_sum")) && lo == json_number(json_get(o, "min_sum")),
               "%lld into %lld: %g..%g, verl %g..%g", (long long)n, (long long)k, lo, hi,
               json_number(json_get(o, "min_sum")), json_number(json_get(o, "max_sum")));
        EXPECT(!equal || (small == n / k && large == n / k), "sizes %lld..%lld", (long long)small, (long long)large);
    }
    buf_free(&text);
    mem_free(&mem);
}

static void corners(void) {
    Mem mem = { 0 };
    Arena tmp = arena_in(&mem, "tmp", balance_scratch(6, 6));
    double cost[] = { 5, 5, 5, 5, 5, 5 };
    int32_t part[6];
    balance(part, cost, 6, 6, false, &tmp);
    for (int i = 0; i < 6; i++) EXPECT(part[i] == i, "one each, numbered by item: %d", part[i]);
    balance(part, cost, 6, 1, true, &tmp);
    for (int i = 0; i < 6; i++) EXPECT(part[i] == 0, "one part");
    double two[] = { 8, 7, 6, 5, 4 };
    balance(part, two, 5, 2, false, &tmp);
    double a = 0;
    for (int i = 0; i < 5; i++) a += part[i] ? 0 : two[i];
    EXPECT(fabs(a - 15) <= 1, "largest differencing leaves 2 here: %g", a);
    EXPECT(tmp.used == 0, "scratch is given back");
    mem_free(&mem);
}

int main(void) {
    golden();
    corners();
    return test_end();
}
