/* follow.h - a file of lines that somebody else writes, read as it grows: a line counts when its newline is there.
 *
 * A run that goes on after a kill cuts lines off, and another run may take a file's place: what was read last is
 * looked at again each time, and where it is not there any more everything begins anew.  Nothing is mapped: a file that
 * becomes shorter is no fault. */
#ifndef PAGE_FOLLOW_H
#define PAGE_FOLLOW_H

#include "base/base.h"

enum { FOLLOW_TAIL = 256 };
typedef struct {
    const char *path;
    int      fd;                    /* -1: not open */
    uint64_t device, inode;
    int64_t  at, size;              /* read so far; as it was when it was looked at */
    int64_t  lines_at;              /* where the line begins that is being read */
    Buf      rest;                  /* of that line, so far */
    char     tail[FOLLOW_TAIL];     /* the bytes before 'at' */
    int64_t  tail_n;
    int64_t  anew;                  /* how often it began anew */
    bool     skip;                  /* the line is longer than FOLLOW_LINE: it is passed over */
} Follow;

enum { FOLLOW_LINE = 16 << 20 };    /* bytes of a line; longer ones are counted as damaged, empty */

void follow_open (Follow *f, const char *path);      /* path outlives f; the file need not be there */
void follow_close(Follow *f);
/* Looks whether there is more.  False: it began anew: forget what was read. */
bool follow_look (Follow *f);
static inline bool follow_behind(const Follow *f) { return f->fd >= 0 && f->at < f->size; }
/* A piece of what is there: each whole line, with its place in the file. */
typedef void FollowLine(void *user, const char *line, size_t n, int64_t at);
void follow_read (Follow *f, FollowLine *each, void *user);
/* Bytes of the file somewhere, if they are there; for lines that were told before. */
bool follow_bytes(const Follow *f, int64_t at, size_t n, char *to);

#endif
