/* tensorboard.c - an event file that TensorBoard reads.
 * Field numbers are those of tensorflow/core/util/event.proto and summary.proto. */
#include "run/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

uint32_t crc32c(const void *data, size_t n) {
    static const uint32_t POLY = 0x82F63B78u; /* reversed Castagnoli; a nibble at a time is fast enough for kilobytes */
    uint32_t table[16], crc = ~0u;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t x = i;
        for (int b = 0; b < 4; b++) x = x & 1 ? x >> 1 ^ POLY : x >> 1;
        table[i] = x;
    }
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) {
        crc = table[(crc ^ p[i]) & 15] ^ crc >> 4;
        crc = table[(crc ^ p[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}

/* So that a record that holds records does not have their checksums as its own. */
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; }

struct TbWriter {
    Mem mem;
    FILE *file;
    char *path;
    int64_t step;
    Buf summary, event, record, value;
};

static void put_le(Buf *b, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) buf_putc(b, (char)(x >> 8 * i));
}

static void put_varint(Buf *b, uint64_t x) {
    for (; x >= 128; x >>= 7) buf_putc(b, (char)(x | 128));
    buf_putc(b, (char)x);
}

static void put_bytes(Buf *b, int field, const void *data, size_t n) {
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    buf_put(b, data, n);
}

/* Event { wall_time = 1; step = 2; file_version = 3 | summary = 5 | session_log = 7 } */
static bool put_event(TbWriter *w, int64_t step, int what, const void *data, size_t n, Err *err) {
    struct timeval now;
    gettimeofday(&now, NULL);
    double wall = (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
    uint64_t bits;
    memcpy(&bits, &wall, 8);
    buf_clear(&w->event);
    put_varint(&w->event, 1 << 3 | 1);
    put_le(&w->event, bits, 8);
    put_varint(&w->event, 2 << 3);
    put_varint(&w->event, (uint64_t)step);
    put_bytes(&w->event, what, data, n);

    buf_clear(&w->record);
    put_le(&w->record, w->event.n, 8);
    put_le(&w->record, masked(crc32c(w->record.data, 8)), 4);
    buf_put(&w->record, w->event.data, w->event.n);
    put_le(&w->record, masked(crc32c(w->event.data, w->event.n)), 4);
    if (fwrite(w->record.data, 1, w->record.n, w->file) != w->record.n || fflush(w->file))
        return err_set(err, "%s: cannot write: %s", w->path, strerror(errno));
    return true;
}

#define NAME "events.out.tfevents."

/* TensorBoard reads the files of a folder in the order of their names: a new one's time is behind that of all there
 * are, also when the clock went back. */
static long long time_behind(const char *dir, long long now) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *digits = e->d_name + strlen(NAME);
        if (strncmp(e->d_name, NAME, strlen(NAME)) || strspn(digits, "0123456789") != 10 || digits[10] != '.') continue;
        long long time = strtoll(digits, NULL, 10);
        if (time >= now && time < 9999999999) now = time + 1;
    }
    if (d) closedir(d);
    return now;
}

TbWriter *tb_open(const char *dir, int64_t first_step, Err *err) {
    char host[128] = "host";
    gethostname(host, sizeof host - 1);
    Mem mem = { 0 };
    struct timeval now;
    gettimeofday(&now, NULL);
    char *path = mem_printf(&mem, "%s/" NAME "%010lld.%s.%d", dir, time_behind(dir, now.tv_sec), host, (int)getpid());
    FILE *f = fopen(path, "wbe");
    if (!f) {
        err_set(err, "%s: cannot create: %s", path, strerror(errno));
        mem_free(&mem);
        return NULL;
    }
    TbWriter *w = MEM_NEW(&mem, TbWriter);
    w->file = f, w->path = path, w->mem = mem;
    static const char version[] = "brain.Event:2", start[] = { 1 << 3, 1 }; /* SessionLog { status = START } */
    Err ignore;
    if (put_event(w, 0, 3, version, strlen(version), err) && put_event(w, first_step, 7, start, sizeof start, err))
        return w;
    tb_close(w, &ignore);
    return NULL;
}

void tb_begin(TbWriter *w, int64_t step) {
    w->step = step;
    buf_clear(&w->summary);
}

/* Summary { repeated Value value = 1 { tag = 1; simple_value = 2 } } */
void tb_scalar(TbWriter *w, const char *tag, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    buf_clear(&w->value);
    put_bytes(&w->value, 1, tag, strlen(tag));
    put_varint(&w->value, 2 << 3 | 5);
    put_le(&w->value, bits, 4);
    put_bytes(&w->summary, 1, w->value.data, w->value.n);
}

bool tb_end(TbWriter *w, Err *err) { return put_event(w, w->step, 5, w->summary.data, w->summary.n, err); }

bool tb_close(TbWriter *w, Err *err) {
    bool ok = !fclose(w->file) || err_set(err, "%s: cannot write: %s", w->path, strerror(errno));
    Buf *all[] = { &w->summary, &w->event, &w->record, &w->value };
    for (size_t i = 0; i < COUNT(all); i++) buf_free(all[i]);
    Mem mem = w->mem;
    mem_free(&mem);
    return ok;
}
