/* jpeg.c - JPEG by libjpeg-turbo with its defaults (islow IDCT, fancy upsampling), which are Pillow's.  Four inks are
 * taken as Adobe writes them, inverted, which is what Pillow does whether Adobe's marker is there or not. */
#include "image/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

enum { MOST_SCANS = 200 }; /* a progressive file of a few kB can ask for thousands of passes over the whole picture */

typedef struct {
    struct jpeg_error_mgr jerr;
    struct jpeg_source_mgr src;
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct c;
    Mem tmp;
    jmp_buf out;
    char msg[JMSG_LENGTH_MAX];
} Reader;

static void fail(j_common_ptr c) {
    Reader *r = c->client_data;
    c->err->format_message(c, r->msg);
    longjmp(r->out, 1);
}

/* Warnings that mean pixels are lost end it; what a careless writer leaves around them does not. */
static void say(j_common_ptr c, int level) {
    if (level >= 0) return;
    int k = c->err->msg_code;
    if (k == JWRN_HIT_MARKER || k == JWRN_HUFF_BAD_CODE || k == JWRN_JPEG_EOF || k == JWRN_MUST_RESYNC
        || k == JWRN_NOT_SEQUENTIAL || k == JWRN_BOGUS_PROGRESSION)
        fail(c);
}

static void quiet(j_common_ptr c) { (void)c; }
static void nothing(j_decompress_ptr c) { (void)c; }

static boolean ended(j_decompress_ptr c) {
    ERREXIT(c, JERR_INPUT_EOF);
    return FALSE;
}

static void skip(j_decompress_ptr c, long n) {
    if (n <= 0) return;
    if ((size_t)n > c->src->bytes_in_buffer) ERREXIT(c, JERR_INPUT_EOF);
    c->src->next_input_byte += n;
    c->src->bytes_in_buffer -= (size_t)n;
}

static void scans(j_common_ptr c) {
    Reader *r = c->client_data;
    if (r->c.input_scan_number <= MOST_SCANS) return;
    snprintf(r->msg, sizeof r->msg, "more than %d scans", MOST_SCANS);
    longjmp(r->out, 1);
}

static void begin(Reader *r) {
    memset(r, 0, sizeof *r);
    r->c.err = jpeg_std_error(&r->jerr);
    r->jerr.error_exit = fail, r->jerr.emit_message = say, r->jerr.output_message = quiet;
    r->c.client_data = r;
}

static void open_bytes(Reader *r, const uint8_t *bytes, size_t n) {
    jpeg_create_decompress(&r->c);
    r->src = (struct jpeg_source_mgr){ bytes, n, nothing, ended, skip, jpeg_resync_to_restart, nothing };
    r->c.src = &r->src;
    r->progress.progress_monitor = scans;
    r->c.progress = &r->progress;
    jpeg_read_header(&r->c, TRUE);
}

static bool failed(Reader *r, Err *err) {
    jpeg_destroy_decompress(&r->c);
    mem_free(&r->tmp);
    return err_set(err, "a damaged JPEG file: %s", r->msg);
}

bool jpeg_head(ImageHead *out, const uint8_t *bytes, size_t n, Err *err) {
    Reader r;
    begin(&r);
    if (setjmp(r.out)) return failed(&r, err);
    open_bytes(&r, bytes, n);
    out->h = (int)r.c.image_height, out->w = (int)r.c.image_width;
    int inks = r.c.num_components;
    jpeg_destroy_decompress(&r.c);
    return inks == 1 || inks == 3 || inks == 4 || err_set(err, "a JPEG file with %d colour components", inks);
}

bool jpeg_decode(Image *out, const uint8_t *bytes, size_t n, Err *err) {
    Reader r;
    begin(&r);
    if (setjmp(r.out)) return failed(&r, err);
    open_bytes(&r, bytes, n);
    int inks = r.c.num_components;
    r.c.out_color_space = inks == 1 ? JCS_GRAYSCALE : inks == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&r.c);
    uint8_t *row = inks == 3 ? NULL : mem_array(&r.tmp, (size_t)out->w, 4);
    for (int y = 0; y < out->h; y++) {
        uint8_t *rgb = out->rgb + (size_t)y * out->w * 3, *to = inks == 3 ? rgb : row;
        jpeg_read_scanlines(&r.c, &to, 1);
        for (int x = 0; x < out->w && inks == 1; x++) memset(rgb + 3 * x, row[x], 3);
        for (int x = 0; x < out->w && inks == 4;
             x++) /* white minus ink, scaled by what black leaves; the inks are inverted */
            for (int c = 0, left = row[4 * x + 3]; c < 3; c++) {
                int v = left - mul_255(255 - row[4 * x + c], left);
                rgb[3 * x + c] = (uint8_t)(v < 0 ? 0 : v);
            }
    }
    jpeg_finish_decompress(&r.c);
    jpeg_destroy_decompress(&r.c);
    mem_free(&r.tmp);
    return true;
}
