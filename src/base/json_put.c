/* json_put.c - writing JSON: see json.h. */
#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_put_str(Buf *b, const char *s, size_t n) {
    buf_putc(b, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && c != 0x7F) {
            size_t from = i;
            while (i < n && (c = (unsigned char)s[i]) >= 0x20 && c < 0x7F && c != '"' && c != '\\') i++;
            buf_put(b, s + from, i - from);
        } else if (c == '"' || c == '\\') {
            buf_putc(b, '\\');
            buf_putc(b, (char)c);
            i++;
        } else if (c < 0x20 || c == 0x7F) {
            static const char code[] = "\n\t\r\b\f", letter[] = "ntrbf";
            const char *k = c ? strchr(code, c) : NULL;
            if (k) buf_printf(b, "\\%c", letter[k - code]);
            else buf_printf(b, "\\u%04x", c);
            i++;
        } else {
            uint32_t code;
            int len = utf8_get(s + i, n - i, &code);
            if (len) buf_put(b, s + i, (size_t)len);
            else buf_puts(b, "\xEF\xBF\xBD");
            i += len ? (size_t)len : 1;
        }
    }
    buf_putc(b, '"');
}

/* The shortest digits that read back as the same number: precision is raised until they do. */
void json_put_f32(Buf *b, float x) {
    char t[32];
    if (!isfinite(x)) {
        buf_puts(b, "null");
        return;
    }
    if (x == 0 && signbit(x)) { /* "-0" would be read as a whole number, which has no sign at 0 */
        buf_puts(b, "-0.0");
        return;
    }
    for (int p = 6; p <= 9; p++) {
        snprintf(t, sizeof t, "%.*g", p, (double)x);
        if (strtof(t, NULL) == x) break;
    }
    buf_puts(b, t);
}

void json_put_f64(Buf *b, double x) {
    char t[40];
    if (!isfinite(x)) {
        buf_puts(b, "null");
        return;
    }
    if (x == 0 && signbit(x)) {
        buf_puts(b, "-0.0");
        return;
    }
    for (int p = 12; p <= 17; p++) {
        snprintf(t, sizeof t, "%.*g", p, x);
        if (strtod(t, NULL) == x) break;
    }
    buf_puts(b, t);
}

void json_put_number_own(Buf *b, const Json *v) {
    if (v->kind == JSON_REAL && !v->flag && v->digits) buf_puts(b, v->digits);
    else json_put_value(b, v);
}

void json_put_value(Buf *b, const Json *v) {
    switch (v->kind) {
    case JSON_NULL: buf_puts(b, "null"); break;
    case JSON_BOOL: buf_puts(b, v->flag ? "true" : "false"); break;
    case JSON_INT: buf_printf(b, "%" PRId64, v->integer); break;
    case JSON_REAL: { /* 0.0 stays a real: readers that check types (transformers' configs) refuse 0 for it */
        size_t from = b->n;
        if (v->flag) {
            buf_printf(b, "%zu", v->n);
            break;
        }
        json_put_f64(b, v->real);
        if (!strpbrk(b->data + from, ".enl")) buf_puts(b, ".0");
        break;
    }
    case JSON_STRING: json_put_str(b, v->str, v->n); break;
    case JSON_ARRAY:
        buf_putc(b, '[');
        for (size_t i = 0; i < v->n; i++) {
            if (i) buf_putc(b, ',');
            json_put_value(b, &v->items[i]);
        }
        buf_putc(b, ']');
        break;
    case JSON_OBJECT:
        buf_putc(b, '{');
        for (size_t i = 0; i < v->n; i++) {
            if (i) buf_putc(b, ',');
            json_put_str(b, v->members[i].key, v->members[i].key_n);
            buf_putc(b, ':');
            json_put_value(b, &v->members[i].value);
        }
        buf_putc(b, '}');
        break;
    }
}
