/* test_page.c - files of a run as a page reads them: growing, cut, replaced, damaged; buckets that keep a spike; lists
 * by step, score and text. */
#include "base/file.h"
#include "page/api.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

static char dir[64] = "/tmp/hone-page-XXXXXX";
static const char *in_dir(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void add(const char *name, const char *text, const char *mode) {
    FILE *f = fopen(in_dir(name), mode);
    EXPECT(f && fputs(text, f) >= 0, "cannot write %s", name);
    if (f) fclose(f);
}

/* ---- following */
static char seen[4096];
static void note(void *user, const char *line, size_t n, int64_t at) {
    (void)user;
    size_t k = strlen(seen);
    snprintf(seen + k, sizeof seen - k, "%lld:%.*s|", (long long)at, (int)n, line);
}
static bool look(Follow *f) {
    seen[0] = 0;
    bool same = follow_look(f);
    while (follow_behind(f)) follow_read(f, note, NULL);
    return same;
}

static void following(void) {
    char path[512];
    Follow f;
    snprintf(path, sizeof path, "%s/lines", dir);
    follow_open(&f, path);
    EXPECT(look(&f) && !*seen, "a file that is not there says %s", seen);
    add("lines", "one\ntwo\nthr", "w");
    EXPECT(look(&f), "began anew");
    EXPECT_STR(seen, "0:one|4:two|");
    add("lines", "ee\n", "a");
    look(&f);
    EXPECT_STR(seen, "8:three|");
    EXPECT(truncate(path, 8) == 0, "cannot cut");
    EXPECT(!look(&f), "a file that was cut went on");
    EXPECT_STR(seen, "0:one|4:two|");
    EXPECT(truncate(path, 4) == 0, "cannot cut");
    add("lines", "other lines, and more of them\n", "a"); /* cut and grown beyond where it was, between two looks */
    EXPECT(!look(&f), "a file with another tail went on");
    EXPECT_STR(seen, "0:one|4:other lines, and more of them|");
    add("new", "one\nother lines, and more of them\n", "w");
    EXPECT(rename(in_dir("new"), path) == 0, "cannot rename");
    EXPECT(!look(&f) && f.anew == 3, "another file in its place went on");
    unlink(path);
    EXPECT(!look(&f) && !*seen, "a file that went away says %s", seen);
    follow_close(&f);
}

/* ---- columns */
static void line(Columns *c, const char *text) { columns_line(c, text, strlen(text)); }

static void columns(void) {
    Columns c = { 0 };
    char text[200];
    line(&c, "{\"step\":0,\"val\":0.5}");
    for (int s = 1; s <= 100000; s++) {
        snprintf(text, sizeof text, "{\"step\":%d,\"a\":%g,\"timing_s/step\":2%s}", s, s == 77777 ? 1000.0 : 1.0,
                 s >= 500 ? ",\"late\":3" : "");
        line(&c, text);
    }
    line(&c, "{\"step\":7,\"a\":1}"); /* back in time */
    line(&c, "{\"step\":100001,\"a\":1,");
    line(&c, "half a li");
    line(&c, "{\"a\":1}");
    line(&c, "{\"step\":1.5}");
    EXPECT(c.rows == 100001 && c.damaged == 5, "%lld rows, %lld damaged", (long long)c.rows, (long long)c.damaged);
    Bucket *k = calloc(BUCKETS_MOST, sizeof *k);
    Range all = { X_STEP, -INFINITY, INFINITY, false };
    int n = columns_buckets(k, &c, columns_find(&c, "a", 1), &all, 400), spikes = 0;
    for (int i = 0; i < n; i++) spikes += k[i].hi == 1000 && k[i].lo == 1;
    EXPECT(n == 400 && spikes == 1, "%d buckets, %d spikes", n, spikes);
    n = columns_buckets(k, &c, columns_find(&c, "late", 4), &all, 100);
    EXPECT(n == 100 && k[0].x >= 500, "%d buckets, the first at %g", n, k[0].x);
    Range some = { X_STEP, 77777, 77777, false };
    n = columns_buckets(k, &c, columns_find(&c, "a", 1), &some, 400);
    EXPECT(n == 1 && k[0].mean == 1000 && k[0].x == 77777, "one step is %d buckets", n);
    Range time = { X_TIME, 0, 100, false };
    n = columns_buckets(k, &c, columns_find(&c, "a", 1), &time, 400);
    EXPECT(n == 50 && k[n - 1].x == 100, "in 100 s there are %d steps, to %g", n, k[n - 1].x);
    Range zeros = { X_STEP, -INFINITY, INFINITY, true };
    n = columns_buckets(k, &c, columns_find(&c, "val", 3), &zeros, 10);
    EXPECT(n == 10 && fabs((double)k[0].mean - 0.5 / 10001) < 1e-6, "%d buckets, mean %g", n, (double)k[0].mean);
    line(&c, "{\"step\":100001,\"a\":null,\"b\":1e400}");
    EXPECT(isinf(column_at(columns_find(&c, "a", 1), c.rows - 1)), "null is no number");
    EXPECT(column_last(columns_find(&c, "a", 1)) == c.rows - 2, "null is the last value");
    free(k);
    columns_free(&c);
}

/* ---- answers */
static void answer(const char *text) { add("samples.jsonl", text, "a"); }

static size_t found(View *v, Wanted w) {
    AnswerList *l = answers_find(&v->answers, &v->samples_file, &w, 10);
    return l->n;
}

static void answers(void) {
    add("metrics.jsonl", "{\"step\":1,\"critic/score/mean\":0.5}\n{\"step\":2,\"critic/score/mean\":0.5}\n", "w");
    add("samples.jsonl", "", "w");
    answer("{\"step\":1,\"row\":5,\"sample\":0,\"score\":1,\"advantage\":null,\"finish\":\"stop\",\"tokens\":3,"
           "\"input\":\"q\",\"output\":\"one \\\"two\\\" \xc3\xa4\",\"gts\":\"1\"}\n");
    answer("{\"output\":\"any \\u00e4 "
           "order\",\"step\":1,\"score\":-2.5,\"finish\":\"length\",\"what\":{\"x\":[\"step\"]},\"row\":5}\n");
    answer("half a li\n");
    answer("{\"step\":2,\"row\":6,\"score\":null,\"input\":\"q2\",\"output\":\"\",\"turns\":[{\"text\":\"in a "
           "turn\"}]}\n");
    answer("{\"step\":2,\"row\":5,\"score\":0.5,\"output\":\"a/b\"}\n{\"step\":3,\"torn");
    View v;
    view_open(&v, dir);
    while (view_work(&v, 1)) {}
    const Wanted any = { .to = INT64_MAX, .min = NAN, .max = NAN, .row = -1, .finish = "", .text = "" };
    Wanted w = any;
    EXPECT(v.answers.all.n == 4 && v.answers.damaged == 1, "%zu answers, %lld damaged", v.answers.all.n,
           (long long)v.answers.damaged);
    EXPECT(found(&v, w) == 4, "%zu of all", found(&v, w));
    w.from = 2;
    EXPECT(found(&v, w) == 2, "from step 2: %zu", found(&v, w));
    w = any, w.row = 5;
    EXPECT(found(&v, w) == 3, "question 5: %zu", found(&v, w));
    w = any, w.min = 0.5;
    EXPECT(found(&v, w) == 2, "of 0.5 at least: %zu", found(&v, w));
    w = any, w.finish = "length";
    EXPECT(found(&v, w) == 1, "cut: %zu", found(&v, w));
    static const struct {
        const char *text;
        size_t n;
    } texts[] = { { "two\"", 1 }, { "\xc3\xa4", 2 }, { "in a turn", 1 }, { "a/b", 1 },
                  { "score", 0 }, { "x", 0 },        { "zz", 0 } };
    for (size_t i = 0; i < COUNT(texts); i++) {
        w = any, w.text = texts[i].text;
        EXPECT(found(&v, w) == texts[i].n, "'%s': %zu", texts[i].text, found(&v, w));
    }
    w = any, w.order = BY_SCORE;
    AnswerList *l = answers_find(&v.answers, &v.samples_file, &w, 10);
    EXPECT(list_id(l, 0) == 1 && list_id(l, 1) == 3 && list_id(l, 2) == 0 && list_id(l, 3) == 2, "not by score");
    w.order = BY_SCORE_DOWN;
    l = answers_find(&v.answers, &v.samples_file, &w, 10);
    EXPECT(list_id(l, 0) == 0 && list_id(l, 3) == 2, "not by score, down");
    answer(" line\":1}\n{\"step\":3,\"score\":9}\n"); /* it goes on: step 3's line is whole now */
    view_look(&v);
    while (view_work(&v, 1)) {}
    l = answers_find(&v.answers, &v.samples_file, &w, 10);
    EXPECT(l->n == 6 && list_id(l, 0) == 5, "%zu after more came, the best is %u", l->n, list_id(l, 0));
    Buf b = { 0 };
    EXPECT(api_sample(&b, &v, 0, 0) && strstr(b.data, "\"group\":[0,1]") && strstr(b.data, "\"again\":[0,1,3]"), "%s",
           b.data);
    EXPECT(!api_sample(&b, &v, 6, 0) && !api_sample(&b, &v, -1, 0), "an answer that is not there");
    buf_free(&b);
    view_close(&v);
}

static void number(void) {
    static const double x[] = { 0,    -0.0,          1,         10,  1e6,  9999999, 0.1,      0.5, -3.25, 1234.567,
                                1e-5, 0.00123456789, 9.9999999, 1e7, 1e-9, -1e300,  123456.75 };
    for (size_t i = 0; i < COUNT(x); i++) {
        Buf b = { 0 };
        put_number(&b, x[i]);
        double back = strtod(b.data, NULL);
        EXPECT(fabs(back - x[i]) <= 6e-7 * fabs(x[i]), "%.17g is written %s", x[i], b.data);
        buf_free(&b);
    }
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    following();
    columns();
    answers();
    number();
    tree_remove(dir);
    return test_end();
}
