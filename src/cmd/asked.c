/* asked.c - what ranks were asked, as lines, and compared. */
#include "cmd/asked.h"
#include "comm/alike.h"

bool asked_ranks(Ranks *r, const Verb *v, const void *args, Err *err) {
    Identity id = { 0 };
    identity_program(&id, v->name);
    opt_identity(v, args, &id);
    bool ok = ranks_open(r, RANKS_WAIT, id.lines.data, err);
    identity_free(&id);
    return ok;
}

bool asked_alike(const Ranks *r, const Identity *id, bool ok, Err *err) {
    return ranks_agree(r, ok, err) && ranks_alike(r, id->lines.n ? id->lines.data : "", err);
}

bool asked_model(const Ranks *r, const AskedModel *m, Err *err) {
    Identity id = { 0 };
    if (ranks_count(r) == 1) return true;
    bool ok = identity_config(&id, m->model, err) && identity_tokenizer(&id, m->model, m->chat_template, err)
              && (m->random || identity_weights(&id, m->model, m->seed, err));
    ok = asked_alike(r, &id, ok, err);
    identity_free(&id);
    return ok;
}
