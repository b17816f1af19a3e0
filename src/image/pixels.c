/* pixels.c - sizes, values and patches; the resampling is in resize.c. */
#include "image/pixels.h"

#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

bool image_processor(ImageProcessor *out, const char *name) {
    static const char *const names[] = { "verl", "slow", "fast" };
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) return *out = (ImageProcessor)i, true;
    return false;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int64_t round_half_even(int64_t a, int64_t b) {
    int64_t q = a / b, r = a % b;
    return q + (2 * r > b || (2 * r == b && q % 2 == 1));
}

bool smart_resize(int *out_h, int *out_w, int h, int w, int factor, int64_t lo, int64_t hi, bool utils, Err *err) {
    int side = h > w ? h : w, other = h > w ? w : h;
    if ((double)side / other > 200) return err_set(err, "%d x %d: one side is more than 200 times the other", w, h);
    double f = factor;
    int64_t a = round_half_even(h, factor) * factor, b = round_half_even(w, factor) * factor;
    if (utils) a = a < factor ? factor : a, b = b < factor ? factor : b;
    if (a * b > hi) {
        double beta = sqrt((double)((int64_t)h * w) / (double)hi);
        a = (int64_t)floor(h / beta / f) * factor, b = (int64_t)floor(w / beta / f) * factor;
        if (!utils) a = a < factor ? factor : a, b = b < factor ? factor : b;
    } else if (a * b < lo) {
        double beta = sqrt((double)lo / (double)((int64_t)h * w));
        a = (int64_t)ceil(h * beta / f) * factor, b = (int64_t)ceil(w * beta / f) * factor;
    }
    if (a < factor || b < factor)
        return err_set(err, "%d x %d: too thin for the limit of %lld pixels", w, h, (long long)hi);
    *out_h = (int)a, *out_w = (int)b;
    return true;
}

enum { UTILS_MIN = 4 * 28 * 28, UTILS_MAX = 16384 * 28 * 28 }; /* qwen_vl_utils' own limits */

/* The road's first stop; only verl's has a second one (pixels_size). */
static bool first_size(int *a, int *b, int h, int w, const PixelsRules *r, Err *err) {
    int factor = r->patch * r->merge;
    if (r->processor == PIXELS_VERL && r->own_h)
        return smart_resize(a, b, r->own_h, r->own_w, factor, UTILS_MIN, UTILS_MAX, true, err);
    if (r->processor == PIXELS_VERL)
        return smart_resize(a, b, h, w, factor, r->own_min ? r->own_min : UTILS_MIN,
                            r->own_max ? r->own_max : UTILS_MAX, true, err);
    return smart_resize(a, b, h, w, factor, r->min_pixels, r->max_pixels, false, err);
}

bool pixels_size(int *out_h, int *out_w, int h, int w, const PixelsRules *r, Err *err) {
    TRY(first_size(out_h, out_w, h, w, r, err));
    if (r->processor != PIXELS_VERL) return true;
    return smart_resize(out_h, out_w, *out_h, *out_w, r->patch * r->merge, r->min_pixels, r->max_pixels, false, err);
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static bool three(const Json *j, const char *key, float out[3], Err *err) {
    const Json *a = json_get(j, key);
    if (!a || a->kind != JSON_ARRAY || a->n != 3) return err_set(err, "%s must be three numbers", key);
    for (int i = 0; i < 3; i++) {
        if (a->items[i].kind != JSON_INT && a->items[i].kind != JSON_REAL)
            return err_set(err, "%s must be three numbers", key);
        out[i] = (float)json_number(&a->items[i]);
    }
    return true;
}

static bool must_be(const Json *j, const char *key, double want, Err *err) {
    double x = want;
    TRY(json_real(j, key, &x, err));
    return x == want || err_set(err, "%s is %g: only %g is known", key, x, want);
}

static bool read_rules(PixelsRules *r, const Json *j, Err *err) {
    int64_t patch = 0, merge = 0, frames = 0, most = (int64_t)1 << 40;
    TRY(json_int_within(j, "patch_size", 1, 256, &patch, err) && json_int_within(j, "merge_size", 1, 16, &merge, err));
    TRY(json_int_within(j, "temporal_patch_size", 1, 16, &frames, err));
    /* 'size' holds numbers of pixels under the names of edges; min_pixels and max_pixels win over it */
    const Json *lo = json_get(j, "min_pixels") ? j : json_get(j, "size"),
               *hi = json_get(j, "max_pixels") ? j : json_get(j, "size");
    TRY(json_int_within(lo, lo == j ? "min_pixels" : "shortest_edge", 1, most, &r->min_pixels, err));
    TRY(json_int_within(hi, hi == j ? "max_pixels" : "longest_edge", r->min_pixels, most, &r->max_pixels, err));
    TRY(three(j, "image_mean", r->mean, err) && three(j, "image_std", r->std, err));
    for (int i = 0; i < 3; i++)
        if (!(r->std[i] > 0)) return err_set(err, "image_std must be above 0");
    TRY(must_be(j, "resample", 3, err));
    double factor = 1.0 / 255;
    TRY(json_real(j, "rescale_factor", &factor, err));
    if (fabs(factor - 1.0 / 255) > 1e-9) return err_set(err, "rescale_factor is %g: only 1/255 is known", factor);
    static const char *const done[] = { "do_resize", "do_rescale", "do_normalize", "do_convert_rgb" };
    for (size_t i = 0; i < COUNT(done); i++) {
        bool on = true;
        TRY(json_bool(j, done[i], &on, err));
        if (!on) return err_set(err, "%s is false: only true is known", done[i]);
    }
    r->patch = (int)patch, r->merge = (int)merge, r->frames = (int)frames;
    return true;
}

bool pixels_rules(PixelsRules *out, const char *model_dir, ImageProcessor processor, Err *err) {
    Buf path = { 0 }, text = { 0 };
    Mem mem = { 0 };
    Json j;
    *out = (PixelsRules){ .processor = processor };
    buf_printf(&path, "%s/preprocessor_config.json", model_dir);
    bool ok = file_read(&text, path.data, err)
              && ((json_parse(&j, text.data, text.n, &mem, err) && read_rules(out, &j, err))
                  || err_wrap(err, "%s", path.data));
    buf_free(&path), buf_free(&text), mem_free(&mem);
    return ok;
}

/* ---- values and patches ------------------------------------------------------------------------------------------ */

void pixels_table(float table[3][256], const PixelsRules *r) {
    for (int c = 0; c < 3; c++)
        for (int x = 0; x < 256; x++) {
            if (r->processor == PIXELS_FAST) table[c][x] = ((float)x - r->mean[c] * 255.0f) / (r->std[c] * 255.0f);
            else table[c][x] = ((float)(x * (1.0 / 255)) - r->mean[c]) / r->std[c];
        }
}

bool pixels_rows(uint8_t **rows, PixelsGrid *grid, const Image *in, int n, const PixelsRules *r, Mem *m, Err *err) {
    int h1, w1, h, w, p = r->patch, side = r->merge;
    TRY(first_size(&h1, &w1, in->h, in->w, r, err) && pixels_size(&h, &w, in->h, in->w, r, err));
    for (int i = 1; i < n; i++)
        if (in[i].h != in->h || in[i].w != in->w)
            return err_set(err, "frame %d is %d x %d, the first one %d x %d: the frames of a clip are of one size", i,
                           in[i].w, in[i].h, in->w, in->h);
    PixelsGrid g = *grid = (PixelsGrid){ (n + r->frames - 1) / r->frames, h / p, w / p };
    uint8_t *out = *rows = mem_array(m, (size_t)grid_rows(g), (size_t)pixels_row_bytes(r));
    Mem tmp = { 0 };
    Image *small = MEM_ARRAY(&tmp, Image, (size_t)n);
    for (int i = 0; i < n; i++) {
        pixels_resize(&small[i], &in[i], h1, w1, r->processor == PIXELS_FAST, &tmp);
        if (h1 != h || w1 != w) {
            Image first = small[i];
            pixels_resize(&small[i], &first, h, w, false, &tmp);
        }
    }
    /* order of rows: time, block row, block column, row in the block, column in it; within one: channel, frame, y, x */
    for (int t = 0; t < g.t; t++)
        for (int by = 0; by < g.h; by += side)
            for (int bx = 0; bx < g.w; bx += side)
                for (int k = 0; k < side * side; k++) {
                    int y0 = (by + k / side) * p, x0 = (bx + k % side) * p;
                    for (int c = 0; c < 3; c++)
                        for (int f = 0; f < r->frames; f++) {
                            int at = t * r->frames + f, page = p * p;
                            if (f && at >= n) { /* a frame again */
                                memcpy(out, out - page, (size_t)page);
                                out += page;
                                continue;
                            }
                            const uint8_t *from = small[at < n ? at : n - 1].rgb + c;
                            for (int y = 0; y < p; y++) {
                                const uint8_t *px = from + ((size_t)(y0 + y) * w + x0) * 3;
                                for (int x = 0; x < p; x++) *out++ = px[3 * x];
                            }
                        }
                }
    mem_free(&tmp);
    return true;
}
