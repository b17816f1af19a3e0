/* verb_chat.c - `hone chat`: a conversation with a model in the terminal, shown as it is drawn.
 * The conversation is kept as the JSON line that `hone generate` would read, so both see the same tokens; the engine
 * stays open between turns, and the pages of what was said before are found again.  Ctrl-C is not handled but blocked
 * and asked for after each token: nothing runs in a signal handler. */
#include "base/file.h"
#include "base/utf8.h"
#include "ask/prompt_line.h"
#include "ask/stops.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "model/open.h"
#include "cmd/sampling.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 64, ROWS = 512, USUAL_CONTEXT = 8192 };

typedef struct {
    const char *system;
    int64_t context, threads, leaves;
    bool single;
    SamplingArgs s;
    const char *device, *compute, *adapter;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "system",  OPT_STR, offsetof(Args, system),  "TEXT", "a system message before the conversation" },
    { "single",  OPT_FLAG, offsetof(Args, single), "",     "every line is a conversation of its own" },
    { "context", OPT_INT, offsetof(Args, context), "N",
      "longest conversation in tokens; the model's, or 8192 if that is more", 2, 1e9 },
    SAMPLING_OPTS(Args, s),
    { "threads", OPT_INT, offsetof(Args, threads), "N",
      "threads (no effect on answers); all cores", 0, THREADS_MOST },
    LEAVES_OPTION(Args),
    ADAPTER_OPTION(Args),
    DEVICE_OPTIONS(Args),
    { 0 },
};
/* clang-format on */

typedef struct {
    const Verb *v;
    const Args *a;
    Opened o;
    PromptReader reader;
    Engine *engine;
    int max_len;
    bool terminal, eyes; /* somebody types; somebody reads what is written */
    Buf shown_next;      /* pictures that go with what is said next: parts of a content, each with a comma */
    Buf talk;            /* {"messages":[... without its end */
    size_t no_turns;     /* its length before the first turn */
    uint32_t turn;       /* names the random numbers: the same question asked again may get another answer */

    /* the turn under way */
    Mem mem;
    PromptLine line;
    Sampling s;
    Stops *saying;
    Buf said;     /* when it is over */
    size_t shown; /* bytes of the text */
    bool given, interrupted;
    int drawn;
    Finish finish;
} Talk;

/* ---- Ctrl-C */
static sigset_t only_interrupt(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    return set;
}

static bool interrupt_asked(void) {
    sigset_t set = only_interrupt();
    return sigtimedwait(&set, NULL, &(struct timespec){ 0 }) == SIGINT;
}

/* ---- one answer */
static void show(Talk *t, const char *text, size_t upto) {
    if (upto <= t->shown) return;
    Buf b = { 0 };
    if (t->eyes) utf8_put_visible(&b, text + t->shown, upto - t->shown); /* a model may not steer a terminal */
    else buf_put(&b, text + t->shown, upto - t->shown);
    fwrite(b.data, 1, b.n, stdout);
    fflush(stdout);
    buf_free(&b);
    t->shown = upto;
}

static bool feed_next(void *user, Request *out) {
    Talk *t = user;
    if (t->given) return false;
    t->given = true;
    *out = (Request){ t->line.tokens,           t->line.n, 1, request_key(t->line.tokens, t->line.n), &t->s.opts, t,
                      .spans = t->line.pictures };
    return true;
}

static bool feed_token(void *user, const Request *r, int sample, int32_t id, float lp) {
    (void)r, (void)sample, (void)lp;
    Talk *t = user;
    bool stop = stops_push(t->saying, id);
    size_t n;
    const char *text = stops_settled(t->saying, &n);
    show(t, text, n);
    return stop;
}

static void feed_answer(void *user, const Answer *a) {
    Talk *t = user;
    t->drawn = a->n;
    t->finish = a->finish;
}

static bool feed_tick(void *user, int64_t tokens, int running) {
    (void)tokens, (void)running;
    Talk *t = user;
    t->interrupted = interrupt_asked();
    return !t->interrupted && !ferror(stdout);
}

static bool answer(Talk *t) {
    Err err;
    t->shown = 0;
    t->given = t->interrupted = false;
    t->saying = stops_open(t->reader.tok, t->s.stop, t->s.n_stop);
    Feed f = { feed_next, feed_token, feed_answer, feed_tick, t, (uint64_t)t->a->s.seed, t->turn++, 0 };
    engine_run(t->engine, &f);
    buf_clear(&t->said);
    stops_text(t->saying, &t->said); /* with half a character at the end */
    stops_close(t->saying);
    show(t, t->said.data, t->said.n);
    putchar('\n');
    fflush(stdout);
    if (t->finish == FINISH_BROKEN) {
        finish_broken(&err, t->drawn);
        cmd_fail(t->v, &err);
        return false;
    }
    if (t->interrupted) fprintf(stderr, "[interrupted]\n");
    else if (t->finish == FINISH_LENGTH && t->line.n + t->drawn >= t->max_len)
        fprintf(stderr, "[the conversation fills the context of %d tokens; /reset starts a new one]\n", t->max_len);
    else if (t->finish == FINISH_LENGTH) fprintf(stderr, "[cut after %d tokens; --max-tokens allows more]\n", t->drawn);
    return true;
}

/* ---- the conversation */
static void say(Talk *t, const char *role, const char *text, size_t n) {
    buf_printf(&t->talk, "%s{\"role\":\"%s\",\"content\":", t->talk.data[t->talk.n - 1] == '[' ? "" : ",", role);
    bool shows = t->shown_next.n && !strcmp(role, "user"); /* pictures first, then what is asked of them */
    if (shows) buf_printf(&t->talk, "[%s{\"type\":\"text\",\"text\":", t->shown_next.data);
    json_put_str(&t->talk, text, n);
    buf_puts(&t->talk, shows ? "}]}" : "}");
}

/* /image FILE: shown with what is said next. */
static void show_next(Talk *t, const char *path) {
    Err err;
    Picture p;
    Mem mem = { 0 };
    Json said = { .kind = JSON_STRING, .n = strlen(path), .str = path };
    if (picture_read(&p, &t->reader.pictures, &said, NULL, false, &mem, &err)) {
        buf_puts(&t->shown_next, "{\"type\":\"image\",\"image\":");
        json_put_str(&t->shown_next, path, strlen(path));
        buf_puts(&t->shown_next, "},");
        fprintf(stderr, "[%d tokens; it goes with what you say next]\n", picture_tokens(&p, &t->o.desc.d));
    } else cmd_fail(t->v, &err);
    mem_free(&mem);
}

/* The line's tokens and settings, and whether there is room for an answer. */
static bool prepare(Talk *t, Err *err) {
    size_t mark = t->talk.n;
    buf_puts(&t->talk, "]}");
    prompt_line_read(&t->line, &t->reader, t->talk.data, t->talk.n, &t->mem);
    t->talk.n = mark, t->talk.data[mark] = 0;
    if (!t->line.ok) return err_set(err, "%s", t->line.err);
    TRY(sampling_read(&t->s, &t->a->s, 1, &t->line.json, &t->o.desc.d, &t->mem, err));
    if (t->line.n >= t->max_len)
        return err_set(err, "the conversation has %d tokens now, the context is %d: /reset starts a new one", t->line.n,
                       t->max_len);
    if (t->line.n + t->s.opts.max_tokens > t->max_len) t->s.opts.max_tokens = t->max_len - t->line.n;
    return true;
}

static bool take_turn(Talk *t, const char *text, size_t n) {
    Err err;
    if (t->a->single) t->talk.n = t->no_turns;
    size_t before = t->talk.n;
    say(t, "user", text, n);
    bool ok = prepare(t, &err);
    if (ok) ok = answer(t);
    else cmd_fail(t->v, &err);
    if (ok && t->drawn) buf_clear(&t->shown_next), say(t, "assistant", t->said.data ? t->said.data : "", t->said.n);
    else t->talk.n = before, t->talk.data[before] = 0; /* as if it had not been said */
    mem_free(&t->mem);
    return ok;
}

typedef enum { NOT_A_COMMAND, DONE, QUIT } Command;

static Command command(Talk *t, const char *text) {
    if (!strncmp(text, "/image ", 7)) return show_next(t, text + 7 + strspn(text + 7, " ")), DONE;
    if (text[0] != '/' || !text[1] || text[1 + strspn(text + 1, "abcdefghijklmnopqrstuvwxyz")]) return NOT_A_COMMAND;
    if (!strcmp(text, "/quit") || !strcmp(text, "/exit")) return QUIT;
    if (!strcmp(text, "/reset")) {
        t->talk.n = t->no_turns, t->talk.data[t->no_turns] = 0;
        fprintf(stderr, "[a new conversation]\n");
    } else if (!strcmp(text, "/help"))
        fprintf(stderr, "/image FILE shows a picture, /reset forgets the conversation, /quit (or Ctrl-D) ends; Ctrl-C "
                        "ends an answer.\n");
    else fprintf(stderr, "[there is no command %s; /help lists them]\n", text);
    return DONE;
}

static bool converse(Talk *t, LineReader *in) {
    const char *text;
    size_t n;
    bool ok = true;
    sigset_t set = only_interrupt();
    while (!ferror(stdout)) {
        if (t->terminal) fputs("> ", stdout), fflush(stdout);
        sigprocmask(SIG_UNBLOCK, &set, NULL); /* while nothing is being said, Ctrl-C ends the program as usual */
        bool more = lines_next(in, &text, &n);
        sigprocmask(SIG_BLOCK, &set, NULL);
        if (!more) {
            if (t->terminal) putchar('\n');
            break;
        }
        while (n && strchr(" \t\r", text[n - 1])) n--;
        if (!n) continue;
        char *line = mem_str(&t->mem, text, n);
        Command c = command(t, line);
        if (c == QUIT) break;
        if (c == NOT_A_COMMAND && !take_turn(t, line, n)) ok = false;
    }
    return ok;
}

/* ---- set-up */
static bool open_talk(Talk *t, const char *model, Err *err) {
    const Dims *d = &t->o.desc.d;
    TRY(prompt_reader_open(&t->reader, &t->o.desc, PROMPT_GENERATE, err));
    if (!t->reader.tok)
        return err_set(err, "%s has no tokenizer, and a conversation needs one; `hone generate` takes token ids",
                       model);
    if (!t->reader.chat) return err_set(err, "%s cannot be talked to: %s", model, t->reader.no_chat);
    int64_t most = d->context ? d->context : USUAL_CONTEXT;
    if (t->a->context > most && d->context)
        return err_set(err, "--context is %" PRId64 ", but the model was made for %" PRId64 " tokens", t->a->context,
                       most);
    t->max_len = (int)(t->a->context ? t->a->context : most < USUAL_CONTEXT ? most : USUAL_CONTEXT);
    EngineConf c = engine_conf(1, t->max_len, ROWS, PAGE);
    t->reader.folder = NULL;      /* whoever types may show any file */
    if (t->reader.pictures.takes) /* a conversation's pictures are some of its tokens */
        c.feats = t->max_len, c.patches = (int64_t)t->max_len * d->vis.merge * d->vis.merge;
    OpenOpts opts = { .threads = t->a->threads, .leaves = t->a->leaves };
    TRY(open_weights(&t->o, &opts, engine_tmp_bytes(&t->o.desc, &c, open_kind(&t->o, t->a->leaves)), err));
    t->engine = engine_open(&t->o.model, &c, &t->o.mem);
    buf_puts(&t->talk, "{\"messages\":[");
    if (t->a->system) say(t, "system", t->a->system, strlen(t->a->system));
    t->no_turns = t->talk.n;
    return true;
}

enum { UNSAID = -99 }; /* outside of every option's range */

/* What the command line left open is what generation_config.json says; where that says nothing, the plain distribution.
 * A folder that says do_sample: false is greedy. */
static bool as_the_model_likes(SamplingArgs *s, const char *dir, Err *err) {
    Mem mem = { 0 };
    Buf text = { 0 };
    Json j;
    const char *path = mem_printf(&mem, "%s/generation_config.json", dir);
    bool there = file_exists(path), sample = true, ok = true;
    double t = 1, p = 1, min_p = 0;
    int64_t k = 0;
    if (there)
        ok = (file_read(&text, path, err) && json_parse(&j, text.data ? text.data : "", text.n, &mem, err)
              && json_bool(&j, "do_sample", &sample, err) && json_real(&j, "temperature", &t, err)
              && json_real(&j, "top_p", &p, err) && json_real(&j, "min_p", &min_p, err)
              && json_int(&j, "top_k", &k, err))
             || err_wrap(err, "%s", path);
    if (ok
        && (t < 0 || t > TEMPERATURE_MOST || (t > 0 && t < TEMPERATURE_LEAST) || !(p > 0 && p <= 1)
            || !(min_p >= 0 && min_p <= 1) || k < -1))
        ok = err_set(err, "%s: temperature, top_p, min_p or top_k is outside of its range", path);
    if (s->temperature == UNSAID) s->temperature = sample ? t : 0;
    if (s->top_p == UNSAID) s->top_p = p;
    if (s->min_p == UNSAID) s->min_p = min_p;
    if (s->top_k == UNSAID) s->top_k = k;
    buf_free(&text);
    mem_free(&mem);
    return ok;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .s = { .temperature = UNSAID, .top_p = UNSAID, .min_p = UNSAID, .top_k = UNSAID, .max_tokens = 256 } };
    const char *model;
    Err err;
    int rc = opt_parse(v, &a, &model, 1, 1, NULL, argc, argv);
    if (rc >= 0) return rc;
    if (a.leaves && !leaves_fit(a.leaves)) return cmd_usage(v, LEAVES_WANTED);
    if (a.s.temperature != UNSAID && (rc = sampling_opts(v, &a.s)) >= 0) return rc;
    sigset_t set = only_interrupt();
    sigprocmask(SIG_BLOCK, &set, NULL); /* before the threads start: they inherit it */
    Talk t = { .v = v, .a = &a, .eyes = isatty(STDOUT_FILENO) };
    t.terminal = t.eyes && isatty(STDIN_FILENO);
    OpenOpts opts = { .threads = a.threads, .device = a.device, .compute = a.compute, .adapter = a.adapter };
    if (!open_desc(&t.o, model, &opts, &err)) return cmd_fail(v, &err);
    if (!as_the_model_likes(&a.s, t.o.desc.dir, &err)) {
        open_close(&t.o);
        return cmd_fail(v, &err);
    }
    LineReader *in = NULL;
    bool ok = open_talk(&t, model, &err) && (in = lines_open("-", &err));
    if (ok) {
        if (t.terminal)
            fprintf(stderr, "%s, context %d tokens.  Ctrl-C ends an answer, Ctrl-D the conversation; /help\n",
                    t.o.desc.arch->name, t.max_len);
        rc = converse(&t, in) ? 0 : 1;
        if (!lines_close(in, &err)) rc = cmd_fail(v, &err);
        if (ferror(stdout) && errno != EPIPE) rc = 1;
    } else rc = cmd_fail(v, &err);
    if (t.engine) engine_close(t.engine);
    buf_free(&t.talk);
    buf_free(&t.said);
    mem_free(&t.mem);
    prompt_reader_close(&t.reader);
    open_close(&t.o);
    return rc;
}

const Verb verb_chat = {
    .name = "chat",
    .usage = "MODEL [--system TEXT] [sampling options]",
    .summary = "talk to a model in the terminal",
    .options = options,
    .run = run,
    .detail =
        "A line is a turn; the answer is shown as it is drawn.  Ctrl-C ends an answer, Ctrl-D or /quit the\n"
        "conversation, /reset begins another, /help says so.  From a pipe, each line is a turn and each answer is\n"
        "followed by a newline.  The same seed and the same turns give the same answers.\n",
};
