/* webp.c - WebP by libwebp: lossy and lossless, with or without alpha. */
#include "image/image.h"

#include <webp/decode.h>

static const char *reason(VP8StatusCode s) {
    return s == VP8_STATUS_NOT_ENOUGH_DATA       ? "the file ends too early"
           : s == VP8_STATUS_UNSUPPORTED_FEATURE ? "it uses a feature that libwebp does not know"
           : s == VP8_STATUS_OUT_OF_MEMORY       ? "no memory for it"
                                                 : "its data make no sense";
}

bool webp_head(ImageHead *out, const uint8_t *bytes, size_t n, Err *err) {
    WebPBitstreamFeatures f;
    VP8StatusCode s = WebPGetFeatures(bytes, n, &f);
    if (s != VP8_STATUS_OK) return err_set(err, "a damaged WebP file: %s", reason(s));
    if (f.has_animation) return err_set(err, "an animated WebP: give its frames as pictures");
    out->h = f.height, out->w = f.width;
    return true;
}

bool webp_decode(Image *out, const uint8_t *bytes, size_t n, bool on_white, Err *err) {
    size_t pixels = (size_t)out->h * out->w;
    Mem tmp = { 0 };
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c)) return err_set(err, "the libwebp here is not the one hone was built with");
    VP8StatusCode s = WebPGetFeatures(bytes, n, &c.input);
    bool blend = on_white && c.input.has_alpha;
    uint8_t *to = blend ? mem_array(&tmp, pixels, 4) : out->rgb;
    c.output.colorspace = blend ? MODE_RGBA : MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA.rgba = to;
    c.output.u.RGBA.stride = out->w * (blend ? 4 : 3);
    c.output.u.RGBA.size = pixels * (blend ? 4 : 3);
    if (s == VP8_STATUS_OK) s = WebPDecode(bytes, n, &c);
    if (s != VP8_STATUS_OK) {
        mem_free(&tmp);
        return err_set(err, "a damaged WebP file: %s", reason(s));
    }
    for (size_t i = 0; i < pixels && blend; i++)
        for (int k = 0; k < 3; k++) out->rgb[3 * i + k] = over_white(to[4 * i + k], to[4 * i + 3]);
    mem_free(&tmp);
    return true;
}
