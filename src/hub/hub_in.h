/* hub_in.h - what the files of this folder share. */
#ifndef HUB_HUB_IN_H
#define HUB_HUB_IN_H

#include "base/json.h"
#include "hub/hub.h"

typedef struct {
    const char *path;          /* in the repository: checked to stay below it */
    const char *sum;           /* hex: SHA-256 (64 digits), or git's SHA-1 of the file (40): the blob's name too */
    int64_t     bytes;
    bool        wanted;
} HubFile;

typedef struct { const char *commit; HubFile *files; int n; } HubList;

/* The hub's answer about a revision.  Distrusted. */
bool hub_list_parse(HubList *out, const char *text, size_t n, Mem *mem, Err *err);

/* Marks what is wanted.  Of a model by itself: weights come with hub_choose_shards, when the index is there; one GGUF
 * file where there are no safetensors. */
bool hub_choose(HubList *l, const HubConf *c, const HubName *name, Err *err);
bool hub_choose_shards(HubList *l, const char *index, size_t n, Err *err);
bool hub_matches(const char *pattern, const char *path);      /* fnmatch, * over folders too */
#define HUB_INDEX "model.safetensors.index.json"

/* ---- the cache */
typedef struct { const char *repo, *locks; } HubPlace;         /* folders of one repository */
bool hub_place(HubPlace *out, const HubConf *c, const HubName *n, Mem *mem, Err *err);
const char *hub_token(const HubConf *c, Mem *mem);             /* or NULL */
const char *hub_endpoint(const HubConf *c);
int  hub_lock(const char *path, const char *says, Mem *mem, Err *err);    /* a descriptor to close; -1 */
bool hub_ref(const HubPlace *p, const char *revision, const char **commit, double *age, Mem *mem);
bool hub_ref_set(const HubPlace *p, const char *revision, const char *commit, Err *err);
bool hub_link(const HubPlace *p, const char *commit, const HubFile *f, Err *err);     /* snapshot's to the blob */
bool hub_is_commit(const char *s);
/* A snapshot as it lies there: its files; false where it is not whole. */
bool hub_snapshot(const HubPlace *p, const char *commit, HubList *out, Mem *mem);

/* ---- the files of a list that are wanted and not there, all of them or none is believed */
bool hub_fetch(const HubConf *c, const HubName *n, const HubPlace *p, HubList *l, int64_t *fetched, Mem *mem, Err *err);
bool hub_ask(const HubConf *c, const HubName *n, HubList *out, bool *unreachable, Mem *mem, Err *err);
const char *hub_url(const HubConf *c, const HubName *n, const char *commit, const char *path, Mem *mem);

#endif
