/* rates.c - what the machine does in a second: products, memory, and the disk of a folder. */
#include "base/clock.h"
#include "cmd/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { DISK_BYTES = 64 << 20, PIECE = 1 << 20 };

/* Written, brought to the disk, dropped from memory, read. */
static bool disk(Patient *p, const char *dir, Err *err) {
    Mem mem = { 0 };
    char *path = mem_printf(&mem, "%s/.hone-doctor-%d", dir, (int)getpid()), *piece = mem_push(&mem, PIECE);
    for (int i = 0; i < PIECE; i++) piece[i] = (char)(i * 2654435761u >> 24); /* nothing that packs well */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0;
    double t0 = clock_now();
    for (int i = 0; ok && i < DISK_BYTES / PIECE; i++) ok = write(fd, piece, PIECE) == PIECE;
    ok = ok && !fsync(fd);
    p->disk_write = ok ? DISK_BYTES / (clock_now() - t0) : 0;
    if (ok) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    t0 = clock_now();
    for (int i = 0; ok && i < DISK_BYTES / PIECE; i++) ok = pread(fd, piece, PIECE, (off_t)i * PIECE) == PIECE;
    p->disk_read = ok ? DISK_BYTES / (clock_now() - t0) : 0;
    if (!ok) err_set(err, "%.60s: %s", dir, strerror(errno ? errno : EIO));
    if (fd >= 0) close(fd), unlink(path);
    mem_free(&mem);
    return ok;
}

void look_at_rates(Patient *p, const char *dir) {
    Err err;
    struct statvfs v;
    double memory = p->m.memory;
    machine_measure(&p->m);
    p->m.name = NULL;
    if (memory > 0) p->m.memory = p->m.host_memory = memory;
    find(p, "products", STATE_OK, "", "%.0f GFLOP/s (float32, all cores of this process)", p->m.flops / 1e9);
    bool narrow = p->m.bandwidth < 5e9;
    find(p, "memory moves", narrow ? STATE_SLOW : STATE_OK,
         "other programs use the memory, or the machine is very small", "%.1f GB/s", p->m.bandwidth / 1e9);
    double room = statvfs(dir, &v) ? 0 : (double)v.f_bavail * (double)v.f_frsize;
    if (!disk(p, dir, &err)) {
        find(p, "disk", STATE_MISSING, "name a folder that can be written: --dir", "%s", err.msg);
        return;
    }
    State s = p->disk_write < 50e6 || room < 5e9 ? STATE_SLOW : STATE_OK;
    find(p, "disk", s,
         room < 5e9 ? "little room: a checkpoint takes 16 bytes a parameter"
                    : "checkpoints take as long; --dir names another",
         "writes %.0f MB/s, reads %.0f MB/s, %.1f GB free in %.40s", p->disk_write / 1e6, p->disk_read / 1e6,
         room / 1e9, dir);
}
