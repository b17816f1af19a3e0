/* profile.c - when each op began and ended, as a timeline.  Where NVTX's library is on the machine (libnvToolsExt),
 * phases and ops are named to it too, for the profilers that listen there.
 * A backend whose calls return before they are done gives stamps, points of its queue that are read later;
 * on another the clock is enough. */
#include "op/profile.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

#include <dlfcn.h>
#include <string.h>

typedef struct {
    const char *name;
    int64_t rows, cols;
    double host[2], dev[2];
    bool phase, beside; /* beside: of no op of the device's; rows are bytes */
} Span;

enum { STAMPS = 1 << 14, DEEPEST = 16 }; /* stamp 0 is the zero of the others */
struct Profile {
    Span *at;
    int64_t n, most, lost, read; /* spans below 'read' have their device's times */
    int64_t open[DEEPEST];       /* spans that have begun; -1: one that is not kept */
    int depth;
    double zero, begin;                          /* the host's clock at stamp 0; at profile_open */
    int (*push)(const char *name), (*pop)(void); /* NVTX's, or NULL */
};

static void find_ranges(Profile *p) {
    void *lib = dlopen("libnvToolsExt.so.1", RTLD_LAZY | RTLD_LOCAL); /* stays as long as the program */
    if (!lib) return;
    *(void **)&p->push = dlsym(lib, "nvtxRangePushA");
    *(void **)&p->pop = dlsym(lib, "nvtxRangePop");
    if (!p->pop) p->push = NULL;
}

static bool stamps(const Dev *d) { return d->ops->stamp != NULL; }
static int stamp_of(const Profile *p, int64_t span, int end) { return 1 + 2 * (int)(span - p->read) + end; }

/* All stamps are read, and begin anew. */
static void read_stamps(Dev *d) {
    Profile *p = d->profile;
    for (int64_t i = p->read; i < p->n; i++)
        for (int e = 0; e < 2; e++) p->at[i].dev[e] = p->zero + d->ops->stamped(d, stamp_of(p, i, e));
    p->read = p->n;
    d->ops->stamp(d, 0);
    d->ops->stamped(d, 0); /* waits, so the clock is the stamp's */
    p->zero = clock_now();
}

Profile *profile_open(Dev *d, int64_t most, Mem *mem) {
    Profile *p = MEM_NEW(mem, Profile);
    *p = (Profile){ .at = MEM_ARRAY(mem, Span, (size_t)most), .most = most };
    find_ranges(p);
    dev_chain(d, false);
    d->profile = p;
    if (stamps(d)) read_stamps(d);
    p->begin = clock_now();
    return p;
}
void profile_close(Dev *d) {
    if (d->profile && stamps(d)) read_stamps(d);
    d->profile = NULL;
}
void profile_clear(Dev *d) {
    Profile *p = d->profile;
    if (!p) return;
    CHECK(p->depth == 0, "a profile is cleared inside %d phases or ops", p->depth);
    p->n = p->lost = p->read = 0;
    if (stamps(d)) read_stamps(d);
    p->begin = clock_now();
}

static void begin(Dev *d, const char *name, int64_t rows, int64_t cols, bool phase) {
    Profile *p = d->profile;
    CHECK(p->depth < DEEPEST, "more than %d phases one inside the other", DEEPEST);
    if (p->push) p->push(name);
    bool fits = p->n < p->most;
    if (!fits) p->lost++;
    int64_t i = p->open[p->depth++] = fits ? p->n : -1;
    if (!fits) return;
    if (stamps(d) && p->depth == 1 && stamp_of(p, i, 1) > STAMPS / 2) read_stamps(d);
    if (stamps(d) && stamp_of(p, i, 1) >= STAMPS) { /* one long phase: later spans are not kept */
        p->lost++, p->open[p->depth - 1] = -1;
        return;
    }
    p->n++;
    p->at[i] = (Span){ .name = name, .rows = rows, .cols = cols, .phase = phase, .host = { clock_now() } };
    if (stamps(d)) d->ops->stamp(d, stamp_of(p, i, 0));
}
static void end(Dev *d) {
    Profile *p = d->profile;
    CHECK(p->depth > 0, "a phase ends that did not begin");
    if (p->push) p->pop();
    int64_t i = p->open[--p->depth];
    if (i < 0) return;
    if (stamps(d)) d->ops->stamp(d, stamp_of(p, i, 1));
    p->at[i].host[1] = clock_now();
    if (!stamps(d)) memcpy(p->at[i].dev, p->at[i].host, sizeof p->at[i].dev);
}
void profile_begin(Dev *d, const char *op, Tensor out) { begin(d, op, out.rows, out.cols, false); }
void profile_end(Dev *d) { end(d); }
void profile_phase(Dev *d, const char *name) {
    if (!d->profile) return;
    if (name) begin(d, name, 0, 0, true);
    else end(d);
}
void profile_beside(Dev *d, const char *name, int64_t bytes, double from, double to) {
    Profile *p = d->profile;
    CHECK(p->depth == 0, "noted inside %d phases or ops", p->depth);
    if (stamps(d) && p->read < p->n) read_stamps(d);
    if (p->n == p->most) {
        p->lost++;
        return;
    }
    p->at[p->n++] = (Span){ .name = name, .rows = bytes, .dev = { from, to }, .beside = true };
    p->read = p->n;
}
int64_t profile_lost(const Profile *p) { return p->lost; }

int profile_lines(Dev *d, ProfileLine *out, int most) {
    Profile *p = d->profile;
    int n = 0;
    if (stamps(d)) read_stamps(d);
    for (int64_t i = 0; i < p->n; i++) {
        const Span *s = &p->at[i];
        if (s->phase || s->beside) continue;
        int k = 0;
        while (k < n && !(out[k].rows == s->rows && out[k].cols == s->cols && !strcmp(out[k].op, s->name))) k++;
        if (k == most) continue;
        if (k == n) out[n++] = (ProfileLine){ s->name, s->rows, s->cols, 0, 0 };
        out[k].calls++, out[k].seconds += s->dev[1] - s->dev[0];
    }
    for (int i = 1; i < n; i++) /* a few dozen */
        for (int k = i; k > 0 && out[k].seconds > out[k - 1].seconds; k--) {
            ProfileLine t = out[k];
            out[k] = out[k - 1], out[k - 1] = t;
        }
    return n;
}

/* Tracks: 1 ops on the device, 2 its phases, 3 and 4 the same as the host asked for them; 5 what ran beside. */
static void put_event(Buf *b, const Span *s, const double *t, int track, double zero) {
    buf_printf(b, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":", track + s->phase);
    json_put_str(b, s->name, strlen(s->name));
    buf_printf(b, ",\"ts\":%.3f,\"dur\":%.3f", (t[0] - zero) * 1e6, (t[1] - t[0]) * 1e6);
    if (s->beside) buf_printf(b, ",\"args\":{\"bytes\":%lld}", (long long)s->rows);
    else if (!s->phase)
        buf_printf(b, ",\"args\":{\"rows\":%lld,\"cols\":%lld}", (long long)s->rows, (long long)s->cols);
    buf_putc(b, '}');
}
bool profile_write(Dev *d, const char *path, Err *err) {
    static const char *const track[] = { "device: ops", "device: phases", "host: ops", "host: phases", "beside" };
    Profile *p = d->profile;
    Buf b = { 0 };
    if (stamps(d)) read_stamps(d);
    buf_printf(&b, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
                   "\"args\":{\"name\":\"hone\"}}");
    for (int i = 0; i < (stamps(d) ? 5 : 2); i++)
        buf_printf(&b, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                   i + 1, track[i]);
    for (int64_t i = 0; i < p->n; i++) {
        put_event(&b, &p->at[i], p->at[i].dev, p->at[i].beside ? 5 : 1, p->begin);
        if (stamps(d) && !p->at[i].beside) put_event(&b, &p->at[i], p->at[i].host, 3, p->begin);
    }
    buf_printf(&b, "\n],\"lost\":%lld}\n", (long long)p->lost);
    bool ok = file_write(path, b.data, b.n, err);
    buf_free(&b);
    return ok;
}
