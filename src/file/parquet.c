/* parquet.c - opening a Parquet file, choosing columns, reading a row group: see parquet.h. */
#include "file/parquet.h"
#include "file/parquet_in.h"

#include <string.h>

static bool open_bytes(PqFile *f, Err *err) {
    const uint8_t *p = f->data;
    uint32_t len;
    if (f->n >= 12 && !memcmp(p + f->n - 4, "PARE", 4))
        return err_set(err, "%s: encrypted Parquet is not supported", f->name);
    if (f->n < 12 || memcmp(p, "PAR1", 4) || memcmp(p + f->n - 4, "PAR1", 4))
        return err_set(err, "%s: not a Parquet file, or one that was cut short (PAR1 is missing at its %s)", f->name,
                       f->n < 12 || memcmp(p, "PAR1", 4) ? "beginning" : "end");
    memcpy(&len, p + f->n - 8, 4);
    if (len > f->n - 12)
        return err_set(err, "%s: the footer is said to be longer than the file, which may have been cut short",
                       f->name);
    f->n -= 8 + (size_t)len;
    return pq_read_footer(f, p + f->n, len, err);
}

static void choose(PqNode *v, bool on) {
    v->chosen = on;
    for (int i = 0; i < v->n; i++) choose(&v->child[i], on);
}

/* After choosing: what reading a row would otherwise find out each time. */
static void count_chosen(PqNode *v) {
    v->n_chosen = 0;
    if (v->kind == PQ_LEAF) v->first = v->leaf;
    for (int i = v->n; i-- > 0;) {
        if (!v->child[i].chosen) continue;
        count_chosen(&v->child[i]);
        v->n_chosen++;
        v->first = v->child[i].first;
    }
}

static PqFile *open_common(PqFile blank, const char *name, Err *err) {
    PqFile *f = MEM_NEW(&blank.mem, PqFile);
    *f = blank;
    f->name = mem_str(&f->mem, name, strlen(name));
    f->max_values = (int64_t)1 << 28;
    f->max_page = (int64_t)1 << 31;
    if (!open_bytes(f, err)) {
        pq_close(f);
        return NULL;
    }
    choose(&f->root, true);
    count_chosen(&f->root);
    return f;
}

PqFile *pq_open(const char *path, Err *err) {
    PqFile f = { 0 };
    if (!file_map(&f.map, path, err)) return NULL;
    f.data = (const uint8_t *)f.map.data;
    f.n = f.map.n;
    return open_common(f, path, err);
}

PqFile *pq_open_bytes(const char *name, const void *data, size_t n, Err *err) {
    return open_common((PqFile){ .data = data, .n = n }, name, err);
}

void pq_close(PqFile *f) {
    if (!f) return;
    file_unmap(&f->map);
    Mem mem = f->mem;
    mem_free(&mem);
}

int64_t pq_rows(const PqFile *f) { return f->rows; }
int pq_groups(const PqFile *f) { return f->n_groups; }
int pq_columns(const PqFile *f) { return f->root.n; }
const char *pq_column(const PqFile *f, int i) { return f->root.child[i].name; }

void pq_limit(PqFile *f, int64_t values, int64_t page_bytes) {
    f->max_values = values;
    f->max_page = page_bytes;
}

static PqNode *find(PqNode *v, const char *dotted) {
    for (int i = 0; v->kind == PQ_STRUCT && i < v->n; i++) {
        PqNode *c = &v->child[i];
        if (strncmp(dotted, c->name, c->name_n) || strlen(c->name) != c->name_n) continue;
        if (!dotted[c->name_n]) return c;
        if (dotted[c->name_n] != '.') continue;
        PqNode *deeper = find(c, dotted + c->name_n + 1);
        if (deeper) return deeper;
    }
    return NULL;
}

bool pq_has(const PqFile *f, const char *dotted) { return find((PqNode *)(uintptr_t)&f->root, dotted) != NULL; }

/* Everything above a chosen node is chosen too. */
static bool choose_above(PqNode *v) {
    if (v->chosen) return true;
    for (int i = 0; i < v->n; i++)
        if (choose_above(&v->child[i])) v->chosen = true;
    return v->chosen;
}

bool pq_select(PqFile *f, const char *const *columns, int n, Err *err) {
    choose(&f->root, false);
    for (int i = 0; i < n; i++) {
        PqNode *v = find(&f->root, columns[i]);
        if (!v) {
            Buf b = { 0 };
            for (int k = 0; k < f->root.n && b.n < 200; k++)
                buf_printf(&b, "%s%s", k ? ", " : "", f->root.child[k].name);
            err_set(err, "%s: there is no column %s; it has %s", f->name, columns[i], b.n ? b.data : "none");
            buf_free(&b);
            return false;
        }
        choose(v, true);
    }
    choose_above(&f->root);
    count_chosen(&f->root);
    return true;
}

static void describe(const PqNode *v, Buf *out) {
    static const char *const as[] = { "bool",    "int",  "uint", "double",    "half", "string", "binary",
                                      "decimal", "date", "time", "timestamp", "uuid", "null" };
    if (v->kind == PQ_LEAF) {
        buf_puts(out, v->as == PQ_AS_REAL && v->type == PQ_FLOAT ? "float" : as[v->as]);
        if (v->as == PQ_AS_INT || v->as == PQ_AS_UINT) buf_puts(out, v->type == PQ_INT32 ? "32" : "64");
        return;
    }
    static const char *const kind[] = { "", "struct<", "list<", "map<" };
    buf_puts(out, kind[v->kind]);
    for (int i = 0; i < v->n; i++) {
        if (i) buf_puts(out, ", ");
        if (v->kind == PQ_STRUCT) buf_printf(out, "%s: ", v->child[i].name);
        describe(&v->child[i], out);
    }
    buf_putc(out, '>');
}

void pq_describe(const PqFile *f, int column, Buf *out) { describe(&f->root.child[column], out); }

/* ---- reading: a task for each chosen leaf of some columns, then one for each of these columns; then the next columns.
 * With one thread columns go one by one, so that what their leaves were decoded to is still near when their rows are
 * made, and the next column's takes its place; with more all go together. */
typedef struct {
    const PqFile *f;
    const PqGroup *g;
    PqData *data;                /* [n_leaves] */
    int *leaf, *column, *leaves; /* what is chosen; leaves[c] is the first of column[c]'s in leaf */
    int n_leaf, n_column, from;  /* from: the leaf or column that task 0 is */
    PqRows *out;
    Mem *work; /* [n_leaf] */
    bool *ok;
    Err *err; /* [n_leaf + n_column] */
} Job;

static void read_leaf(void *arg, int task, int worker) {
    (void)worker;
    Job *j = arg;
    int i = j->from + task, leaf = j->leaf[i];
    j->ok[i] = pq_read_chunk(j->f, j->g, leaf, &j->out->mem[1 + i], &j->work[i], &j->data[leaf], &j->err[i]);
}

static void read_column(void *arg, int task, int worker) {
    (void)worker;
    Job *j = arg;
    int i = j->from + task, k = j->n_leaf + i;
    const PqNode *v = &j->f->root.child[j->column[i]];
    j->ok[k] = pq_assemble(j->f, v, j->data, j->out->n, i, j->out->rows, &j->out->mem[1 + k], &j->err[k]);
}

static bool run(Job *j, Threads *threads, int from, int n, ThreadFn *fn, Err *err) {
    j->from = from;
    if (threads) threads_run(threads, n, fn, j);
    else
        for (int i = 0; i < n; i++) fn(j, i, 0);
    for (int i = fn == read_leaf ? from : from + j->n_leaf, end = i + n; i < end; i++)
        if (!j->ok[i]) return *err = j->err[i], false;
    return true;
}

static void choose_tasks(Job *j, Mem *mem) {
    const PqFile *f = j->f;
    j->leaf = MEM_ARRAY(mem, int, (size_t)f->n_leaves), j->column = MEM_ARRAY(mem, int, (size_t)f->root.n);
    j->leaves = MEM_ARRAY(mem, int, (size_t)f->root.n + 1);
    for (int c = 0; c < f->root.n; c++) {
        const PqNode *v = &f->root.child[c];
        if (!v->chosen) continue;
        j->column[j->n_column] = c, j->leaves[j->n_column++] = j->n_leaf;
        for (int i = v->leaf; i < v->leaf + v->n_leaves; i++)
            if (f->leaf[i]->chosen) j->leaf[j->n_leaf++] = i;
    }
    j->leaves[j->n_column] = j->n_leaf;
    int tasks = j->n_leaf + j->n_column;
    j->out->n_mem = 1 + tasks;
    j->out->mem = mem_push(mem, (size_t)j->out->n_mem * sizeof *j->out->mem);
    j->data = MEM_ARRAY(mem, PqData, (size_t)f->n_leaves);
    j->work = MEM_ARRAY(mem, Mem, (size_t)j->n_leaf);
    j->ok = MEM_ARRAY(mem, bool, (size_t)tasks);
    j->err = MEM_ARRAY(mem, Err, (size_t)tasks);
}

/* All that stays is taken in one piece when that is not absurd: large pages then cover nearly all of it. */
static void take_memory(Job *j, Mem *mem) {
    int tasks = j->n_leaf + j->n_column;
    size_t most = (size_t)1 << 32, total = 0;
    size_t *room = MEM_ARRAY(mem, size_t, (size_t)tasks);
    for (int i = 0; i < tasks; i++) {
        room[i] = i < j->n_leaf ? pq_chunk_room(j->f, j->g, j->leaf[i])
                                : pq_rows_room(j->f, j->g, &j->f->root.child[j->column[i - j->n_leaf]]);
        if (room[i] >= most || (total += mem_lent_bytes(room[i])) >= most) return;
    }
    char *at = mem_push(mem, total);
    for (int i = 0; i < tasks; at += mem_lent_bytes(room[i++])) mem_lend(&j->out->mem[1 + i], at, room[i]);
}

static void make_rows(Job *j, Mem *mem) {
    int n = j->n_column;
    j->out->n = j->g->rows;
    j->out->rows = MEM_ARRAY(mem, Json, (size_t)j->g->rows);
    JsonMember *m = MEM_ARRAY(mem, JsonMember, (size_t)j->g->rows * (size_t)n);
    for (int64_t i = 0; i < j->out->n; i++) {
        j->out->rows[i] = (Json){ .kind = JSON_OBJECT, .n = (size_t)n, .members = m + i * n };
        for (int c = 0; c < n; c++) {
            const PqNode *v = &j->f->root.child[j->column[c]];
            m[i * n + c].key = v->name, m[i * n + c].key_n = v->name_n;
        }
    }
}

static size_t wave_room(const Job *j, int from, int to) {
    size_t total = 0;
    for (int i = j->leaves[from]; i < j->leaves[to]; i++) total += mem_lent_bytes(pq_work_room(j->f, j->g, j->leaf[i]));
    return total;
}

/* 'wave' columns at a time, their leaves always in the same piece of memory. */
static bool read_waves(Job *j, Threads *threads, int wave, Mem *keep, Err *err) {
    Mem mem = { 0 };
    size_t most = 0;
    for (int c = 0; c < j->n_column; c += wave) {
        size_t room = wave_room(j, c, c + wave);
        if (room > most) most = room;
    }
    char *work = most < (size_t)1 << 32 ? mem_push(&mem, most) : NULL; /* absurd: let the leaves take what they need */
    bool ok = true;
    for (int c = 0; ok && c < j->n_column; c += wave) {
        int first = j->leaves[c], n = j->leaves[c + wave] - first;
        char *at = work;
        for (int i = first; at && i < first + n; i++) {
            size_t room = pq_work_room(j->f, j->g, j->leaf[i]);
            mem_lend(&j->work[i], at, room);
            at += mem_lent_bytes(room);
        }
        ok = run(j, threads, first, n, read_leaf, err);
        if (ok && c == 0) make_rows(j, keep); /* there is a leaf of so many rows, so it is true */
        ok = ok && run(j, threads, c, wave, read_column, err);
        for (int i = first; i < first + n; i++) mem_free(&j->work[i]);
    }
    mem_free(&mem);
    return ok;
}

bool pq_read(const PqFile *f, int group, Threads *threads, PqRows *out, Err *err) {
    *out = (PqRows){ 0 };
    const PqGroup *g = &f->group[group];
    Mem mem = { 0 };
    Job j = { .f = f, .g = g, .out = out };
    choose_tasks(&j, &mem);
    bool ok = g->rows <= f->max_values && (j.n_leaf > 0 || g->rows <= 1 << 24);
    if (!ok) err_set(err, "%s: a row group of %lld rows is not believed", f->name, (long long)g->rows);
    for (int i = 0; ok && i < j.n_leaf; i++)
        ok = pq_may_read(f, g, j.leaf[i], err); /* before memory is taken for rows */
    if (ok) {
        take_memory(&j, &mem);
        if (!j.n_column) make_rows(&j, &mem);
        ok = read_waves(&j, threads, threads && threads_count(threads) > 1 ? j.n_column : 1, &mem, err);
    }
    out->mem[0] = mem; /* which holds out->mem itself */
    if (!ok) pq_rows_free(out);
    return ok;
}

void pq_rows_free(PqRows *r) {
    if (!r->mem) return;
    for (int i = 1; i < r->n_mem; i++) mem_free(&r->mem[i]);
    Mem own = r->mem[0];
    mem_free(&own);
    *r = (PqRows){ 0 };
}

/* ---- printing */
static void put_base64(Buf *b, const unsigned char *p, size_t n) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0);
        char four[4] = { digit[v >> 18], digit[v >> 12 & 63], left > 1 ? digit[v >> 6 & 63] : '=',
                         left > 2 ? digit[v & 63] : '=' };
        buf_put(b, four, 4);
    }
}

void pq_put_value(Buf *b, const Json *v) {
    if (v->kind == JSON_STRING && v->flag) {
        buf_puts(b, "{\"base64\":\"");
        put_base64(b, (const unsigned char *)v->str, v->n);
        buf_puts(b, "\"}");
    } else if (v->kind == JSON_ARRAY || v->kind == JSON_OBJECT) {
        bool object = v->kind == JSON_OBJECT;
        buf_putc(b, object ? '{' : '[');
        for (size_t i = 0; i < v->n; i++) {
            if (i) buf_putc(b, ',');
            if (object) {
                json_put_str(b, v->members[i].key, v->members[i].key_n);
                buf_putc(b, ':');
            }
            pq_put_value(b, object ? &v->members[i].value : &v->items[i]);
        }
        buf_putc(b, object ? '}' : ']');
    } else json_put_number_own(b, v);
}
