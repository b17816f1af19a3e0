/* ask.c - the engine's thread, the line before it, and what comes back.
 *
 * One lock holds the two lists that both threads see: commands (requests to take, requests to drop) and requests for
 * which pieces have come.  A step's pieces are gathered without it and told at its end. */
#include "ask/ask.h"
#include "ask/stops.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct Asked {
    Wish w;
    SampleOpts opts; /* the engine's: a prompt that is only scored has one token drawn, which nobody sees */
    Stops **stops;   /* [samples], opened by the first token */
    size_t *shown;   /* [samples] bytes of its text that were told */
    int left;        /* answers that have not ended; the engine's thread's own, as what follows */
    Pieces fresh;    /* of this step */
    int n_told;      /* likeliest tokens of the last place that was told */
    bool stirred;
    /* under the lock */
    Pieces come;
    bool in_line, in_engine, listed, dropped;
    int ended; /* answers whose last piece is in come, or was taken */
    /* the asker's own */
    int taken; /* answers whose last piece it has */
    Asked *next, *next_come, *next_stirred;
};

typedef struct {
    Asked *first, **end;
} Line;
static void line_put(Line *l, Asked *q) { q->next = NULL, *l->end = q, l->end = &q->next; }
static Asked *line_take(Line *l) {
    Asked *q = l->first;
    if (q && !(l->first = q->next)) l->end = &l->first;
    return q;
}

struct Ask {
    Mem mem;
    Engine *e;
    const Tok *tok;
    AskConf c;
    Feed feed;
    pthread_t thread;
    int fd;
    Asked *stirred; /* has pieces of this step */
    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t more;
    Line line, drop; /* line: waits for the engine; drop: was the engine's, or is */
    int waiting, given;
    Asked *come, **come_end;
    bool closing;
    AskStats stats;
};

void pieces_clear(Pieces *p) {
    p->at.n = p->top.n = 0;
    buf_clear(&p->text);
}
void pieces_free(Pieces *p) {
    vec_free(p->at.at);
    vec_free(p->top.at);
    buf_free(&p->text);
}

Asked *asked_open(void) {
    Mem mem = { 0 };
    Asked *q = MEM_NEW(&mem, Asked);
    q->w.mem = mem;
    return q;
}
void asked_close(Asked *q) {
    for (int i = 0; q->stops && i < q->w.s.samples; i++) stops_close(q->stops[i]);
    pieces_free(&q->fresh);
    pieces_free(&q->come);
    Mem mem = q->w.mem;
    mem_free(&mem);
}
Wish *asked_wish(Asked *q) { return &q->w; }
bool asked_over(const Asked *q) { return q->taken == q->w.s.samples; }

/* ---- what the engine says: on its thread */
static Came *piece(Asked *q, int sample) {
    VEC_PUSH(q->fresh.at, (Came){ .sample = sample, .stop = -1 });
    return &q->fresh.at.at[q->fresh.at.n - 1];
}
static void stir(Ask *a, Asked *q) {
    if (q->stirred) return;
    q->stirred = true, q->next_stirred = a->stirred, a->stirred = q;
}

static void on_told(void *user, const Request *r, int sample, int at, Likely token, const Likely *top, int n) {
    (void)user;
    Asked *q = r->user;
    for (int i = 0; i < n; i++) VEC_PUSH(q->fresh.top, top[i]);
    q->n_told = n;
    if (at >= r->n) return; /* on_token will come for this place; for those of a step in one order */
    Came *p = piece(q, sample);
    p->token = true, p->id = token.id, p->lp = token.lp, p->place = at, p->n_top = n;
}

static bool on_token(void *user, const Request *r, int sample, int32_t id, float lp) {
    Ask *a = user;
    Asked *q = r->user;
    size_t settled = 0;
    bool stop = false;
    stir(a, q);
    if (q->w.score_only) {
        if (q->opts.top) q->fresh.top.n -= (size_t)q->n_told; /* of what nobody sees */
        return true;
    }
    if (!q->stops[sample] && a->tok) q->stops[sample] = stops_open(a->tok, q->w.s.stop, q->w.s.n_stop);
    Came *p = piece(q, sample);
    p->token = true, p->id = id, p->lp = lp, p->place = INT32_MAX, p->n_top = q->opts.top ? q->n_told : 0;
    if (!a->tok) return false;
    stop = stops_push(q->stops[sample], id);
    const char *text = stops_settled(q->stops[sample], &settled);
    if (settled > q->shown[sample]) {
        p->text_n = settled - q->shown[sample];
        buf_put(&q->fresh.text, text + q->shown[sample], p->text_n);
        q->shown[sample] = settled;
    }
    return stop;
}

static void on_answer(void *user, const Answer *x) {
    Ask *a = user;
    Asked *q = x->request->user;
    stir(a, q);
    Came *p = piece(q, x->sample);
    p->ends = true, p->finish = x->finish;
    Stops *s = q->stops[x->sample];
    if (s) {
        Buf all = { 0 };
        stops_text(s, &all);
        p->stop = stops_which(s);
        if (all.n > q->shown[x->sample]) {
            p->text_n = all.n - q->shown[x->sample];
            buf_put(&q->fresh.text, all.data + q->shown[x->sample], p->text_n);
        }
        buf_free(&all);
        stops_close(s);
        q->stops[x->sample] = NULL;
    }
    q->left--;
}

/* ---- the engine's thread */
static void append(Pieces *to, const Pieces *from) {
    for (size_t i = 0; i < from->at.n; i++) VEC_PUSH(to->at, from->at.at[i]);
    for (size_t i = 0; i < from->top.n; i++) VEC_PUSH(to->top, from->top.at[i]);
    if (from->text.n) buf_put(&to->text, from->text.data, from->text.n);
}

/* A step's pieces go to those who asked. */
static void tell(Ask *a) {
    bool any = false;
    pthread_mutex_lock(&a->lock);
    for (Asked *q = a->stirred, *next; q; q = next) {
        next = q->next_stirred;
        q->stirred = false;
        if (q->dropped) {
            pieces_clear(&q->fresh);
            continue;
        }
        for (size_t i = 0; i < q->fresh.at.n; i++) q->ended += q->fresh.at.at[i].ends;
        if (!q->come.at.n) { /* nothing was left: no copy */
            Pieces empty = q->come;
            q->come = q->fresh, q->fresh = empty;
        } else append(&q->come, &q->fresh);
        pieces_clear(&q->fresh);
        if (q->come.at.n && !q->listed)
            q->listed = true, q->next_come = NULL, *a->come_end = q, a->come_end = &q->next_come;
        any = true;
        if (!q->left) a->given--, q->in_engine = false; /* from here on it is the asker's alone */
    }
    a->stirred = NULL;
    const EngineStats *st = engine_stats(a->e);
    a->stats.tokens = st->tokens, a->stats.prompt_tokens = st->prompt_tokens;
    pthread_mutex_unlock(&a->lock);
    uint64_t one = 1;
    if (any && write(a->fd, &one, sizeof one) < 0) CHECK(errno == EAGAIN, "a wake-up: %s", strerror(errno));
}

static Request request_of(Asked *q) {
    const PromptLine *l = &q->w.line;
    uint64_t key = l->has_key ? l->key : request_key(l->tokens, l->n);
    for (int i = 0; i < l->pictures.n && !l->has_key; i++) key ^= l->pictures.at[i].picture->key[0];
    return (Request){ l->tokens, l->n, q->w.s.samples, key, &q->opts, q, .spans = l->pictures };
}

/* Those that nobody wants any more leave.  Under the lock. */
static void drops(Ask *a) {
    for (Asked *q; (q = line_take(&a->drop));) {
        if (q->in_engine) {
            engine_drop(a->e, &a->feed, q);
            a->given--;
        }
        for (Asked **at = &a->stirred; *at; at = &(*at)->next_stirred)
            if (*at == q) {
                *at = q->next_stirred;
                break;
            }
        asked_close(q);
    }
}

/* Whoever finds room comes in, in the line's order.  Without the lock while the engine looks at it: pictures take
 * time. */
static void admit(Ask *a) {
    for (bool room = true; room;) {
        pthread_mutex_lock(&a->lock);
        Asked *q = a->closing ? NULL : line_take(&a->line);
        if (q) q->in_line = false, q->in_engine = true, a->waiting--, a->given++;
        pthread_mutex_unlock(&a->lock);
        if (!q) return;
        Request r = request_of(q);
        room = engine_add(a->e, &r);
        if (room) continue;
        pthread_mutex_lock(&a->lock);
        q->in_engine = false, a->given--;
        if (!q->dropped) {
            if (!(q->next = a->line.first)) a->line.end = &q->next;
            a->line.first = q, q->in_line = true, a->waiting++;
        }
        pthread_mutex_unlock(&a->lock);
    }
}

static void *work(void *arg) {
    Ask *a = arg;
    engine_begin(a->e);
    for (;;) {
        pthread_mutex_lock(&a->lock);
        while (!a->closing && engine_idle(a->e) && !a->line.first && !a->drop.first)
            pthread_cond_wait(&a->more, &a->lock);
        drops(a);
        bool end = a->closing;
        pthread_mutex_unlock(&a->lock);
        if (end) return NULL;
        admit(a);
        if (!engine_idle(a->e)) engine_step(a->e, &a->feed);
        tell(a);
    }
}

/* ---- the asker's */
Ask *ask_open(Engine *e, const Tok *tok, const AskConf *c, Err *err) {
    Mem mem = { 0 };
    Ask *a = MEM_NEW(&mem, Ask);
    *a = (Ask){ .mem = mem, .e = e, .tok = tok, .c = *c };
    a->line.end = &a->line.first, a->drop.end = &a->drop.first, a->come_end = &a->come;
    a->feed = (Feed){ .token = on_token, .answer = on_answer, .told = on_told, .user = a, .step = c->step };
    a->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    sigset_t all, old; /* signals are the asker's thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = a->fd < 0 ? errno : pthread_create(&a->thread, NULL, work, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed) return a;
    err_set(err, "no thread for the engine: %s", strerror(failed));
    if (a->fd >= 0) close(a->fd);
    mem_free(&mem);
    return NULL;
}

void ask_close(Ask *a) {
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    close(a->fd);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->more);
    Mem mem = a->mem;
    mem_free(&mem);
}

int ask_fd(const Ask *a) { return a->fd; }

bool ask_put(Ask *a, Asked *q) {
    Wish *w = &q->w;
    q->opts = w->s.opts;
    if (w->score_only) q->opts.max_tokens = 1;
    q->stops = MEM_ARRAY(&w->mem, Stops *, (size_t)w->s.samples);
    q->shown = MEM_ARRAY(&w->mem, size_t, (size_t)w->s.samples);
    q->left = w->s.samples;
    pthread_mutex_lock(&a->lock);
    bool room = a->waiting < a->c.most_waiting;
    if (room) {
        line_put(&a->line, q);
        q->in_line = true, a->waiting++, a->stats.requests++;
        pthread_cond_signal(&a->more);
    }
    pthread_mutex_unlock(&a->lock);
    return room;
}

static void unlink_from(Line *l, Asked *q) {
    Asked **at = &l->first;
    while (*at && *at != q) at = &(*at)->next;
    if (!*at) return;
    if (!(*at = q->next)) l->end = at;
}

void ask_drop(Ask *a, Asked *q) {
    pthread_mutex_lock(&a->lock);
    q->dropped = true;
    a->stats.dropped++;
    if (q->listed) {
        Asked **at = &a->come;
        while (*at != q) at = &(*at)->next_come;
        if (!(*at = q->next_come)) a->come_end = at;
    }
    if (q->in_line) unlink_from(&a->line, q), a->waiting--;
    line_put(&a->drop, q);
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
}

Asked *ask_came(Ask *a) {
    uint64_t n;
    pthread_mutex_lock(&a->lock);
    Asked *q = a->come;
    if (q && !(a->come = q->next_come)) a->come_end = &a->come;
    if (q) q->listed = false;
    else if (read(a->fd, &n, sizeof n) < 0) CHECK(errno == EAGAIN, "a wake-up: %s", strerror(errno));
    pthread_mutex_unlock(&a->lock);
    return q;
}

void ask_take(Ask *a, Asked *q, Pieces *out) {
    pieces_clear(out);
    pthread_mutex_lock(&a->lock);
    Pieces had = *out;
    *out = q->come, q->come = had;
    q->taken = q->ended;
    pthread_mutex_unlock(&a->lock);
}

AskStats ask_stats(Ask *a) {
    pthread_mutex_lock(&a->lock);
    AskStats s = a->stats;
    s.waiting = a->waiting, s.running = a->given;
    pthread_mutex_unlock(&a->lock);
    return s;
}
