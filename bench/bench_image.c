/* bench_image.c - from a file's bytes to rows of pixels (decode, resize, patches) on one thread, in processor time;
 * bench/peers/image_path.py is the same by Pillow and transformers' fast processor.
 *   build/bench/bench_image FILE [verl|slow|fast] [SECONDS] */
#include "base/file.h"
#include "image/pixels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    PixelsRules r = { .patch = 14,
                      .merge = 2,
                      .frames = 2,
                      .min_pixels = 3136,
                      .max_pixels = 12845056,
                      .mean = { 0.48145466f, 0.4578275f, 0.40821073f },
                      .std = { 0.26862954f, 0.26130258f, 0.27577711f } };
    Err err;
    Buf file = { 0 };
    if (argc < 2 || !image_processor(&r.processor, argc > 2 ? argv[2] : "fast") || !file_read(&file, argv[1], &err))
        return printf("usage: bench_image FILE [verl|slow|fast] [SECONDS]\n"), 1;
    double for_s = argc > 3 ? atof(argv[3]) : 3, t0 = cpu(), decode = 0;
    int n = 0;
    PixelsGrid g = { 0 };
    for (; cpu() - t0 < for_s || n < 3; n++) {
        Mem m = { 0 };
        Image img;
        uint8_t *rows;
        double t = cpu();
        if (!image_decode(&img, argv[1], file.data, file.n, false, &m, &err)) return printf("%s\n", err.msg), 1;
        decode += cpu() - t;
        if (!pixels_rows(&rows, &g, &img, 1, &r, &m, &err)) return printf("%s\n", err.msg), 1;
        mem_free(&m);
    }
    double each = (cpu() - t0) / n;
    printf("%s: %.2f ms a picture (decode %.2f), grid %d x %d, %d times\n", argv[1], 1e3 * each, 1e3 * decode / n, g.h,
           g.w, n);
    buf_free(&file);
    return 0;
}
