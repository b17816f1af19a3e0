/* json_same.h - are two values the same?  Numbers by value, bytes as {"base64"}, members in order; when 'loose', in any
 * order, and a member that is null is the same as none. */
#ifndef TESTS_JSON_SAME_H
#define TESTS_JSON_SAME_H

#include "base/json.h"
#include "file/parquet.h"

#include <string.h>

static bool json_same(const Json *a, const Json *b, bool loose) {
    bool an = a->kind == JSON_INT || a->kind == JSON_REAL, bn = b->kind == JSON_INT || b->kind == JSON_REAL;
    if (a->kind == JSON_INT && b->kind == JSON_INT) return a->integer == b->integer;
    if (an && bn) return json_number(a) == json_number(b);
    /* NaN and infinity are null in JSON */
    if (a->kind == JSON_REAL && b->kind == JSON_NULL) return a->real - a->real != 0;
    if (a->kind == JSON_STRING && a->flag && b->kind == JSON_OBJECT) {
        Buf t = { 0 }, u = { 0 };
        pq_put_value(&t, a);
        json_put_value(&u, b);
        bool same = !strcmp(t.data, u.data);
        buf_free(&t);
        buf_free(&u);
        return same;
    }
    if (a->kind != b->kind) return false;
    if (a->kind == JSON_BOOL) return a->flag == b->flag;
    if (a->kind == JSON_STRING) return a->n == b->n && !memcmp(a->str, b->str, a->n);
    if (a->kind == JSON_ARRAY) {
        for (size_t i = 0; i < a->n && i < b->n; i++)
            if (!json_same(&a->items[i], &b->items[i], loose)) return false;
        return a->n == b->n;
    }
    if (a->kind != JSON_OBJECT) return true;
    if (!loose) {
        for (size_t i = 0; i < a->n && i < b->n; i++) {
            const JsonMember *x = &a->members[i], *y = &b->members[i];
            if (strcmp(x->key, y->key) || !json_same(&x->value, &y->value, loose)) return false;
        }
        return a->n == b->n;
    }
    static const Json null = { .kind = JSON_NULL };
    for (int turn = 0; turn < 2; turn++) {
        const Json *p = turn ? b : a, *q = turn ? a : b;
        for (size_t i = 0; i < p->n; i++) {
            const Json *other = json_get(q, p->members[i].key);
            if (!json_same(&p->members[i].value, other ? other : &null, loose)) return false;
        }
    }
    return true;
}

#endif
