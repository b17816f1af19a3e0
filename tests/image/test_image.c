/* test_image.c - what cases.json has no file of (WebP, interlaced, 16-bit colours, a transparent colour)
 * against Pillow's pixels; and files that must be refused in one line: cut short at every length, bits
 * flipped, bombs, animations, other kinds. */
#include "base/file.h"
#include "image/image.h"
#include "test.h"

static void read_fixture(Buf *b, const char *name) {
    Err err;
    Buf path = { 0 };
    buf_printf(&path, FIXTURE("vision/%s"), name);
    buf_clear(b);
    if (!file_read(b, path.data, &err)) die("%s", err.msg);
    buf_free(&path);
}

/* 'name' decoded must be the pixels of the PNG 'want', which Pillow wrote. */
static void same(const char *name, const char *want, bool on_white) {
    Mem m = { 0 };
    Err err = { "" };
    Buf a = { 0 }, b = { 0 };
    Image x = { 0 }, y = { 0 };
    read_fixture(&a, name), read_fixture(&b, want);
    bool ok =
        image_decode(&x, name, a.data, a.n, on_white, &m, &err) && image_decode(&y, want, b.data, b.n, false, &m, &err);
    EXPECT(ok && x.h == y.h && x.w == y.w && !memcmp(x.rgb, y.rgb, (size_t)x.h * x.w * 3),
           "%s: not the pixels of %s %s", name, want, err.msg);
    buf_free(&a), buf_free(&b), mem_free(&m);
}

static void refused(const char *name, const void *bytes, size_t n, const char *want) {
    Mem m = { .limit = 1 << 20 }; /* a limit that a bomb's pixels would break: die, not an error */
    Err err = { "" };
    Image x;
    ImageHead h;
    bool ok = image_decode(&x, name, bytes, n, false, &m, &err);
    EXPECT(!ok && strstr(err.msg, want) && strstr(err.msg, name) && !strchr(err.msg, '\n'), "%s: %s", name,
           ok ? "decoded" : err.msg);
    if (image_head(&h, name, bytes, n, &err))
        EXPECT(h.h > 0 && h.w > 0 && (int64_t)h.h * h.w <= IMAGE_MOST_PIXELS, "%s: size", name);
    mem_free(&m);
}

static void cut_short(const char *name) {
    Buf b = { 0 };
    read_fixture(&b, name);
    size_t tail = strstr(name, ".png") ? 12 : 2; /* without its closing chunk a picture may be complete */
    for (size_t n = 0; n + tail < b.n; n += n < 64 ? 1 : 97) {
        Mem m = { 0 };
        refused(name, mem_copy(&m, b.data, n), n, "");
        mem_free(&m);
    }
    buf_free(&b);
}

/* Any bit may be flipped: the picture is refused in one line or has its size still. */
static void flipped(const char *name) {
    Buf b = { 0 };
    read_fixture(&b, name);
    for (uint32_t k = 0; k < 400; k++) {
        Mem m = { 0 };
        Err err = { "" };
        Image x;
        uint8_t *c = mem_copy(&m, b.data, b.n);
        uint64_t r = (k + 1) * 0x9e3779b97f4a7c15u;
        c[(r >> 20) % b.n] ^= (uint8_t)(1 << (k % 8));
        bool ok = image_decode(&x, name, c, b.n, k % 2, &m, &err);
        EXPECT(ok ? x.h > 0 && x.w > 0 : err.msg[0] && !strchr(err.msg, '\n'), "%s, flip %u: %s", name, k, err.msg);
        mem_free(&m);
    }
    buf_free(&b);
}

int main(void) {
    same("lossy.webp", "lossy.webp.png", false);
    same("lossless.webp", "lossless.webp.png", false);
    same("alpha.webp", "alpha.webp.png", false);
    same("alpha.webp", "alpha.white.png", true);
    same("alpha_lossless.webp", "alpha_lossless.webp.png", false);
    same("alpha_lossless.webp", "alpha_lossless.white.png", true);
    same("interlaced.png", "interlaced.png.png", false);
    same("interlaced.png", "photo.png", false);
    same("rgb16.png", "rgb16.png.png", false);
    same("rgba16.png", "rgba16.png.png", false);
    same("gray2.png", "gray2.png.png", false);
    same("keyed.png", "keyed.png.png", true);

    static const char *const files[] = { "photo.png",       "interlaced.png", "palette.png", "jpeg420.jpg",
                                         "progressive.jpg", "cmyk.jpg",       "lossy.webp",  "alpha_lossless.webp" };
    for (size_t i = 0; i < COUNT(files); i++) cut_short(files[i]), flipped(files[i]);

    Buf b = { 0 };
    read_fixture(&b, "animated.webp"), refused("animated.webp", b.data, b.n, "an animated WebP: give its frames");
    read_fixture(&b, "animated.apng"), refused("animated.apng", b.data, b.n, "an animated PNG: give its frames");
    read_fixture(&b, "drawn.gif"), refused("drawn.gif", b.data, b.n, "this is a GIF; pictures are read from");
    refused("clip.mp4",
            "\0\0\0\x20"
            "ftypisom",
            12, "this is a video");
    refused("page.png", "<html><body>404", 15, "a web page");
    refused("empty.jpg", "", 0, "the file is empty");
    refused("noise.jpg", "nothing at all", 14, "not a picture");
    /* bombs: a few bytes that say 65,535 x 65,535 */
    read_fixture(&b, "tiny.png");
    memcpy(b.data + 16, "\0\0\xff\xff\0\0\xff\xff", 8),
        refused("bomb.png", b.data, b.n, "65535 x 65535 pixels: a picture may have");
    memcpy(b.data + 16, "\0\0\x80\0\0\0\x80\0", 8), refused("bomb2.png", b.data, b.n, "32768 x 32768 pixels");
    memcpy(b.data + 16, "\xff\xff\xff\xff\0\0\0\1", 8), refused("bomb3.png", b.data, b.n, "4294967295 x 1");
    memcpy(b.data + 16, "\0\0\0\0\0\0\0\0", 8), refused("none.png", b.data, b.n, "its size is 0 x 0");
    read_fixture(&b, "jpeg420.jpg");
    for (size_t i = 0; i + 9 < b.n; i++)
        if (!memcmp(b.data + i, "\xff\xc0", 2)) memcpy(b.data + i + 5, "\xff\xff\xff\xff", 4);
    refused("bomb.jpg", b.data, b.n, "");
    read_fixture(&b, "lossless.webp");
    memcpy(b.data + 21, "\xff\xff\xff\x0f", 4), refused("bomb.webp", b.data, b.n, "16384 x 16384 pixels");
    buf_free(&b);
    return test_end();
}
