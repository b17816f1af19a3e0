/* data_shapes.c - `hone data shapes`: questions about drawn pictures, as many as are wanted, from a seed.  A picture of
 * 64 x 64 pixels on light grey holds one to four squares of one colour, each in a quarter of its own; asked is how
 * many, which colour, or where the one is.  Answers are numbers from 1 to 4, each as likely as the others, so that the
 * question alone is worth a quarter. */
#include "base/rng.h"
#include "cmd/data/data.h"
#include "file/parquet.h"

#include <png.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 64, QUARTER = SIDE / 2 };
static const uint8_t colours[4][3] = { { 220, 40, 40 }, { 40, 170, 60 }, { 50, 80, 220 }, { 230, 200, 40 } };
static const char *const asked[] = { "how many squares?", "which colour?", "where is it?" };

typedef struct {
    uint64_t seed;
    uint32_t row, n;
} Dice;
static int dice(Dice *d, int sides) {
    return (int)(rng_u64(d->seed, RNG_PLAN, 0, 0, d->row, d->n++) % (uint64_t)sides);
}

static void square(uint8_t *rgb, Dice *d, int quarter, int colour) {
    int side = 10 + dice(d, 11), x = quarter % 2 * QUARTER + 2 + dice(d, QUARTER - 4 - side + 1),
        y = quarter / 2 * QUARTER + 2 + dice(d, QUARTER - 4 - side + 1);
    for (int i = 0; i < side * side; i++) memcpy(rgb + 3 * ((y + i / side) * SIDE + x + i % side), colours[colour], 3);
}

/* The picture and its answer. */
static int draw(uint8_t *rgb, Dice *d, int kind) {
    int quarters[4] = { 0, 1, 2, 3 }, n = kind == 0 ? 1 + dice(d, 4) : 1, colour = dice(d, 4);
    memset(rgb, 200 + dice(d, 56), SIDE * SIDE * 3);
    for (int i = 3; i > 0; i--) {
        int k = dice(d, i + 1), t = quarters[i];
        quarters[i] = quarters[k], quarters[k] = t;
    }
    for (int i = 0; i < n; i++) square(rgb, d, quarters[i], colour);
    return kind == 0 ? n : kind == 1 ? colour + 1 : quarters[0] + 1;
}

static Json text(Mem *m, const char *s, size_t n, bool bytes) {
    return (Json){ .kind = JSON_STRING, .flag = bytes, .n = n, .str = mem_str(m, s, n) };
}
static Json object(Mem *m, size_t n, const JsonMember *members) {
    return (Json){ .kind = JSON_OBJECT, .n = n, .members = mem_copy(m, members, n * sizeof *members) };
}
static Json list_of(Mem *m, Json one) {
    return (Json){ .kind = JSON_ARRAY, .n = 1, .items = mem_copy(m, &one, sizeof one) };
}
#define TEXT(s) text(m, s, strlen(s), false)
#define MEMBER(key, value)                                                                                             \
    { key, sizeof key - 1, value }

static bool make_row(Json *out, uint64_t seed, uint32_t i, Mem *m, Err *err) {
    Dice d = { seed, i, 0 };
    uint8_t rgb[SIDE * SIDE * 3], file[1 << 14];
    int kind = dice(&d, 3), answer = draw(rgb, &d, kind);
    png_image png = { .version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE, .format = PNG_FORMAT_RGB };
    png_alloc_size_t n = sizeof file;
    if (!png_image_write_to_memory(&png, file, &n, 0, rgb, 0, NULL)) return err_set(err, "libpng: %s", png.message);
    char truth[2] = { (char)('0' + answer), 0 };
    Json picture = object(m, 1, (JsonMember[]){ MEMBER("bytes", text(m, (char *)file, n, true)) });
    Json message = object(m, 2,
                          (JsonMember[]){ MEMBER("role", TEXT("user")),
                                          MEMBER("content", TEXT(mem_printf(m, "<image>%s", asked[kind]))) });
    Json judged = object(m, 2, (JsonMember[]){ MEMBER("style", TEXT("rule")), MEMBER("ground_truth", TEXT(truth)) });
    *out = object(m, 5,
                  (JsonMember[]){ MEMBER("data_source", TEXT("math_exact_flexible")),
                                  MEMBER("prompt", list_of(m, message)), MEMBER("images", list_of(m, picture)),
                                  MEMBER("ability", TEXT("vision")), MEMBER("reward_model", judged) });
    return true;
}

int data_shapes(const Verb *v, const DataArgs *a) {
    Mem m = { 0 };
    Err err;
    if (!a->out) return cmd_usage(v, "--out FILE.parquet names the file to make");
    int64_t n = a->n == 3 ? 1000 : a->n;
    Json *rows = MEM_ARRAY(&m, Json, (size_t)n + 1);
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) ok = make_row(&rows[i], (uint64_t)a->seed, (uint32_t)i, &m, &err);
    ok = ok && pq_write(a->out, rows, n, PQ_ZSTD, &err);
    if (ok) fprintf(stderr, "%lld questions about drawn pictures in %s\n", (long long)n, a->out);
    mem_free(&m);
    return ok ? 0 : cmd_fail(v, &err);
}
