/* yaml.h - YAML as hone reads it everywhere (runs, recipes, clusters): one document's tree,
 * with anchors, aliases and merge keys (<<) done.
 *
 * JSON is YAML, so one reader takes both.  The text is distrusted: at most YAML_MOST_VALUES values (what an alias or a
 * merge brings is counted each time), YAML_MOST_DEEP levels and YAML_MOST_BYTES bytes; tags, a second document and
 * duplicate keys are refused.  Errors name the line. */
#ifndef BASE_YAML_H
#define BASE_YAML_H

#include "base/json.h"

enum { YAML_MOST_VALUES = 100000, YAML_MOST_DEEP = 64, YAML_MOST_BYTES = 16 << 20 };

typedef enum { YAML_TEXT, YAML_LIST, YAML_MAP } YamlKind;
typedef struct Yaml Yaml;
typedef struct { const Yaml *key, *value; } YamlPair;  /* the key is a text of at least one byte, without a zero byte */
struct Yaml {
    YamlKind kind;
    bool     quoted;                /* of a text: it is a string, whatever it looks like */
    int      line;                  /* where it begins, from 1; of what was merged: where it was written */
    int      values, deep;          /* in it, itself included */
    size_t   n;                     /* bytes, items, pairs */
    union {
        const char         *text;   /* with a 0 behind it */
        const Yaml *const  *items;
        const YamlPair     *pairs;  /* its own first, then what is merged into it and it does not have itself */
    };
};

/* An empty text gives an empty map.  name: of the file, for messages "NAME:12: ..."; NULL:
 * "line 12: ...".  Everything lives in mem. */
const Yaml *yaml_read(const char *name, const char *text, size_t n, Mem *mem, Err *err);     /* NULL on error */

/* The JSON value it stands for.  The core schema: plain true/false, null, whole and real
 * numbers are what they look like, anything quoted is a string. */
void yaml_to_json(Json *out, const Yaml *y, Mem *mem);
bool yaml_parse(Json *out, const char *text, size_t n, Mem *mem, Err *err);

/* With double quotes: as JSON has it, and what YAML does not take or would join (line ends beyond ASCII, control
 * characters) escaped. */
void yaml_put_str(Buf *b, const char *s, size_t n);

/* What a plain text means: for values given on a command line ("trainer.lr=1e-6"). */
Json yaml_scalar(const char *text, size_t n, Mem *mem);

#endif
