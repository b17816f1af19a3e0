/* fuzz_jpeg.c - any bytes as a JPEG file (image_once.h).  Seeds: tests/data/vision. */
#include "image_once.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) { return image_once(IMAGE_JPEG, data, n); }
