/* external_python.c - the shell line that runs a scorer written in Python.  The program that loads it
 * (reward_python.py) is a text in this one, so an installed hone needs nothing beside it but python3. */
#include "task/external.h"

#include "base/file.h"

#include <string.h>

static const unsigned char program[] = {
#include "reward_python.inc"
};

static void quote(Buf *b, const char *text) {
    buf_putc(b, '\'');
    for (; *text; text++)
        if (*text == '\'') buf_puts(b, "'\\''");
        else buf_putc(b, *text);
    buf_putc(b, '\'');
}

const char *python_line(const char *file, const char *function, const char *args, Mem *mem) {
    const char *words[] = { (const char *)program, file, function ? function : "compute_score", args ? args : "{}" };
    Buf b = { 0 };
    buf_puts(&b, "exec python3 -c");
    for (size_t i = 0; i < COUNT(words); i++) {
        buf_putc(&b, ' ');
        quote(&b, words[i]);
    }
    const char *line = mem_str(mem, b.data, b.n);
    buf_free(&b);
    return line;
}

bool python_hello(Buf *out, const RewardOptions *o, Err *err) {
    Buf text = { 0 };
    bool ok = o->python_text || file_read(&text, o->python, err);
    const Buf *b = o->python_text ? o->python_text : &text;
    if (ok) buf_printf(out, "%zu\n", b->n), buf_put(out, b->data ? b->data : "", b->n);
    buf_free(&text);
    return ok;
}
