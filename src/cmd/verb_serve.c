/* verb_serve.c - `hone serve`: a model asked over HTTP by programs that speak OpenAI's interface.
 * What it takes is planned: the cache, so many answers at once, so many requests in line; whoever comes beyond is told
 * when to come again. */
#include "ask/prompt_line.h"
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "model/open.h"
#include "serve/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAGE = 64, USUAL_CONTEXT = 32768, SEEING_CONTEXT = 8192, UNKNOWN_CONTEXT = 8192, MOST_KEYS = 256 };

typedef struct {
    const char *host, *api_key, *adapter, *name, *device, *compute;
    int64_t port, context, max_batch, max_rows, kv_tokens, waiting, body, held, seed, threads, leaves, random;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "host",        OPT_STR, offsetof(Args, host),      "ADDRESS",
      "where to listen; 127.0.0.1; another than this machine's own only with a key" },
    { "port",        OPT_INT, offsetof(Args, port),      "N",    "8000; 0: any that is free", 0, 65535 },
    { "api-key",     OPT_STR, offsetof(Args, api_key),   "KEY|FILE",
      "what clients send as Authorization: Bearer KEY; of a file each line is one" },
    { "name",        OPT_STR, offsetof(Args, name),      "NAME", "what the model is called; its folder's name" },
    { "adapter",     OPT_STR, offsetof(Args, adapter),   "NAME=DIR", "not there yet" },
    { "context",     OPT_INT, offsetof(Args, context),   "N",
      "longest prompt with its answer, in tokens; the model's, or 32768 (8192 where it sees) if that is more", 2, 1e9 },
    { "seed",        OPT_INT, offsetof(Args, seed),      "N",
      "of requests that name none; else each gets another, and is told which", 0, 9e15 },
    { "max-batch",   OPT_INT, offsetof(Args, max_batch), "N",
      "answers drawn together (no effect on them); 64", 1, 65536 },
    { "max-rows",    OPT_INT, offsetof(Args, max_rows),  "N",
      "rows of a step, prefill chunks included (no effect on answers); 512", 1, 1e7 },
    { "kv-tokens",   OPT_INT, offsetof(Args, kv_tokens), "N",
      "positions in the cache; as many as the batch can need, or half of the memory that is free", 0, 1e12 },
    { "max-waiting", OPT_INT, offsetof(Args, waiting),   "N", "requests in line; beyond: 429; 1024", 1, 1e6 },
    { "max-body",    OPT_INT, offsetof(Args, body),      "BYTES", "of one request; 64 MiB", 1024, 2e9 },
    { "max-held",    OPT_INT, offsetof(Args, held),      "BYTES",
      "of all requests under way; beyond: 503; 1 GiB", 1024, 1e12 },
    { "threads",     OPT_INT, offsetof(Args, threads),   "N",
      "threads that compute (no effect on answers); all cores", 0, THREADS_MOST },
    LEAVES_OPTION(Args),
    DEVICE_OPTIONS(Args),
    RANDOM_OPTION(Args),
    { 0 },
};
/* clang-format on */

typedef struct {
    const Verb *v;
    const Args *a;
    Opened o;
    PromptReader reader;
    ServeConf conf;
    EngineConf engine;
    const char *key[MOST_KEYS];
} Server;

/* A file's lines, or the word itself. */
static bool keys(Server *s, Err *err) {
    const char *said = s->a->api_key;
    HttpConf *h = &s->conf.http;
    h->keys = s->key;
    if (!said) return true;
    if (!*said) return err_set(err, "--api-key is empty");
    if (!file_exists(said)) return s->key[h->n_keys++] = said, true;
    Buf text = { 0 };
    TRY(file_read(&text, said, err));
    for (char *at = text.data ? text.data : (char *)"", *end; *at; at = end) {
        size_t n = strcspn(at, "\r\n");
        end = at + n + strspn(at + n, "\r\n");
        if (n && h->n_keys < MOST_KEYS) s->key[h->n_keys++] = mem_str(&s->o.mem, at, n);
    }
    buf_free(&text);
    return h->n_keys > 0 || err_set(err, "%s: there is no key in it", said);
}

static const char *last_name(const char *path, Mem *mem) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    return mem_str(mem, path + from, n - from);
}

/* Pages for the batch at its longest, or for half of what is free: then some answers wait for others. */
static EngineConf sizes(Server *s, int64_t context) {
    const Args *a = s->a;
    const Dims *d = &s->o.desc.d;
    Shard shard = open_shard(&s->o);
    int64_t longest = context + 1, each = (longest + PAGE - 1) / PAGE; /* one more: where only a prompt is scored */
    int64_t pages = a->kv_tokens ? a->kv_tokens / PAGE : a->max_batch * each + 1;
    int64_t fit =
        (int64_t)(memory_free(&s->o.dev) / 2 / cache_page_bytes(&s->o.desc, &shard, PAGE, open_kind(&s->o, a->leaves)));
    if (!a->kv_tokens && fit && pages > fit) pages = fit;
    if (pages < each + 1) pages = each + 1;
    EngineConf c = engine_conf(a->max_batch, longest, a->max_rows, PAGE);
    int64_t rows = model_desc_most_tokens(&s->o.desc);
    if (c.sched.max_rows > rows) c.sched.max_rows = (int)rows;
    c.sched.pages = (int)(pages < INT32_MAX ? pages : INT32_MAX);
    c.max_ban = WANT_STOPS, c.tells = true;
    if (s->reader.pictures.takes) /* a prompt's pictures are some of its tokens */
        c.feats = (int)context, c.patches = context * d->vis.merge * d->vis.merge;
    return c;
}

static bool open_server(Server *s, const char *model, Err *err) {
    const Args *a = s->a;
    const Dims *d = &s->o.desc.d;
    TRY(prompt_reader_open(&s->reader, &s->o.desc, PROMPT_GENERATE, err) && keys(s, err));
    int64_t usual = s->reader.pictures.takes ? SEEING_CONTEXT : USUAL_CONTEXT;
    if (a->context && d->context && a->context > d->context)
        return err_set(err, "--context is %" PRId64 ", but the model was made for %" PRId64 " tokens", a->context,
                       d->context);
    int64_t context = a->context ? a->context : !d->context ? UNKNOWN_CONTEXT : d->context < usual ? d->context : usual;
    s->engine = sizes(s, context);
    OpenOpts opts = { .threads = a->threads,
                      .leaves = a->leaves,
                      .random = random_fill(a->random),
                      .more = cache_bytes(&s->o.desc, &s->engine, open_kind(&s->o, a->leaves)) };
    TRY(open_weights(&s->o, &opts, engine_tmp_bytes(&s->o.desc, &s->engine, open_kind(&s->o, a->leaves)), err));
    ServeConf *c = &s->conf;
    c->offer = (Offer){ .reader = &s->reader,
                        .desc = &s->o.desc,
                        .name = a->name ? a->name : last_name(model, &s->o.mem),
                        .path = model,
                        .context = context,
                        .feats = s->engine.feats,
                        .patches = s->engine.patches,
                        .prompts = (int)a->waiting,
                        .has_seed = a->seed >= 0,
                        .seed = (uint64_t)a->seed };
    c->http.host = a->host, c->http.port = (int)a->port, c->http.body = a->body;
    c->ask.most_waiting = (int)a->waiting;
    c->held = a->held;
    return true;
}

static void say_ready(void *user, int port) {
    const Server *s = user;
    bool six = strchr(s->a->host, ':') != NULL;
    fprintf(stderr,
            "hone serve: %s on http://%s%s%s:%d/v1: %" PRId64 " tokens of context, %d answers at once, %d requests may "
            "wait; Ctrl-C ends it\n",
            s->conf.offer.name, six ? "[" : "", s->a->host, six ? "]" : "", port, s->conf.offer.context,
            s->engine.sched.max_batch, s->conf.ask.most_waiting);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .host = "127.0.0.1",
               .port = 8000,
               .max_batch = 64,
               .max_rows = 512,
               .waiting = 1024,
               .body = 64 << 20,
               .held = 1 << 30,
               .seed = -1,
               .random = -1 };
    const char *model;
    Err err;
    int rc = opt_parse(v, &a, &model, 1, 1, NULL, argc, argv);
    if (rc >= 0) return rc;
    if (a.leaves && !leaves_fit(a.leaves)) return cmd_usage(v, LEAVES_WANTED);
    if (a.adapter) return cmd_usage(v, "--adapter: adapters are not there yet");
    if (!http_is_loopback(a.host) && !a.api_key)
        return cmd_usage(v, "--host %s lets other machines ask: only with --api-key", a.host);
    Server s = { .v = v, .a = &a };
    OpenOpts opts = { .threads = a.threads,
                      .leaves = a.leaves,
                      .device = a.device,
                      .compute = a.compute,
                      .random = random_fill(a.random) };
    bool ok = open_desc(&s.o, model, &opts, &err) && open_server(&s, model, &err);
    if (ok) {
        Engine *e = engine_open(&s.o.model, &s.engine, &s.o.mem);
        ok = serve_run(e, &s.conf, say_ready, &s, &err);
        engine_close(e);
    }
    rc = ok ? 0 : cmd_fail(v, &err);
    prompt_reader_close(&s.reader);
    open_close(&s.o);
    return rc;
}

const Verb verb_serve = {
    .name = "serve",
    .usage = "MODEL [--host ADDRESS] [--port N] [--api-key KEY|FILE]",
    .summary = "a model over HTTP, for OpenAI's clients",
    .options = options,
    .run = run,
    .detail =
        "/v1/chat/completions, /v1/completions (streams too), /v1/models and /health.  An answer does not depend on\n"
        "who else is served; a request with \"seed\" gets the same bytes another day, and those of `hone generate`\n"
        "with that seed.  docs/serve.md has the fields.\n",
};
