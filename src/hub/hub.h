/* hub.h - repositories of models and data sets, fetched from a hub by its HTTP interface into the cache that its own
 * programs keep (docs/hub.md): what one of them has fetched, nobody fetches again.
 *
 * Every file is checked: its size and the SHA-256 that the hub names, or git's SHA-1 of it where it names no other. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include "base/base.h"

typedef enum { HUB_MODEL, HUB_DATA } HubKind;

typedef struct {
    HubKind     kind;
    const char *repo;               /* ORG/NAME */
    const char *revision;           /* a branch, a tag, a commit; "main" */
    const char *path;               /* of files in it, may have * and ?; NULL: those that are needed */
} HubName;

/* ORG/NAME[@REVISION], with [:PATH] behind it where there may be one; datasets/ORG/NAME is a data set. */
bool hub_name(HubName *out, const char *text, HubKind kind, bool path, Mem *mem, Err *err);
bool hub_like(const char *text);              /* might be ORG/NAME: for messages */

typedef struct {
    const char *endpoint, *token, *cache, *proxy;    /* NULL: HF_ENDPOINT, HF_TOKEN, HF_HOME; none */
    const char *const *include, *const *exclude;     /* patterns of whole paths; of include none: what is needed */
    int         includes, excludes, parallel;        /* parallel 0: 8 */
    bool        local;                               /* ask nobody: what the cache has */
    const char *says;                                /* who fetches, before what is told: "hone pull" */
} HubConf;

typedef struct { const char *path; int64_t bytes; } HubGotFile;
typedef struct {
    const char *folder, *commit;     /* CACHE/models--ORG--NAME/snapshots/COMMIT */
    HubGotFile *files;
    int         n;
    int64_t     bytes, fetched;      /* of all files; of those that came now */
    const char *note;                /* or NULL: the hub was not reached, and the cache had it */
} HubGot;

/* Several processes may ask for the same: one fetches, the others wait and take what it got. */
bool hub_get(const HubConf *c, const HubName *name, HubGot *out, Mem *mem, Err *err);

/* The files that a snapshot has into a folder of one's own: linked where they are weights and lie on the same disk,
 * else copied. */
bool hub_copy(const HubGot *got, const char *dir, Err *err);

#endif
