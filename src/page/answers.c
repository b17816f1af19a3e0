/* answers.c - the index of the answers, and lists of some of them.
 *
 * A list is kept as it was found and goes on where it stopped, so that a page can ask for a window of it again and
 * again while the run writes.  Text is looked for in the raw line first (as JSON has it written), which a memory's
 * speed bounds; only where that may be wrong is the line read as a tree. */
#include "page/answers.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/sort.h" /* sort_key_f32 */

#include <math.h>
#include <string.h>

static void list_free(AnswerList *l) {
    vec_free(l->id);
    vec_free(l->sorted);
    mem_free(&l->mem);
    *l = (AnswerList){ 0 };
}

void answers_free(Answers *a) {
    for (int i = 0; i < LISTS_MOST; i++) list_free(&a->list[i]);
    vec_free(a->all.at);
    mem_free(&a->mem);
    *a = (Answers){ 0 };
}

static uint8_t finish_of(Answers *a, Span s) {
    if (!a->n_finish) a->finish[a->n_finish++] = "";
    for (int i = 0; i < a->n_finish; i++)
        if (span_eq(s, span_of(a->finish[i]))) return (uint8_t)i;
    if (a->n_finish == FINISH_MOST || s.n > 64 || memchr(s.at, 0, s.n)) return 0;
    a->finish[a->n_finish] = mem_str(&a->mem, s.at, s.n);
    return (uint8_t)a->n_finish++;
}

static int64_t whole(const Member *m, int64_t most) {
    double v = scan_number(m);
    return v >= 0 && v <= (double)most ? (int64_t)v : -1;
}

/* The numbers stand at the line's beginning: what is behind them is not looked at. */
void answers_line(Answers *a, const char *line, size_t n, int64_t at) {
    enum { ALL = 7 };
    Answer x = { .at = at, .n = (int32_t)n, .step = -1, .row = -1, .sample = -1, .tokens = -1 };
    x.score = x.advantage = NAN;
    Member m;
    Scan s = scan_of(line, n);
    for (int found = 0; found < ALL && scan_next(&s, &m);) {
        found++;
        if (scan_is(&m, "step")) x.step = (int32_t)whole(&m, INT32_MAX);
        else if (scan_is(&m, "row")) x.row = whole(&m, 1ll << 52);
        else if (scan_is(&m, "sample")) x.sample = (int32_t)whole(&m, INT32_MAX);
        else if (scan_is(&m, "score")) x.score = (float)scan_number(&m);
        else if (scan_is(&m, "advantage")) x.advantage = (float)scan_number(&m);
        else if (scan_is(&m, "finish") && m.kind == '"') x.finish = finish_of(a, m.value);
        else if (scan_is(&m, "tokens")) x.tokens = (int32_t)whole(&m, INT32_MAX);
        else found--;
    }
    if (s.bad || x.step < 0 || a->all.n >= UINT32_MAX - 1) {
        a->damaged++;
        return;
    }
    VEC_PUSH(a->all, x);
}

/* ---- text */
static bool value_says(const Json *j, const char *text, size_t n) {
    if (j->kind == JSON_STRING) return memmem(j->str, j->n, text, n) != NULL;
    for (size_t i = 0; j->kind == JSON_ARRAY && i < j->n; i++)
        if (value_says(&j->items[i], text, n)) return true;
    for (size_t i = 0; j->kind == JSON_OBJECT && i < j->n; i++)
        if (value_says(&j->members[i].value, text, n)) return true;
    return false;
}

static bool tree_says(const char *line, size_t n, const char *text) {
    static const char *const read[] = { "input", "output", "gts", "reason", "turns" };
    Mem mem = { 0 };
    Json j;
    Err ignore;
    bool says = false;
    if (json_parse(&j, line, n, &mem, &ignore))
        for (size_t i = 0; i < COUNT(read) && !says; i++) {
            const Json *v = json_get(&j, read[i]);
            says = v && value_says(v, text, strlen(text));
        }
    mem_free(&mem);
    return says;
}

/* As JSON has it written, or with escapes that hone does not write. */
static bool may_say(const char *bytes, size_t n, const char *text) {
    Buf raw = { 0 };
    json_put_str(&raw, text, strlen(text));
    bool may = memmem(bytes, n, raw.data + 1, raw.n - 2) != NULL;
    const char *end = bytes + n;
    for (const char *p = bytes; !may && (p = memchr(p, '\\', (size_t)(end - p))) && p + 1 < end; p += 2)
        may = p[1] == 'u' || p[1] == '/';
    buf_free(&raw);
    return may;
}

bool answer_says(const char *line, size_t n, const char *text) {
    return may_say(line, n, text) && tree_says(line, n, text);
}

/* ---- lists */
static bool same_wanted(const Wanted *a, const Wanted *b) {
    bool min = a->min == b->min || (isnan(a->min) && isnan(b->min));
    bool max = a->max == b->max || (isnan(a->max) && isnan(b->max));
    return a->from == b->from && a->to == b->to && min && max && a->row == b->row && a->order == b->order
           && !strcmp(a->finish, b->finish) && !strcmp(a->text, b->text);
}

static AnswerList *list_for(Answers *a, const Wanted *w) {
    AnswerList *oldest = &a->list[0];
    for (int i = 0; i < LISTS_MOST; i++) {
        AnswerList *l = &a->list[i];
        if (l->used && same_wanted(&l->wanted, w)) return l;
        if (!l->used || (oldest->used && l->last_used < oldest->last_used)) oldest = l;
    }
    list_free(oldest);
    oldest->used = true;
    oldest->wanted = *w;
    oldest->wanted.finish = mem_str(&oldest->mem, w->finish, strlen(w->finish));
    oldest->wanted.text = mem_str(&oldest->mem, w->text, strlen(w->text));
    return oldest;
}

static bool numbers_fit(const Answers *a, const Answer *x, const Wanted *w) {
    if (x->step < w->from || x->step > w->to) return false;
    if (!isnan(w->min) && !(x->score >= (float)w->min)) return false;
    if (!isnan(w->max) && !(x->score <= (float)w->max)) return false;
    if (w->row >= 0 && x->row != w->row) return false;
    return !*w->finish || !strcmp(a->finish[x->finish], w->finish);
}

/* A piece of the file that holds whole lines, beginning with that of x. */
typedef struct {
    Buf bytes;
    int64_t at;
    bool may; /* the text can be in it */
} Piece;

static bool piece_holds(const Piece *p, const Answer *x) {
    return x->at >= p->at && x->at + x->n <= p->at + (int64_t)p->bytes.n;
}

static void piece_read(Piece *p, const Follow *file, const Answers *a, size_t from, const char *text) {
    enum { PIECE = 1 << 20 };
    const Answer *x = &a->all.at[from], *last = x;
    for (size_t i = from; i < a->all.n && a->all.at[i].at + a->all.at[i].n - x->at <= PIECE; i++) last = &a->all.at[i];
    size_t n = (size_t)(last->at + last->n - x->at);
    buf_clear(&p->bytes);
    buf_reserve(&p->bytes, n);
    p->bytes.n = follow_bytes(file, x->at, n, p->bytes.data) ? n : 0;
    p->at = x->at;
    p->may = may_say(p->bytes.data, p->bytes.n, text);
}

static bool says(const Answers *a, const Follow *file, size_t i, const char *text, Piece *p) {
    const Answer *x = &a->all.at[i];
    if (!piece_holds(p, x)) piece_read(p, file, a, i, text);
    return p->may && piece_holds(p, x) && answer_says(p->bytes.data + (x->at - p->at), (size_t)x->n, text);
}

/* A pass of a radix sort, which keeps the order of equals: a million in a few milliseconds. */
static void by_byte(uint64_t *to, const uint64_t *from, size_t n, int shift) {
    size_t at[257] = { 0 };
    for (size_t i = 0; i < n; i++) at[1 + (from[i] >> shift & 255)]++;
    for (int k = 0; k < 256; k++) at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++) to[at[from[i] >> shift & 255]++] = from[i];
}

static void swap(uint64_t **a, uint64_t **b) {
    uint64_t *t = *a;
    *a = *b, *b = t;
}

/* Those without a score come last, in either order. */
static void sort_by_score(Answers *a, AnswerList *l) {
    bool down = l->wanted.order == BY_SCORE_DOWN;
    if (l->sorted && l->sorted_n == l->n) return;
    l->sorted = vec_grow(l->sorted, &l->sorted_cap, l->n ? l->n : 1, sizeof *l->sorted);
    l->sorted_n = l->n;
    Mem mem = { 0 };
    uint64_t *key = MEM_ARRAY(&mem, uint64_t, l->n), *other = MEM_ARRAY(&mem, uint64_t, l->n);
    for (size_t i = 0; i < l->n; i++) {
        float s = a->all.at[l->id[i]].score;
        uint32_t k = isnan(s) ? UINT32_MAX : down ? ~sort_key_f32(s) : sort_key_f32(s);
        key[i] = (uint64_t)k << 32 | l->id[i];
    }
    for (int shift = 32; shift < 64; shift += 8) by_byte(other, key, l->n, shift), swap(&key, &other);
    for (size_t i = 0; i < l->n; i++) l->sorted[i] = (uint32_t)key[i];
    mem_free(&mem);
}

AnswerList *answers_find(Answers *a, const Follow *file, const Wanted *w, double seconds) {
    enum { OFTEN = 256 }; /* how many are looked at between two looks at the clock */
    AnswerList *l = list_for(a, w);
    l->last_used = ++a->clock;
    double until = clock_now() + seconds;
    Piece piece = { 0 };
    for (uint32_t k = 0; l->scanned < a->all.n && (k % OFTEN || clock_now() < until); k++) {
        const char *text = l->wanted.text;
        if (numbers_fit(a, &a->all.at[l->scanned], &l->wanted) && (!*text || says(a, file, l->scanned, text, &piece))) {
            l->id = vec_grow(l->id, &l->cap, l->n + 1, sizeof *l->id);
            l->id[l->n++] = l->scanned;
        }
        l->scanned++;
    }
    buf_free(&piece.bytes);
    if (w->order == BY_SCORE || w->order == BY_SCORE_DOWN) sort_by_score(a, l);
    return l;
}

uint32_t list_id(const AnswerList *l, size_t i) {
    if (l->wanted.order == BY_STEP_DOWN) return l->id[l->n - 1 - i];
    return l->wanted.order == BY_STEP ? l->id[i] : l->sorted[i];
}
