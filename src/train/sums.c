/* sums.c - see sums.h.  With zlib's own start and end (all ones) the sum is right as it stands: crc(AB) = moved(crc(A),
 * |B|) ^ crc(B), which is what crc32_combine does. */
#include "train/sums.h"

#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

static uint32_t moved(uint32_t crc, int64_t over) { return (uint32_t)crc32_combine(crc, 0, (z_off_t)over); }

size_t sums_file(Sums *s, const char *name, int64_t header, int64_t bytes, int64_t piece) {
    SumFile f = { name, bytes, s->piece.n, 0 };
    for (int64_t at = 0, n; at < bytes || !f.n; at += n) {
        n = at < header ? header : piece > 0 ? piece : SUMS_PIECE;
        if (n > bytes - at) n = bytes - at;
        VEC_PUSH(s->piece, (SumPiece){ .at = at, .bytes = n });
        f.n++;
    }
    VEC_PUSH(s->file, f);
    return s->file.n - 1;
}

void sums_free(Sums *s) {
    vec_free(s->file.at);
    vec_free(s->piece.at);
    *s = (Sums){ 0 };
}

static SumPiece *piece_at(Sums *s, size_t file, int64_t at) {
    const SumFile *f = &s->file.at[file];
    size_t low = f->first, high = f->first + f->n;
    CHECK(at >= 0 && at < f->bytes, "byte %" PRId64 " of %s, which has %" PRId64, at, f->name, f->bytes);
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (s->piece.at[mid].at <= at) low = mid;
        else high = mid;
    }
    return &s->piece.at[low];
}

static uint32_t crc_of(const char *bytes, size_t n) {
    enum { MOST = 1 << 30 }; /* zlib counts in unsigned int */
    uLong c = crc32(0, NULL, 0);
    for (size_t k; n; bytes += k, n -= k) k = n < MOST ? n : MOST, c = crc32(c, (const Bytef *)bytes, (uInt)k);
    return (uint32_t)c;
}

void sums_add(Sums *s, size_t file, int64_t at, const void *bytes, size_t n) {
    for (const char *b = bytes; n;) {
        SumPiece *p = piece_at(s, file, at);
        int64_t left = p->at + p->bytes - at, k = (int64_t)n < left ? (int64_t)n : left;
        p->crc ^= moved(crc_of(b, (size_t)k), left - k);
        p->have += k;
        b += k, at += k, n -= (size_t)k;
    }
}

void sums_put(const Sums *s, Buf *out) {
    for (size_t i = 0; i < s->piece.n; i++)
        if (s->piece.at[i].have)
            buf_printf(out, "%zu %" PRId64 " %" PRIu32 "\n", i, s->piece.at[i].have, s->piece.at[i].crc);
}

bool sums_take(Sums *s, const char *text) {
    while (*text) {
        char *end[3];
        unsigned long long i = strtoull(text, &end[0], 10);
        long long have = strtoll(end[0], &end[1], 10);
        unsigned long long crc = strtoull(end[1], &end[2], 10);
        if (end[0] == text || end[1] == end[0] || end[2] == end[1] || *end[2] != '\n') return false;
        if (i >= s->piece.n || have < 0 || crc > UINT32_MAX) return false;
        s->piece.at[i].have += have, s->piece.at[i].crc ^= (uint32_t)crc;
        text = end[2] + 1;
    }
    return true;
}

bool sums_whole(const Sums *s, size_t file, uint32_t *crc) {
    const SumFile *f = &s->file.at[file];
    uLong c = crc32(0, NULL, 0);
    bool all = true;
    for (const SumPiece *p = s->piece.at + f->first; p < s->piece.at + f->first + f->n; p++) {
        all = all && p->have == p->bytes;
        c = crc32_combine(c, p->crc, (z_off_t)p->bytes);
    }
    *crc = (uint32_t)c;
    return all;
}

/* Some pieces at a time, so that room does not grow with the ranks. */
static void share_over(Sums *s, const Comm *c) {
    enum { ROOM = 1 << 20 };
    if (c->size == 1) return;
    size_t most = ROOM / (size_t)c->size + 1;
    Mem mem = { 0 };
    SumPiece *all = MEM_ARRAY(&mem, SumPiece, most * (size_t)c->size);
    for (size_t at = 0; at < s->piece.n; at += most) {
        size_t n = s->piece.n - at < most ? s->piece.n - at : most;
        comm_gather_host(c, all, s->piece.at + at, n * sizeof *all);
        for (size_t i = 0; i < n; i++) {
            SumPiece *p = &s->piece.at[at + i];
            p->crc = 0, p->have = 0;
            for (int r = 0; r < c->size; r++)
                p->crc ^= all[(size_t)r * n + i].crc, p->have += all[(size_t)r * n + i].have;
        }
    }
    mem_free(&mem);
}

void sums_share(Sums *s, const Groups *g) {
    share_over(s, &g->tp);
    share_over(s, &g->dense);
    share_over(s, &g->pp);
}

const SumPiece *sums_wrong(const Sums *s, const SumFile **file) {
    for (size_t k = 0; k < s->file.n; k++) {
        *file = &s->file.at[k];
        for (size_t i = 1; i < (*file)->n; i++) {
            const SumPiece *p = &s->piece.at[(*file)->first + i];
            if (p->have != p->bytes || p->crc != p->want) return p;
        }
    }
    return NULL;
}
