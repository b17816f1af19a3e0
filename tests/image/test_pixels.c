/* test_pixels.c - 21 pictures from file to pixel values, bit for bit as transformers' slow and fast processors, and 116
 * sizes by both rules (tests/data/vision/cases.json); rules read from preprocessor_config.json; several frames. */
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "file/safetensors.h"
#include "image/pixels.h"
#include "test.h"

#include <unistd.h>

static const PixelsRules qwen = { .patch = 14,
                                  .merge = 2,
                                  .frames = 2,
                                  .min_pixels = 3136,
                                  .max_pixels = 12845056,
                                  .mean = { 0.48145466f, 0.4578275f, 0.40821073f },
                                  .std = { 0.26862954f, 0.26130258f, 0.27577711f } };

static int64_t at(const Json *a, size_t i) { return a->items[i].integer; }

static void sizes(const Json *all) {
    EXPECT(all->n == 116, "%zu sizes", all->n);
    for (size_t i = 0; i < all->n; i++) {
        const Json *c = &all->items[i];
        for (int utils = 0; utils < 2; utils++) {
            const Json *want = &c->items[5 + utils];
            int h = 0, w = 0;
            Err err = { "" };
            bool ok =
                smart_resize(&h, &w, (int)at(c, 0), (int)at(c, 1), (int)at(c, 2), at(c, 3), at(c, 4), utils, &err);
            EXPECT(want->kind == JSON_NULL ? !ok && err.msg[0] : ok && h == at(want, 0) && w == at(want, 1),
                   "%lld x %lld, %s: %d x %d %s", (long long)at(c, 0), (long long)at(c, 1),
                   utils ? "utils" : "transformers", h, w, err.msg);
        }
    }
}

static void same_bytes(const StFiles *st, const char *name, const char *what, const void *got, size_t n) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", name, what);
    const StTensor *t = st_find(st, key);
    if (t) EXPECT(t->bytes == n && !memcmp(t->data, got, n), "%s differs (%zu bytes, want %zu)", key, n, t->bytes);
}

/* pixel_values in float32, as the model would be given them */
static float *values(const uint8_t *rows, int64_t n, const PixelsRules *r, Mem *m) {
    float table[3][256], *out = MEM_ARRAY(m, float, (size_t)n *pixels_row_bytes(r));
    pixels_table(table, r);
    int plane = r->frames * r->patch * r->patch;
    for (int64_t i = 0; i < n * pixels_row_bytes(r); i++) out[i] = table[i / plane % 3][rows[i]];
    return out;
}

static void picture(const Json *c, const StFiles *st) {
    Mem m = { 0 };
    Err err = { "" };
    Buf path = { 0 }, file = { 0 };
    const char *name = "", *from = "";
    json_str(c, "name", &name, &err), json_str(c, "file", &from, &err);
    buf_printf(&path, FIXTURE("vision/%s"), from);
    ImageHead head = { 0 };
    Image img = { 0 }, white = { 0 };
    EXPECT(file_read(&file, path.data, &err) && image_head(&head, from, file.data, file.n, &err)
               && image_decode(&img, from, file.data, file.n, false, &m, &err)
               && image_decode(&white, from, file.data, file.n, true, &m, &err),
           "%s", err.msg);
    if (!img.rgb || !white.rgb) return;
    const Json *size = json_get(c, "size");
    EXPECT(img.h == at(size, 0) && img.w == at(size, 1) && head.h == img.h && head.w == img.w, "%s is %d x %d", name,
           img.w, img.h);
    EXPECT(!strcmp(name, "gray16") == !!head.note, "%s: %s", name, head.note ? head.note : "no note");
    same_bytes(st, name, "rgb", img.rgb, (size_t)img.h * img.w * 3);
    same_bytes(st, name, strcmp(name, "rgba") ? "rgb" : "rgb_utils", white.rgb, (size_t)img.h * img.w * 3);
    for (int processor = PIXELS_SLOW; processor <= PIXELS_FAST; processor++) {
        const char *kind = processor == PIXELS_SLOW ? "pil" : "aten", *want = "";
        char key[32], got[65];
        PixelsRules r = qwen;
        PixelsGrid g;
        uint8_t *rows, sum[32];
        r.processor = (ImageProcessor)processor;
        json_int(c, "min_pixels", &r.min_pixels, &err), json_int(c, "max_pixels", &r.max_pixels, &err);
        int h = 0, w = 0;
        Image small = { 0 };
        EXPECT(pixels_size(&h, &w, img.h, img.w, &r, &err) && pixels_rows(&rows, &g, &img, 1, &r, &m, &err), "%s: %s",
               name, err.msg);
        pixels_resize(&small, &img, h, w, processor == PIXELS_FAST, &m);
        same_bytes(st, name, kind, small.rgb, (size_t)h * w * 3);
        const Json *grid = json_get(c, "grid");
        EXPECT(g.t == at(grid, 0) && g.h == at(grid, 1) && g.w == at(grid, 2), "%s: grid %d %d %d", name, g.t, g.h,
               g.w);
        size_t bytes = (size_t)grid_rows(g) * pixels_row_bytes(&r) * sizeof(float);
        float *x = values(rows, grid_rows(g), &r, &m);
        sha256(sum, x, bytes);
        for (int i = 0; i < 32; i++) sprintf(got + 2 * i, "%02x", sum[i]);
        snprintf(key, sizeof key, "sha256_%s", kind);
        json_str(c, key, &want, &err);
        EXPECT(!strcmp(got, want), "%s: pixel_values of %s differ", name, kind);
        snprintf(key, sizeof key, "pixel_values_%s", kind);
        same_bytes(st, name, key, x, bytes);
        if (processor != PIXELS_SLOW) continue;
        PixelsRules v = r; /* verl's road ends at the same bytes where both rules agree on the size */
        PixelsGrid gv;
        uint8_t *rv;
        int hv, wv;
        v.processor = PIXELS_VERL;
        EXPECT(pixels_rows(&rv, &gv, &img, 1, &v, &m, &err) && pixels_size(&hv, &wv, img.h, img.w, &v, &err), "%s: %s",
               name, err.msg);
        if (hv == h && wv == w && r.max_pixels == qwen.max_pixels)
            EXPECT(!memcmp(rows, rv, (size_t)grid_rows(g) * pixels_row_bytes(&r)), "%s: verl's road differs", name);
    }
    buf_free(&path), buf_free(&file), mem_free(&m);
}

/* Three frames: time 0 holds 0 and 1, time 1 holds 2 twice. */
static void frames(void) {
    Mem m = { 0 };
    Err err;
    Image f[3];
    PixelsRules r = qwen;
    for (int i = 0; i < 3; i++) {
        f[i] = (Image){ 56, 84, mem_array(&m, 56 * 84, 3) };
        memset(f[i].rgb, 10 + i, 56 * 84 * 3);
    }
    uint8_t *rows;
    PixelsGrid g;
    EXPECT(pixels_rows(&rows, &g, f, 3, &r, &m, &err), "%s", err.msg);
    EXPECT(g.t == 2 && g.h == 4 && g.w == 6 && grid_tokens(g, 2) == 12, "grid %d %d %d", g.t, g.h, g.w);
    const uint8_t *second = rows + (size_t)24 * 1176;
    EXPECT(rows[0] == 10 && rows[196] == 11 && rows[2 * 196] == 10 && second[0] == 12 && second[196] == 12,
           "frames are in the wrong place");
    f[1].w = 56;
    EXPECT(!pixels_rows(&rows, &g, f, 3, &r, &m, &err) && strstr(err.msg, "of one size"), "%s", err.msg);
    mem_free(&m);
}

static void rules(void) {
    static const char *const texts[][2] = {
        { "{\"min_pixels\":3136,\"max_pixels\":12845056,\"patch_size\":14,\"temporal_patch_size\":2,\"merge_size\":2,"
          "\"image_mean\":[0.48145466,"
          "0.4578275,0.40821073],\"image_std\":[0.26862954,0.26130258,0.27577711]}",
          "" },
        { "{\"size\":{\"shortest_edge\":3136,\"longest_edge\":12845056},\"patch_size\":14,\"temporal_patch_size\":2,"
          "\"merge_size\":2,"
          "\"image_mean\":[0.48145466,0.4578275,0.40821073],\"image_std\":[0.26862954,0.26130258,0.27577711],"
          "\"resample\":3,\"do_resize\":true}",
          "" },
        { "{\"patch_size\":14,\"temporal_patch_size\":2,\"merge_size\":2}", "shortest_edge" },
        { "{\"min_pixels\":3136,\"max_pixels\":99,\"patch_size\":14,\"temporal_patch_size\":2,\"merge_size\":2}",
          "max_pixels" },
        { "{\"min_pixels\":3136,\"max_pixels\":12845056,\"patch_size\":14,\"temporal_patch_size\":2,\"merge_size\":2,"
          "\"image_mean\":[0,0],"
          "\"image_std\":[1,1,1]}",
          "image_mean" },
        { "{\"min_pixels\":3136,\"max_pixels\":12845056,\"patch_size\":14,\"temporal_patch_size\":2,\"merge_size\":2,"
          "\"image_mean\":[0,0,0],"
          "\"image_std\":[1,1,1],\"do_resize\":false}",
          "do_resize is false" },
        { "{\"min_pixels\":3136,\"max_pixels\":12845056,\"patch_size\":14,\"temporal_patch_size\":2,\"merge_size\":2,"
          "\"image_mean\":[0,0,0],"
          "\"image_std\":[1,1,1],\"resample\":2}",
          "resample is 2" },
    };
    char dir[] = "/tmp/hone_pixels_XXXXXX";
    EXPECT(mkdtemp(dir), "no folder");
    Buf path = { 0 };
    buf_printf(&path, "%s/preprocessor_config.json", dir);
    Err err = { "" };
    PixelsRules r;
    EXPECT(!pixels_rules(&r, dir, PIXELS_VERL, &err) && strstr(err.msg, "preprocessor_config.json"), "%s", err.msg);
    for (size_t i = 0; i < COUNT(texts); i++) {
        EXPECT(file_write(path.data, texts[i][0], strlen(texts[i][0]), &err), "%s", err.msg);
        bool ok = pixels_rules(&r, dir, PIXELS_SLOW, &err);
        EXPECT(ok == !*texts[i][1], "case %zu: %s", i, err.msg);
        if (!ok) EXPECT(strstr(err.msg, texts[i][1]), "case %zu: %s", i, err.msg);
        if (ok)
            EXPECT(r.patch == 14 && r.merge == 2 && r.frames == 2 && r.min_pixels == 3136 && r.max_pixels == 12845056
                       && r.mean[2] == qwen.mean[2] && r.std[0] == qwen.std[0],
                   "case %zu: read wrongly", i);
    }
    unlink(path.data), rmdir(dir), buf_free(&path);
}

int main(void) {
    Mem m = { 0 };
    Err err = { "" };
    Buf text = { 0 };
    Json j;
    StFiles st;
    if (!file_read(&text, FIXTURE("vision/cases.json"), &err) || !json_parse(&j, text.data, text.n, &m, &err)
        || !st_open(&st, FIXTURE("vision/pixels.safetensors"), &m, &err))
        return printf("%s\n", err.msg), 1;
    sizes(json_get(&j, "sizes"));
    const Json *images = json_get(&j, "images");
    EXPECT(images->n == 21, "%zu pictures", images->n);
    for (size_t i = 0; i < images->n; i++) picture(&images->items[i], &st);
    frames();
    rules();
    st_close(&st), buf_free(&text), mem_free(&m);
    return test_end();
}
