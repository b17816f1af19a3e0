/* ranks_text.c - the lines of a file or of standard input, on every rank. */
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/ranks.h"

/* The first rank reads: standard input is its alone, and a file may be only where it is. */
bool ranks_text(const Ranks *ranks, Buf *text, const char *in, Err *err) {
    bool ok = true;
    if (ranks_first(ranks)) {
        LineReader *lines = lines_open(in, err);
        const char *line;
        size_t n;
        while (lines && lines_next(lines, &line, &n)) {
            buf_put(text, line, n);
            buf_putc(text, '\n');
        }
        ok = lines && lines_close(lines, err);
    }
    if (!ranks_agree(ranks, ok, err)) return false;
    ranks_same(ranks, text);
    return true;
}
