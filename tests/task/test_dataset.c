/* test_dataset.c - the schema and what breaks it; the order of epochs; a cursor that goes on
 * with the very next row; prompts that are too long. */
#include "base/file.h"
#include "file/parquet.h"
#include "task/dataset.h"
#include "test.h"

#include <unistd.h>

static char dir[64];

static const char *put(Mem *mem, const char *name, const char *text) {
    Err err;
    char *path = mem_printf(mem, "%s/%s", dir, name);
    CHECK(file_write(path, text, strlen(text), &err), "%s", err.msg);
    return path;
}

static Dataset *open_one(const char *path, DataOptions o, Err *err) {
    o.files = &path;
    o.n_files = 1;
    return dataset_open(&o, err);
}

static void check_schema(Mem *mem) {
    Err err = { { 0 } };
    const char *good =
        put(mem, "good.jsonl",
            "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"user\",\"content\":\"2+2?\",\"name\":null}],"
            "\"reward_model\":{\"ground_truth\":\"4\"},\"ability\":\"math\",\"extra_info\":{\"index\":7,\"x\":null}}\n"
            "{\"data_source\":\"own\",\"prompt\":\"plain "
            "text\",\"reward_model\":{\"ground_truth\":{\"tests\":[1,2]}},\"response\":\"r\"}\n"
            "{\"data_source\":\"openai/gsm8k\",\"prompt\":\"third\",\"reward_model\":{\"ground_truth\":5}}\n");
    Dataset *d = open_one(good, (DataOptions){ .need_truth = true }, &err);
    EXPECT(d && dataset_n(d) == 3, "%s", err.msg);
    if (!d) return;
    const DataRow *r = dataset_row(d, 0);
    EXPECT(r->chat && !r->truth_json, "kinds of row 0");
    EXPECT_STR(r->prompt, "[{\"role\":\"user\",\"content\":\"2+2?\"}]");
    EXPECT_STR(r->truth, "4");
    EXPECT_STR(r->extra, "{\"index\":7,\"x\":null}");
    EXPECT_STR(r->ability, "math");
    r = dataset_row(d, 1);
    EXPECT(!r->chat && r->truth_json && !r->extra && r->row == 1, "kinds of row 1");
    EXPECT_STR(r->truth, "{\"tests\":[1,2]}");
    EXPECT_STR(r->response, "r");
    EXPECT(dataset_row(d, 2)->truth_json && !strcmp(dataset_row(d, 2)->truth, "5"), "a number as truth");
    EXPECT(dataset_row(d, 0)->source == dataset_row(d, 2)->source, "one source, one string");
    int64_t n = 0;
    EXPECT(!strcmp(dataset_source(d, 0, &n), "openai/gsm8k") && n == 2 && !dataset_source(d, 2, NULL), "sources");
    uint64_t print = dataset_print(d);
    dataset_close(d);
    d = open_one(good, (DataOptions){ .need_truth = true, .max_rows = 2 }, &err);
    EXPECT(d && dataset_n(d) == 2 && dataset_print(d) != print, "max_rows");
    dataset_close(d);

    const char *talk =
        put(mem, "talk.jsonl",
            "{\"m\":[{\"role\":\"user\",\"content\":\"2+2?\"},{\"role\":\"assistant\",\"content\":\"4\"}]}\n");
    d = open_one(talk, (DataOptions){ .columns = { .prompt = "m" }, .conversations = true }, &err);
    EXPECT(d && dataset_row(d, 0)->chat, "a conversation: %s", err.msg);
    if (d)
        EXPECT_STR(dataset_row(d, 0)->prompt,
                   "[{\"role\":\"user\",\"content\":\"2+2?\"},{\"role\":\"assistant\",\"content\":\"4\"}]");
    if (d) EXPECT(dataset_row(d, 0)->talk && !dataset_row(d, 0)->response && !dataset_row(d, 0)->tools, "kinds");
    dataset_close(d);
    static const struct {
        const char *line, *says, *tools;
    } talks[] = {
        { "{\"m\":\"2\"}", "line 1: m: a list of messages is wanted, not a string", NULL },
        { "{\"m\":[]}", "line 1: m has no messages", NULL },
        { "{\"m\":[{\"role\":\"assistant\",\"content\":\"2\",\"train\":0}]}",
          "\"train\" of message 0 must be true or false", NULL },
        { "{\"m\":[{\"role\":\"assistant\",\"content\":\"2\",\"weight\":0.5}]}",
          "\"weight\" of message 0 must be 0 or 1", NULL },
        { "{\"m\":[{\"role\":\"user\",\"content\":\"2\",\"train\":null,\"weight\":1.0}],\"t\":[{\"a\":null,\"b\":1}]}",
          NULL, "[{\"b\":1}]" },
        { "{\"m\":[{\"role\":\"user\",\"content\":\"2\"}],\"t\":\"[{\\\"b\\\":1}]\"}", NULL, "[{\"b\":1}]" },
        { "{\"m\":[{\"role\":\"user\",\"content\":\"2\"}],\"t\":[]}", NULL, NULL },
        { "{\"m\":[{\"role\":\"user\",\"content\":\"2\"}],\"t\":\"[\"}", "t: JSON line 1", NULL },
        { "{\"m\":[{\"role\":\"user\",\"content\":\"2\"}],\"t\":{}}", "t must be a list", NULL },
    };
    for (size_t i = 0; i < COUNT(talks); i++) {
        d = open_one(put(mem, "talks.jsonl", talks[i].line),
                     (DataOptions){ .columns = { .prompt = "m", .tools = "t" }, .conversations = true }, &err);
        EXPECT(!d == !!talks[i].says && (d || strstr(err.msg, talks[i].says)), "%s: %s", talks[i].line, err.msg);
        const char *tools = d ? dataset_row(d, 0)->tools : NULL;
        EXPECT(!tools == !talks[i].tools && (!tools || !strcmp(tools, talks[i].tools)), "%s: %s", talks[i].line, tools);
        if (d) dataset_close(d);
    }
    d = open_one(put(mem, "pics.jsonl", "{\"prompt\":\"a\",\"pics\":[1]}\n"), (DataOptions){ .images = "pics" }, &err);
    EXPECT(!d && strstr(err.msg, "it has pics"), "images under another name: %s", err.msg);

    static const struct {
        const char *line, *says;
    } bad[] = {
        { "{\"data_source\":\"s\",\"reward_model\":{\"ground_truth\":\"4\"}}",
          "line 2: there is no prompt; there are data_source, reward_model: prompt_key chooses" },
        { "{\"prompt\":\"x\",\"reward_model\":{\"ground_truth\":\"4\"}}", "line 2: there is no data_source" },
        { "{\"data_source\":\"s\",\"prompt\":\"x\"}", "there is no reward_model.ground_truth; there are data_source, "
                                                      "prompt: the scorer needs it, and answer_key chooses" },
        { "{\"data_source\":3,\"prompt\":\"x\"}", "data_source must be text, not a whole number" },
        { "{\"data_source\":\"s\",\"prompt\":{\"a\":1}}", "prompt must be text, not an object" },
        { "{\"data_source\":\"s\",\"prompt\":[]}", "prompt has no messages" },
        { "{\"data_source\":\"s\",\"prompt\":\"\"}", "prompt is empty" },
        { "{\"data_source\":\"s\",\"prompt\":[{\"content\":\"x\"}]}", "message 0 has no role" },
        { "{\"data_source\":\"s\",\"prompt\":[{\"role\":\"user\"}]}", "message 0 has no content" },
        { "{\"data_source\":\"s\",\"prompt\":[{\"role\":\"user\",\"content\":3}]}",
          "content of message 0 must be text" },
        { "{\"data_source\":\"s\",\"prompt\":[7]}", "message 0 must be an object" },
        { "{\"data_source\":\"s\",\"prompt\":\"x\",\"images\":[1]}", "it has images" },
        { "{\"data_source\":", "line 2: JSON" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        char *text =
            mem_printf(mem, "{\"data_source\":\"s\",\"prompt\":\"x\",\"reward_model\":{\"ground_truth\":\"4\"}}\n%s\n",
                       bad[i].line);
        const char *path = put(mem, "bad.jsonl", text);
        d = open_one(path, (DataOptions){ .need_truth = true }, &err);
        EXPECT(!d && strstr(err.msg, bad[i].says) && strstr(err.msg, "bad.jsonl line 2"), "%zu: %s", i, err.msg);
        dataset_close(d);
    }
    EXPECT(!open_one("tests/data/parquet/none.parquet", (DataOptions){ 0 }, &err) && strstr(err.msg, "no such file"),
           "%s", err.msg);
    EXPECT(!open_one(put(mem, "empty.jsonl", "\n"), (DataOptions){ 0 }, &err) && strstr(err.msg, "no rows"), "%s",
           err.msg);

    /* other names; a source for all; answers to train on */
    const char *other = put(mem, "other.jsonl", "{\"q\":\"1+1\",\"meta\":{\"a\":\"2\"},\"out\":\"it is 2\"}\n");
    DataOptions o = { .columns = { .prompt = "q", .truth = "meta.a", .response = "out" },
                      .source = "mine",
                      .need_truth = true,
                      .need_response = true };
    d = open_one(other, o, &err);
    EXPECT(d && !strcmp(dataset_row(d, 0)->truth, "2") && !strcmp(dataset_row(d, 0)->source, "mine"), "%s", err.msg);
    EXPECT(d && !strcmp(dataset_row(d, 0)->response, "it is 2"), "response");
    dataset_close(d);
    o.columns.response = NULL;
    EXPECT(!open_one(other, o, &err) && strstr(err.msg, "there is no response"), "%s", err.msg);
}

/* The same rows from JSON lines and from Parquet are the same data. */
static void check_parquet(Mem *mem, const char *lines) {
    Err err = { { 0 } };
    Buf text = { 0 };
    CHECK(file_read(&text, lines, &err), "%s", err.msg);
    Json rows[64];
    int64_t n = 0;
    for (char *p = text.data, *nl; (nl = strchr(p, '\n')); p = nl + 1, n++)
        CHECK(json_parse(&rows[n], p, (size_t)(nl - p), mem, &err), "%s", err.msg);
    char *path = mem_printf(mem, "%s/same.parquet", dir);
    EXPECT(pq_write(path, rows, n, PQ_ZSTD, &err), "%s", err.msg);
    Dataset *a = open_one(lines, (DataOptions){ .need_truth = true }, &err),
            *b = open_one(path, (DataOptions){ .need_truth = true }, &err);
    EXPECT(a && b && dataset_n(a) == n && dataset_print(a) == dataset_print(b), "%s", err.msg);
    dataset_close(a);
    dataset_close(b);
    buf_free(&text);
}

enum { ROWS = 40 };

static void check_order(const Dataset *d) {
    Err err;
    int64_t order[ROWS], again[ROWS], other[ROWS], seen[ROWS] = { 0 };
    data_order(5, 0, ROWS, order);
    data_order(5, 0, ROWS, again);
    EXPECT(!memcmp(order, again, sizeof order), "the same seed, the same order");
    for (int i = 0; i < ROWS; i++) seen[order[i]]++;
    for (int i = 0; i < ROWS; i++) EXPECT(seen[i] == 1, "row %d comes %d times", i, (int)seen[i]);
    data_order(5, 1, ROWS, other);
    EXPECT(memcmp(order, other, sizeof order), "another epoch, another order");
    data_order(6, 0, ROWS, other);
    EXPECT(memcmp(order, other, sizeof order), "another seed, another order");
    /* pinned: a run resumed by a later hone must meet the same rows */
    static const int64_t first[] = { 2, 38, 16, 15, 22, 5 };
    EXPECT(!memcmp(order, first, sizeof first), "seed 5 begins %d %d %d %d %d %d", (int)order[0], (int)order[1],
           (int)order[2], (int)order[3], (int)order[4], (int)order[5]);

    /* every place at which a run may be stopped: what follows is what would have followed */
    for (int drop = 0; drop < 2; drop++) {
        StreamOptions o = { .data = d, .seed = 9, .shuffle = true, .drop_last = drop, .epochs = 3 };
        enum { BATCH = 7, MOST = 200 };
        int64_t whole[MOST], part[MOST], n = 0, got;
        DataCursor at[MOST];
        DataStream *s = stream_open(&o);
        int steps = 0;
        while (at[steps] = stream_cursor(s), (got = stream_next(s, BATCH, whole + n)) > 0) n += got, steps++;
        EXPECT(steps == (drop ? ROWS / BATCH * 3 : (ROWS * 3 + BATCH - 1) / BATCH), "%d steps", steps);
        EXPECT(n == (drop ? ROWS / BATCH * BATCH * 3 : ROWS * 3), "%lld rows in three epochs", (long long)n);
        stream_close(s);
        for (int stop = 0; stop < steps; stop++) {
            s = stream_open(&o);
            EXPECT(stream_seek(s, at[stop], &err), "%s", err.msg);
            int64_t m = 0;
            while ((got = stream_next(s, BATCH, part + m)) > 0) m += got;
            EXPECT(m == n - stop * BATCH && !memcmp(part, whole + stop * BATCH, (size_t)m * sizeof *part),
                   "resumed after %d steps", stop);
            stream_close(s);
        }
        s = stream_open(&o);
        EXPECT(!stream_seek(s, (DataCursor){ 0, ROWS + 1 }, &err) && strstr(err.msg, "other data"), "%s", err.msg);
        stream_close(s);
    }
    StreamOptions plain = { .data = d };
    DataStream *s = stream_open(&plain);
    int64_t index[ROWS + 3];
    EXPECT(stream_next(s, ROWS + 3, index) == ROWS + 3 && index[0] == 0 && index[ROWS - 1] == ROWS - 1
               && index[ROWS] == 0,
           "unshuffled, for ever");
    EXPECT(stream_cursor(s).epoch == 1 && stream_cursor(s).position == 3, "cursor in the second epoch");
    stream_close(s);
}

static int64_t by_bytes(void *ctx, int worker, const DataRow *r, Err *why) {
    (void)worker;
    if (ctx && r->row == 3) return err_set(why, "there is a 3 in it"), -1;
    return (int64_t)r->prompt_n;
}

static void check_long(const char *path, Threads *threads) {
    Err err = { { 0 } };
    DataCounts c;
    Dataset *d = open_one(path, (DataOptions){ 0 }, &err);
    EXPECT(d && !dataset_measure(d, threads, 6, DATA_LONG_REFUSE, by_bytes, NULL, &c, &err),
           "long prompts are refused");
    EXPECT(strstr(err.msg, "row 10: a prompt of 7 tokens, 6 are allowed (30 such rows)"), "%s", err.msg);
    EXPECT(dataset_measure(d, threads, 6, DATA_LONG_LEFT, by_bytes, NULL, &c, &err) && c.kept == ROWS
               && c.long_rows == 30,
           "kept to be cut");
    EXPECT(c.shortest == 6 && c.longest == 7 && dataset_row(d, 10)->tokens == 7, "lengths");
    EXPECT(!dataset_measure(d, threads, 6, DATA_LONG_RIGHT, by_bytes, &c, &c, &err)
               && strstr(err.msg, "row 3: no prompt") && strstr(err.msg, "there is a 3 in it"),
           "%s", err.msg);
    EXPECT(dataset_measure(d, threads, 6, DATA_LONG_FILTER, by_bytes, &c, &c, &err), "%s", err.msg);
    EXPECT(c.rows == ROWS && c.long_rows == 30 && c.failed == 1 && c.dropped == 31 && c.kept == 9 && dataset_n(d) == 9,
           "filtered");
    EXPECT(dataset_row(d, 3)->row == 4, "row 3 is gone");
    int64_t n;
    EXPECT(dataset_source(d, 0, &n) && n == 9, "%lld rows of the source are left", (long long)n);
    EXPECT(!dataset_measure(d, threads, 1, DATA_LONG_FILTER, by_bytes, NULL, &c, &err)
               && strstr(err.msg, "all 9 prompts"),
           "%s", err.msg);
    dataset_close(d);

    static const struct {
        DataLong how;
        int64_t max;
        int32_t want[5];
    } cut[] = { { DATA_LONG_LEFT, 3, { 4, 5, 6 } },
                { DATA_LONG_RIGHT, 3, { 1, 2, 3 } },
                { DATA_LONG_MIDDLE, 5, { 1, 2, 4, 5, 6 } },
                { DATA_LONG_MIDDLE, 2, { 1, 6 } },
                { DATA_LONG_LEFT, 9, { 1, 2, 3, 4, 5 } } };
    for (size_t i = 0; i < COUNT(cut); i++) {
        int32_t ids[6] = { 1, 2, 3, 4, 5, 6 };
        int64_t m = data_cut(ids, 6, cut[i].max, cut[i].how), show = m < 5 ? m : 5;
        EXPECT(m == (cut[i].max < 6 ? cut[i].max : 6) && !memcmp(ids, cut[i].want, (size_t)show * sizeof *ids),
               "cut %zu", i);
    }
    for (DataLong how = DATA_LONG_REFUSE; how <= DATA_LONG_MIDDLE; how++) {
        int32_t ids[6] = { 1, 2, 3, 4, 5, 6 };
        int64_t m = 6, fits = 6;
        bool cuts = how >= DATA_LONG_LEFT;
        EXPECT(data_fit(ids, &fits, 6, how, &err) && fits == 6, "%d: a prompt that fits: %s", how, err.msg);
        EXPECT(data_fit(ids, &m, 5, how, &err) == cuts && m == (cuts ? 5 : 6), "%d: %lld tokens are left", how,
               (long long)m);
        EXPECT(cuts || strstr(err.msg, "6 tokens now, at most 5"), "%d: %s", how, err.msg);
    }
}

int main(void) {
    Mem mem = { 0 };
    Err err = { { 0 } };
    strcpy(dir, "/tmp/hone-test-XXXXXX");
    CHECK(mkdtemp(dir), "no folder for tests");
    Threads *threads = threads_open(3);
    check_schema(&mem);
    Buf text = { 0 };
    for (int i = 0; i < ROWS; i++)
        buf_printf(&text, "{\"data_source\":\"s\",\"prompt\":\"line %d\",\"reward_model\":{\"ground_truth\":\"%d\"}}\n",
                   i, i);
    const char *path = put(&mem, "rows.jsonl", text.data);
    check_parquet(&mem, path);
    Dataset *d = open_one(path, (DataOptions){ .threads = threads }, &err);
    EXPECT(d && dataset_n(d) == ROWS, "%s", err.msg);
    if (d) check_order(d);
    dataset_close(d);
    check_long(path, threads);
    threads_close(threads);
    static const char *const files[] = { "good.jsonl",  "bad.jsonl",  "empty.jsonl",
                                         "other.jsonl", "rows.jsonl", "same.parquet" };
    for (size_t i = 0; i < COUNT(files); i++) unlink(mem_printf(&mem, "%s/%s", dir, files[i]));
    rmdir(dir);
    buf_free(&text);
    mem_free(&mem);
    return test_end();
}
