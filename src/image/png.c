/* png.c - PNG by libpng, to what Pillow makes of it: 16-bit colours lose their low byte, 16-bit grey is cut at 255
 * (which is a fault there, kept because models were fed so; the head says it), tRNS and gAMA are ignored. */
#include "image/image.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* All that the way out of an error needs lies here, not in variables that longjmp may forget. */
typedef struct {
    const uint8_t *at;
    size_t left;
    png_structp png;
    png_infop info;
    Mem tmp;
    jmp_buf out;
    char msg[160];
} Reader;

static void end(Reader *r) {
    png_destroy_read_struct(&r->png, &r->info, NULL);
    mem_free(&r->tmp);
}

static void give(png_structp p, png_bytep to, size_t n) {
    Reader *r = png_get_io_ptr(p);
    if (n > r->left) png_error(p, "the file ends too early");
    memcpy(to, r->at, n);
    r->at += n, r->left -= n;
}

static void fail(png_structp p, png_const_charp msg) {
    Reader *r = png_get_error_ptr(p);
    snprintf(r->msg, sizeof r->msg, "%s", msg);
    longjmp(r->out, 1);
}

static void quiet(png_structp p, png_const_charp msg) { (void)p, (void)msg; }

static uint32_t be32(const uint8_t *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* The header stands at a fixed place; an animation says so (acTL) before its data. */
bool png_head(ImageHead *out, const uint8_t *b, size_t n, Err *err) {
    if (n < 33 || memcmp(b + 12, "IHDR", 4)) return err_set(err, "a PNG file that ends in its header");
    uint32_t w = be32(b + 16), h = be32(b + 20);
    if (w > INT32_MAX || h > INT32_MAX) return err_set(err, "a PNG file whose size is %u x %u", w, h);
    out->w = (int)w, out->h = (int)h;
    if (b[24] == 16 && b[25] == 0) out->note = "16-bit grey: values above 255 are white, as Pillow converts them";
    for (size_t at = 8; at + 8 <= n && memcmp(b + at + 4, "IDAT", 4);) {
        if (!memcmp(b + at + 4, "acTL", 4)) return err_set(err, "an animated PNG: give its frames as pictures");
        size_t step = (size_t)be32(b + at) + 12;
        if (step > n - at) break;
        at += step;
    }
    return true;
}

/* One row as libpng gives it (1, 2, 3 or 4 channels of 8 bits, or 16-bit grey) -> RGB. */
static void to_rgb(uint8_t *rgb, const uint8_t *row, int w, int channels, bool grey16, bool on_white) {
    for (int x = 0; x < w; x++, rgb += 3) {
        const uint8_t *p = row + (size_t)x * (grey16 ? 2 : channels);
        if (grey16) rgb[0] = rgb[1] = rgb[2] = p[0] ? 255 : p[1];
        else if (channels < 3) rgb[0] = rgb[1] = rgb[2] = p[0]; /* grey with alpha goes through convert on both roads */
        else
            for (int c = 0; c < 3; c++) rgb[c] = channels == 4 && on_white ? over_white(p[c], p[3]) : p[c];
    }
}

bool png_decode(Image *out, const uint8_t *bytes, size_t n, bool on_white, Err *err) {
    Reader *r = &(Reader){ bytes, n, .msg = "" };
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, fail, quiet);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info) die_memory(0);
    if (setjmp(r->out)) {
        end(r);
        return err_set(err, "a damaged PNG file: %s", r->msg);
    }
    png_structp p = r->png;
    png_set_read_fn(p, r, give);
    png_set_user_limits(p, IMAGE_MOST_SIDE, IMAGE_MOST_SIDE);
    png_set_chunk_malloc_max(p, 8 << 20);
    png_set_chunk_cache_max(p, 64);
    static const png_byte ignored[] = "iCCP\0iTXt\0tEXt\0zTXt\0eXIf"; /* not read, so not unpacked either */
    png_set_keep_unknown_chunks(p, PNG_HANDLE_CHUNK_NEVER, ignored, 5);
    png_read_info(p, r->info);
    int depth = png_get_bit_depth(p, r->info), type = png_get_color_type(p, r->info);
    bool grey16 = depth == 16 && type == PNG_COLOR_TYPE_GRAY;
    if (png_get_image_width(p, r->info) != (png_uint_32)out->w
        || png_get_image_height(p, r->info) != (png_uint_32)out->h)
        png_error(p, "two headers");
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(p);
    if (type == PNG_COLOR_TYPE_PALETTE && png_get_valid(p, r->info, PNG_INFO_tRNS)) png_set_strip_alpha(p);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(p);
    if (depth == 16 && !grey16) png_set_strip_16(p);
    int passes = png_set_interlace_handling(p);
    png_read_update_info(p, r->info);
    int channels = png_get_channels(p, r->info);
    size_t row = png_get_rowbytes(p, r->info);
    /* interlaced, every pass needs the rows of the one before; otherwise one row is enough */
    uint8_t *rows = mem_array(&r->tmp, passes > 1 ? (size_t)out->h : 1, row);
    for (int k = 0; k < passes; k++)
        for (int y = 0; y < out->h; y++) {
            uint8_t *line = rows + (passes > 1 ? (size_t)y * row : 0);
            png_read_row(p, line, NULL);
            if (k == passes - 1) to_rgb(out->rgb + (size_t)y * out->w * 3, line, out->w, channels, grey16, on_white);
        }
    png_read_end(p, NULL);
    end(r);
    return true;
}
