/* parquet_in.h - what the parts of the Parquet reader share; nobody outside src/file/parquet*.c includes it.
 *
 * The footer's flat schema becomes a tree of PqNodes in which lists and maps are nodes, not groups of groups, and every
 * node knows the levels that say of an entry whether it is there:
 *     def < node->def            the node is null (or something above it is)
 *     LIST, MAP: def == node->def  present and empty; the first item starts an entry, each further one repeats 'rep' */
#ifndef FILE_PARQUET_IN_H
#define FILE_PARQUET_IN_H

#include "base/file.h"
#include "file/parquet.h"

typedef enum {
    PQ_BOOLEAN, PQ_INT32, PQ_INT64, PQ_INT96, PQ_FLOAT, PQ_DOUBLE, PQ_BYTE_ARRAY, PQ_FIXED, PQ_TYPES
} PqType;

/* What a leaf's value means: how its bytes become Json. */
typedef enum {
    PQ_AS_BOOL, PQ_AS_INT, PQ_AS_UINT, PQ_AS_REAL, PQ_AS_HALF, PQ_AS_TEXT, PQ_AS_BYTES, PQ_AS_DECIMAL, PQ_AS_DATE,
    PQ_AS_TIME, PQ_AS_STAMP, PQ_AS_UUID, PQ_AS_NULL
} PqMeaning;

typedef enum { PQ_LEAF, PQ_STRUCT, PQ_LIST, PQ_MAP } PqKind;

typedef struct PqNode PqNode;
struct PqNode {
    const char *name;                /* 0-terminated */
    size_t      name_n;
    PqKind      kind;
    bool        chosen;              /* it, or something in it, is read */
    int         n_chosen, first;     /* children that are; the first leaf that is */
    uint8_t     def, rep;
    int         n, leaf, n_leaves;   /* children; first leaf (file order) and how many */
    PqNode     *child;               /* [n]: STRUCT members, LIST item, MAP key and value */
    /* PQ_LEAF */
    PqType      type;
    PqMeaning   as;
    int         width;          /* bytes of a PQ_FIXED; of the others too, 0 for BYTE_ARRAY */
    int         scale, digits;  /* DECIMAL scale; TIME, STAMP: digits of the fraction that the unit has (3, 6, 9) */
    bool        utc;
};

typedef struct { int64_t at, bytes, values, unpacked; int codec; PqType type; bool refused; } PqChunk;
typedef struct { int64_t rows; PqChunk *chunk; } PqGroup;          /* chunk[n_leaves] */

struct PqFile {
    Mem      mem;
    FileMap  map;
    const char *name;
    const uint8_t *data;
    size_t   n;                      /* bytes before the footer */
    PqNode   root;                   /* STRUCT */
    PqNode **leaf;                   /* [n_leaves] */
    int      n_leaves, n_groups;
    PqGroup *group;
    int64_t  rows, max_values, max_page;
};

bool pq_read_footer(PqFile *f, const uint8_t *meta, size_t n, Err *err);

/* One leaf's column chunk, decoded: n entries with their levels (NULL where the maximum is 0) and a Json for every
 * entry whose def is the leaf's.  The three arrays lie in 'work', what the values point to in 'mem'. */
typedef struct { int64_t n, n_values; uint8_t *def, *rep; Json *value; } PqData;
bool pq_may_read(const PqFile *f, const PqGroup *g, int leaf, Err *err);  /* does the footer make sense? first of all */
bool pq_read_chunk(const PqFile *f, const PqGroup *g, int leaf, Mem *mem, Mem *work, PqData *out, Err *err);
size_t pq_chunk_room(const PqFile *f, const PqGroup *g, int leaf);   /* about what it takes in mem */
size_t pq_work_room(const PqFile *f, const PqGroup *g, int leaf);    /* the most in work */

/* Exactly 'size' bytes into 'to'. */
bool pq_unpack(int codec, const uint8_t *from, size_t n, uint8_t *to, size_t size, Err *err);
bool pq_may_unpack(int codec, size_t n, size_t size);              /* is this size possible for n compressed bytes? */
const char *pq_codec_name(int codec);

/* n values in one of the encodings, from a page's bytes (writable: the 0 behind each string is put into them; one byte
 * behind 'end' is ours too). */
bool pq_decode(const PqNode *leaf, int encoding, uint8_t *at, uint8_t *end, int64_t n, const Json *dict, int64_t n_dict,
               Mem *mem, Json *out, Err *err);
bool pq_hybrid(const uint8_t *at, const uint8_t *end, int width, uint32_t max, int64_t n, uint32_t *out);
bool pq_levels(const uint8_t *at, const uint8_t *end, int max, int64_t n, uint8_t *out);   /* false: bad or short */
Json pq_value(const PqNode *leaf, const uint8_t *bytes, Mem *mem);   /* leaf->width bytes -> its value */
bool pq_delta(const uint8_t **at, const uint8_t *end, int bits, int64_t n, int64_t *out);  /* DELTA_BINARY_PACKED */

size_t pq_rows_room(const PqFile *f, const PqGroup *g, const PqNode *v); /* about what its rows will take */
/* The rows of top-level column c, from its leaves' data [n_leaves of the file]: rows[i].members[slot] is set. */
bool pq_assemble(const PqFile *f, const PqNode *column, const PqData *data, int64_t rows, int slot, Json *out, Mem *mem,
                 Err *err);

#endif
