/* safetensors.h - named tensors in files: 8 bytes of length, a JSON header, then the bytes of every tensor.
 *
 * Reading maps the files and trusts nothing in them; every error is one line that names the file and
 * the tensor.  Writing streams: all tensors are declared first (the header stands in front), then
 * their bytes follow in that order. */
#ifndef FILE_SAFETENSORS_H
#define FILE_SAFETENSORS_H

#include "base/file.h"
#include "base/json.h"
#include "tensor/tensor.h"

enum { ST_DIMS = 8 };

typedef struct {
    const char *name;
    DType       dtype;
    int         n_dims;
    int64_t     shape[ST_DIMS], count;      /* count: the product, 1 for a scalar */
    const char *data;                       /* in the mapping; not aligned to anything */
    size_t      bytes;
    int         file;                       /* StFiles.path[file] */
    int         turn;                       /* of a GGUF file: see Source (param/convert.h) */
} StTensor;

typedef struct {
    FileMap     *map;
    int         *fd;                        /* of the same files, or -1 */
    const char **path;
    int          n_files;
    StTensor    *at;                        /* in the order of the headers */
    size_t       n;
    uint32_t    *slot, n_slots;             /* hash of names: index + 1 */
} StFiles;

/* A GGUF file (its tensors then have the hub's names, an expert's each its own), a safetensors file, or a folder with
 * model.safetensors or with model.safetensors.index.json and the shards that it names; or a file X.safetensors that is
 * not there itself, but has X.safetensors.index.json beside it. */
bool st_open (StFiles *out, const char *path, Mem *mem, Err *err);
/* The names of the same files, none of which is opened; index_bytes: of the index that was read for it. */
bool st_names(const char ***path, int *n, size_t *index_bytes, const char *from, Mem *mem, Err *err);
bool st_parse(StFiles *out, const char *data, size_t n, const char *label, Mem *mem, Err *err);   /* a file in memory */
void st_close(StFiles *s);
const StTensor *st_find(const StFiles *s, const char *name);                                       /* NULL: not there */
bool st_is_shape(const StTensor *t, int n_dims, const int64_t *shape);
void st_shape_text(char out[96], int n_dims, const int64_t *shape);                               /* "[128,32]" */
/* from: in t's data; read, not faulted in */
void st_copy(const StFiles *s, const StTensor *t, void *to, const char *from, size_t bytes);
/* Bytes [at, at+n) of a tensor, by reading alone: nothing of the mapping is touched. */
bool st_read(const StFiles *s, const StTensor *t, int64_t at, void *to, size_t n, Err *err);
void st_will_need(const void *data, size_t bytes);          /* bytes of a file that are read soon: the disk may begin */
/* its pages may leave memory: it was read and will not be again */
void st_done_with(const StFiles *s, const StTensor *t);

/* ---- Writing.  One file (path ends with .safetensors), or a folder that exists: model.safetensors, or shards of at
 * most shard_bytes with an index (a tensor larger than that has a shard to itself). */
/* joined: of the name of the one before it and in the files a part of that: more of its rows. */
typedef struct { const char *name; DType dtype; int n_dims; int64_t shape[5]; bool joined; } StSpec;
typedef struct StWriter StWriter;
/* NULL on error */
StWriter *st_write_open (const char *path, const StSpec *specs, size_t n, int64_t shard_bytes, Err *err);
/* the next bytes, in pieces of any size */
bool      st_write      (StWriter *w, const void *bytes, size_t n, Err *err);
bool      st_write_close(StWriter *w, Err *err);     /* checks that all was given; fsync, rename; frees w either way */
void      st_write_abort(StWriter *w);               /* removes what was written, frees w */

/* The same files filled in any order, by several processes at once: one makes them in their full size, each puts its
 * tensors' bytes in their places.  Nothing is renamed: they belong into a folder that nobody looks into yet.  A path
 * X.safetensors is cut into shards too, X-00001-of-0000N.safetensors, with X.safetensors.index.json. */
typedef struct StPlaces StPlaces;
bool      st_places_make (const char *path, const StSpec *specs, size_t n, int64_t shard_bytes, Err *err);
StPlaces *st_places_open (const char *path, const StSpec *specs, size_t n, int64_t shard_bytes);
/* The k-th file: its name in the folder, how long its header is and all of it; NULL: there are no more. */
typedef struct { const char *name; int64_t header, bytes; } StPlaced;
const StPlaced *st_places_file(const StPlaces *p, int k);
/* Which file a tensor is in; *at: where in it the tensor begins. */
int       st_places_of   (const StPlaces *p, size_t tensor, int64_t *at);
/* What the k-th file begins with. */
void      st_places_front(const StPlaces *p, int k, Buf *out);
/* at: bytes into it */
bool      st_place       (StPlaces *p, size_t tensor, int64_t at, const void *bytes, size_t n, Err *err);
/* fsync of what was written to, and 'done' after each file (or NULL); frees p either way.  err NULL: given up */
bool      st_places_close(StPlaces *p, void (*done)(void *user), void *user, Err *err);

#endif
