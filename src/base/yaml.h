/* yaml.h - a YAML document read as the JSON value it stands for (configurations, cluster files).
 *
 * JSON is YAML, so one reader takes both.  The core schema: plain true/false, null, whole and real numbers are what they
 * look like, anything quoted is a string.  Anchors, aliases, tags and a second document are refused, as are duplicate
 * keys; errors name the line. */
#ifndef BASE_YAML_H
#define BASE_YAML_H

#include "base/json.h"

/* An empty text gives an empty object. */
bool yaml_parse(Json *out, const char *text, size_t n, Mem *mem, Err *err);

/* What a plain scalar means: for values given on a command line ("trainer.lr=1e-6"). */
Json yaml_scalar(const char *text, size_t n, Mem *mem);

#endif
