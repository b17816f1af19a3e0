/* pictures.c - finds the bytes of a picture (path, base64, Parquet), reads them as the model
 * wants them, makes room for its tokens. */
#include "task/pictures.h"

#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool picture_reader_open(PictureReader *r, const ModelDesc *m, const char *processor, Err *err) {
    ImageProcessor way;
    Err none;
    *r = (PictureReader){ .token = (int32_t)m->d.vis.image_token, .clip_token = (int32_t)m->d.vis.video_token };
    if (!image_processor(&way, processor))
        return err_set(err, "pictures are prepared as verl, slow or fast does it, not '%s'", processor);
    if (!m->d.vis.layers) snprintf(r->why, sizeof r->why, "%s models take no pictures", m->arch->name);
    else if (!pixels_rules(&r->rules, m->dir, way, &none)) snprintf(r->why, sizeof r->why, "%s", none.msg);
    else if (r->rules.patch != m->d.vis.patch || r->rules.merge != m->d.vis.merge || r->rules.frames != m->d.vis.frames)
        snprintf(r->why, sizeof r->why, "preprocessor_config.json and config.json disagree about patches");
    else r->takes = true;
    if (r->takes) pixels_table(r->table, &r->rules);
    return true;
}

/* ---- where the bytes are */

static bool from_base64(Buf *out, const char *s, size_t n, Err *err) {
    uint32_t bits = 0;
    int have = 0, pad = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '\n' || c == '\r') continue;
        int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+' || c == '-' ? 62
                : c == '/' || c == '_' ? 63
                                       : -1;
        if (c == '=' && ++pad <= 2) continue;
        if (v < 0 || pad) return err_set(err, "a picture in base64 that is none, at character %zu", i);
        bits = bits << 6 | (uint32_t)v;
        if (++have == 4) {
            char three[3] = { (char)(bits >> 16), (char)(bits >> 8), (char)bits };
            buf_put(out, three, 3);
            have = 0, bits = 0;
        }
    }
    if (have == 1) return err_set(err, "a picture in base64 that ends too early");
    if (have == 2) buf_putc(out, (char)(bits >> 4));
    if (have == 3) buf_putc(out, (char)(bits >> 10)), buf_putc(out, (char)(bits >> 2));
    return true;
}

static const char *full_path(const char *path, const char *folder, Mem *mem) {
    if (!strncmp(path, "file://", 7)) path += 7;
    return folder && path[0] != '/' ? mem_printf(mem, "%s/%s", folder[0] ? folder : ".", path) : path;
}

static bool from_path(Buf *out, const char *path, const char *folder, Err *err) {
    Mem mem = { 0 };
    char real[PATH_MAX], top[PATH_MAX];
    const char *full = full_path(path, folder, &mem);
    bool ok = true;
    if (folder) {
        size_t n = realpath(folder[0] ? folder : ".", top) ? strlen(top) : 0;
        if (!realpath(full, real)) ok = err_set(err, "%s: there is no such picture", full);
        else if (strncmp(real, top, n) || (n > 1 && real[n] != '/'))
            ok = err_set(err, "%s: the picture lies outside of %s, the folder of the file that names it", full, top);
    }
    ok = ok && file_read(out, full, err);
    mem_free(&mem);
    return ok;
}

static bool bytes_of(Buf *out, const char **name, const Json *said, const char *folder, int depth, Err *err);

static bool from_text(Buf *out, const char **name, const Json *s, const char *folder, Err *err) {
    *name = s->n > 60 || s->flag ? "a picture" : s->str;
    if (s->flag) return buf_put(out, s->str, s->n), true; /* bytes of a Parquet file */
    if (!strncmp(s->str, "data:", 5)) {
        const char *comma = strchr(s->str, ',');
        if (!comma || comma - s->str < 7 || strncmp(comma - 7, ";base64", 7))
            return err_set(err, "a data: address must hold base64: data:image/png;base64,...");
        return from_base64(out, comma + 1, s->n - (size_t)(comma + 1 - s->str), err);
    }
    if (strstr(s->str, "://") && strncmp(s->str, "file://", 7))
        return err_set(err, "%.80s: pictures are not fetched from a network: give a file, or base64", s->str);
    *name = s->str;
    return from_path(out, s->str, folder, err);
}

static bool bytes_of(Buf *out, const char **name, const Json *said, const char *folder, int depth, Err *err) {
    static const char *const keys[] = { "bytes", "base64", "image", "image_url", "url", "path" };
    if (said->kind == JSON_STRING) return from_text(out, name, said, folder, err);
    if (said->kind != JSON_OBJECT || depth > 2)
        return err_set(err, "a picture is said by a path, bytes or base64, not by %s", json_kind_name(said->kind));
    for (size_t i = 0; i < COUNT(keys); i++) {
        const Json *v = json_get(said, keys[i]);
        if (!v || v->kind == JSON_NULL) continue;
        if (i == 1 && v->kind == JSON_STRING) return *name = "a picture", from_base64(out, v->str, v->n, err);
        return bytes_of(out, name, v, folder, depth + 1, err);
    }
    return err_set(err, "a picture without bytes, path or address");
}

void picture_files(const Json *said, const char *folder, PictureFile *each, void *user) {
    static const char *const keys[] = { "image", "image_url", "url", "path", "video" };
    for (size_t i = 0; said->kind == JSON_ARRAY && i < said->n; i++) picture_files(&said->items[i], folder, each, user);
    if (said->kind == JSON_OBJECT && (json_get(said, "bytes") || json_get(said, "base64"))) return;
    for (size_t i = 0; i < COUNT(keys); i++) {
        const Json *v = json_get(said, keys[i]);
        if (v) picture_files(v, folder, each, user);
    }
    if (said->kind != JSON_STRING || said->flag || !strncmp(said->str, "data:", 5)) return;
    if (strstr(said->str, "://") && strncmp(said->str, "file://", 7)) return;
    Mem mem = { 0 };
    each(user, full_path(said->str, folder, &mem));
    mem_free(&mem);
}

/* ---- one picture */

/* What a picture says of its own size (min_pixels and the like), beside its bytes or around them. */
static bool own_limits(PixelsRules *r, const Json *said, int depth, Err *err) {
    static const struct {
        const char *key;
        int64_t most;
    } keys[] = { { "min_pixels", IMAGE_MOST_PIXELS },
                 { "max_pixels", IMAGE_MOST_PIXELS },
                 { "resized_height", IMAGE_MOST_SIDE },
                 { "resized_width", IMAGE_MOST_SIDE } };
    int64_t x[COUNT(keys)] = { r->own_min, r->own_max, r->own_h, r->own_w };
    if (said->kind != JSON_OBJECT || depth > 2) return true;
    for (size_t i = 0; i < COUNT(keys); i++) {
        const Json *v = json_get(said, keys[i].key);
        if (!v || v->kind == JSON_NULL) continue;
        if (r->processor != PIXELS_VERL)
            return err_set(err, "a picture with %s of its own: only verl's way of preparing knows that", keys[i].key);
        if (v->kind != JSON_INT || v->integer < 1 || v->integer > keys[i].most)
            return err_set(err, "%s must be a whole number from 1 to %lld", keys[i].key, (long long)keys[i].most);
        x[i] = v->integer;
    }
    if (x[0] && x[1] && x[0] > x[1]) return err_set(err, "min_pixels is more than max_pixels");
    if (!x[2] != !x[3]) return err_set(err, "resized_height and resized_width come together");
    r->own_min = x[0], r->own_max = x[1], r->own_h = (int)x[2], r->own_w = (int)x[3];
    const Json *in = json_get(said, "image") ? json_get(said, "image") : json_get(said, "image_url");
    return !in || own_limits(r, in, depth + 1, err);
}

static bool grid_of(Picture *out, const PixelsRules *r, const char *name, const Buf *file, Err *err) {
    ImageHead head;
    int h, w;
    TRY(image_head(&head, name, file->data, file->n, err));
    TRY(pixels_size(&h, &w, head.h, head.w, r, err) || err_wrap(err, "%s", name));
    out->grid = (PixelsGrid){ 1, h / r->patch, w / r->patch };
    return true;
}

bool picture_read(Picture *out, const PictureReader *r, const Json *said, const char *folder, bool pixels, Mem *mem,
                  Err *err) {
    Buf file = { 0 };
    const char *name = "a picture";
    *out = (Picture){ .table = r->table };
    if (!r->takes) return err_set(err, "a picture, and %s", r->why);
    PixelsRules rules = r->rules;
    bool ok = own_limits(&rules, said, 0, err) && bytes_of(&file, &name, said, folder, 0, err)
              && grid_of(out, &rules, name, &file, err);
    if (ok && pixels) {
        Mem tmp = { 0 };
        Image image;
        uint8_t *rows;
        ok = image_decode(&image, name, file.data, file.n, false, &tmp, err)
             && (pixels_rows(&rows, &out->grid, &image, 1, &rules, mem, err) || err_wrap(err, "%s", name));
        if (ok) out->bytes = rows, picture_name(out, (size_t)pixels_row_bytes(&r->rules));
        mem_free(&tmp);
    }
    buf_free(&file);
    return ok;
}

/* ---- a clip: frames of one size, made as one picture */

static bool frames_per_second(double *fps, const Json *part, Err *err) {
    static const char *const others[] = { "nframes",      "min_frames",  "max_frames",
                                          "total_pixels", "video_start", "video_end" };
    for (size_t i = 0; i < COUNT(others); i++)
        if (json_get(part, others[i]) && json_get(part, others[i])->kind != JSON_NULL)
            return err_set(err, "a clip with %s: its frames are taken as they are given", others[i]);
    const Json *v = json_get(part, "fps");
    if (!v || v->kind == JSON_NULL) return true;
    *fps = v->kind == JSON_INT || v->kind == JSON_REAL ? json_number(v) : 0;
    return (*fps >= 1e-3 && *fps <= 1e3) || err_set(err, "a clip's fps must be a number from 0.001 to 1000");
}

enum { CLIP_PICTURES = 8 }; /* a clip's frames lie in memory together: 2.1 GB */

static bool clip_read(Picture *out, const PictureReader *r, const Json *part, const char *folder, bool pixels, Mem *mem,
                      Err *err) {
    const Json *frames = json_get(part, "video");
    double fps = 2;
    if (!r->takes) return err_set(err, "a clip, and %s", r->why);
    if (!frames || frames->kind != JSON_ARRAY || !frames->n)
        return err_set(err, "a clip must be a list of frames (\"video\": [picture, ...]): films are not decoded here");
    if (frames->n > FRAMES_MOST) return err_set(err, "a clip of %zu frames; %d are the most", frames->n, FRAMES_MOST);
    TRY(frames_per_second(&fps, part, err));
    Mem tmp = { 0 };
    Image *image = MEM_ARRAY(&tmp, Image, frames->n);
    Picture one;
    bool ok = true;
    int h = 0, w = 0;
    for (size_t i = 0; ok && i < frames->n; i++) {
        Buf file = { 0 };
        const char *name = "a frame";
        ImageHead head;
        PixelsRules own = r->rules;
        ok = own_limits(&own, &frames->items[i], 0, err)
             && ((!own.own_min && !own.own_max && !own.own_h) || err_set(err, "a frame with a size of its own"))
             && bytes_of(&file, &name, &frames->items[i], folder, 0, err)
             && image_head(&head, name, file.data, file.n, err) && grid_of(&one, &r->rules, name, &file, err);
        if (ok && i && (head.h != h || head.w != w))
            ok = err_set(err, "frame %zu is %d x %d, the first %d x %d", i + 1, head.w, head.h, w, h);
        if (ok) h = head.h, w = head.w;
        if (ok && !i && (double)h * w * (double)frames->n > CLIP_PICTURES * (double)IMAGE_MOST_PIXELS)
            ok =
                err_set(err, "a clip of %zu frames of %d x %d; all together may have the pixels of %d largest pictures",
                        frames->n, w, h, CLIP_PICTURES);
        ok = ok && (!pixels || image_decode(&image[i], name, file.data, file.n, false, &tmp, err));
        buf_free(&file);
    }
    int each = r->rules.frames, n = (int)frames->n;
    *out = (Picture){ .table = r->table, .clip = true, .seconds = each / fps };
    if (ok) out->grid = (PixelsGrid){ (n + each - 1) / each, one.grid.h, one.grid.w };
    if (ok && pixels) {
        uint8_t *rows;
        ok = pixels_rows(&rows, &out->grid, image, n, &r->rules, mem, err);
        if (ok) out->bytes = rows, picture_name(out, (size_t)pixels_row_bytes(&r->rules));
    }
    mem_free(&tmp);
    return ok;
}

static bool is_sound(const Json *part) {
    const Json *type = json_get(part, "type");
    return json_is_str(type, "audio") || json_is_str(type, "input_audio") || json_get(part, "audio");
}
static bool is_clip(const Json *part) {
    const Json *type = json_get(part, "type");
    return json_is_str(type, "video") || json_is_str(type, "video_url") || json_get(part, "video");
}
static bool is_picture(const Json *part) {
    const Json *type = json_get(part, "type");
    return json_is_str(type, "image") || json_is_str(type, "image_url") || json_is_str(type, "input_image")
           || json_get(part, "image") || json_get(part, "image_url");
}

bool pictures_of(Picture *pics, int *n, const PictureReader *r, const Json *messages, const char *folder, bool pixels,
                 Mem *mem, Err *err) {
    *n = 0;
    for (size_t i = 0; messages && messages->kind == JSON_ARRAY && i < messages->n; i++) {
        const Json *content = json_get(&messages->items[i], "content");
        for (size_t k = 0; content && content->kind == JSON_ARRAY && k < content->n; k++) {
            const Json *part = &content->items[k];
            bool clip = is_clip(part);
            if (is_sound(part)) return err_set(err, "message %zu: sound is not taken here, only pictures", i);
            if (!clip && !is_picture(part)) continue;
            if (*n == PICTURES_MOST) return err_set(err, "more than %d pictures in one prompt", PICTURES_MOST);
            bool ok = (clip ? clip_read : picture_read)(&pics[*n], r, part, folder, pixels, mem, err);
            TRY(ok || err_wrap(err, clip ? "clip %d" : "picture %d", *n + 1));
            ++*n;
        }
    }
    return true;
}

static bool is_place(const PictureReader *r, int32_t id) {
    return (r->token && id == r->token) || (r->clip_token && id == r->clip_token);
}

bool pictures_place(Spans *out, TokIds *ids, size_t from, const Picture *pics, int n, const PictureReader *r, Mem *mem,
                    Err *err) {
    size_t places = 0, more = 0;
    for (size_t i = from; i < ids->n; i++) places += is_place(r, ids->at[i]);
    *out = (Spans){ 0 };
    if (!r->takes) return true; /* the id means nothing */
    if (places != (size_t)n)
        return err_set(err, "the prompt has %zu places for pictures, and there are %d pictures", places, n);
    if (!n) return true;
    for (int k = 0; k < n; k++) more += (size_t)grid_tokens(pics[k].grid, r->rules.merge) - 1;
    for (size_t i = 0; i < more; i++) VEC_PUSH(*ids, 0);
    RowSpan *at = MEM_ARRAY(mem, RowSpan, (size_t)n);
    *out = (Spans){ at, n };
    Picture *own = mem_copy(mem, pics, (size_t)n * sizeof *pics);
    for (size_t to = ids->n, i = ids->n - more; i-- > from;) { /* from the end, so that nothing is written over */
        int32_t id = ids->at[i];
        int tokens = is_place(r, id) ? (int)grid_tokens(pics[--n].grid, r->rules.merge) : 1;
        if (is_place(r, id) && pics[n].clip != (id == r->clip_token))
            return err_set(err, "place %d of the prompt is a %s's, and a %s is given for it", n + 1,
                           id == r->clip_token ? "clip" : "picture", pics[n].clip ? "clip" : "picture");
        for (int k = 0; k < tokens; k++) ids->at[--to] = id;
        if (is_place(r, id)) at[n] = (RowSpan){ &own[n], (int)(to - from) };
    }
    return true;
}
