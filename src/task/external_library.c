/* external_library.c - a scorer in a shared library: include/hone_reward.h.  It is never unloaded: a thread that hangs
 * in it may be left behind, and would wake up in unmapped code. */
#include "task/external.h"

#include "hone_reward.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define STR_(x) #x
#define STR(x)  STR_(x)

typedef int RewardFn(const HoneRewardIn *in, HoneRewardOut *out);

struct Library {
    Mem mem;
    RewardFn *fn;
};

Library *library_open(const char *path, Err *err) {
    /* dlopen looks a bare name up in the system's folders; a file beside us is what is meant. */
    Buf full = { 0 };
    buf_printf(&full, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *so = dlopen(full.data, RTLD_NOW | RTLD_LOCAL);
    buf_free(&full);
    if (!so) {
        err_set(err, "the scorer's library cannot be loaded: %s", dlerror());
        return NULL;
    }
    void *fn = dlsym(so, STR(hone_reward));
    if (!fn) {
        dlclose(so);
        err_set(err, "%s exports no " STR(hone_reward) ": compile it with this version's include/hone_reward.h", path);
        return NULL;
    }
    Mem mem = { 0 };
    Library *l = MEM_NEW(&mem, Library);
    memcpy(&l->fn, &fn, sizeof fn); /* ISO C has no cast from a data to a function pointer */
    l->mem = mem;
    return l;
}

void library_score(const Library *l, const RewardSample *s, RewardResult *out) {
    HoneRewardIn in = {
        .data_source = s->data_source,
        .data_source_n = strlen(s->data_source),
        .solution = s->solution,
        .solution_n = s->solution_n,
        .ground_truth = s->ground_truth,
        .ground_truth_n = s->ground_truth_n,
        .extra_info = s->extra_info ? s->extra_info : "",
        .extra_info_n = s->extra_info_n,
        .ground_truth_is_json = s->ground_truth_is_json,
    };
    HoneRewardOut got = { .acc = -1 };
    int rc = l->fn(&in, &got);
    got.reason[sizeof got.reason - 1] = 0;
    if (rc) {
        reward_fail(out, "%s", got.reason[0] ? got.reason : "the scorer's library could not judge it");
    } else if (!isfinite(got.score)) {
        reward_fail(out, "the scorer's library gave %g as score", got.score);
    } else {
        out->score = got.score;
        if (got.acc != 0 && got.acc != 1) return;
        out->acc = got.acc;
        buf_puts(&out->extra, got.acc ? "\"acc\":true" : "\"acc\":false");
    }
}

void library_close(Library *l) {
    if (!l) return;
    Mem mem = l->mem;
    mem_free(&mem);
}
