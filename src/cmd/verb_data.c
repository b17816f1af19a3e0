/* verb_data.c - `hone data`: looks at data files, and makes them from published raw ones. */
#include "cmd/data/data.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
static const Opt options[] = {
    { "in", OPT_STR, offsetof(DataArgs, in), "RAW",
      "make: the raw file (or pattern); further ones may follow as words", 0, 0 },
    { "out", OPT_STR, offsetof(DataArgs, out), "FILE",
      "make: FILE.parquet or FILE.jsonl (JSON lines to standard output)", 0, 0 },
    { "split", OPT_STR, offsetof(DataArgs, split), "NAME", "make: extra_info.split (from the raw file's name)", 0, 0 },
    { "source", OPT_STR, offsetof(DataArgs, source), "NAME",
      "make: another data_source, which chooses the scorer", 0, 0 },
    { "instruction", OPT_STR, offsetof(DataArgs, instruction), "TEXT",
      "make: another instruction, {question} in it", 0, 0 },
    { "system", OPT_STR, offsetof(DataArgs, system), "TEXT", "make: a system message before each question", 0, 0 },
    { "question", OPT_STR, offsetof(DataArgs, question), "COLUMN",
      "make: where the question stands in the raw file", 0, 0 },
    { "answer", OPT_STR, offsetof(DataArgs, answer), "COLUMN", "make: where the answer stands", 0, 0 },
    { "codec", OPT_STR, offsetof(DataArgs, codec), "zstd|snappy|none",
      "make: compression of a Parquet file (zstd)", 0, 0 },
    { "skip", OPT_FLAG, offsetof(DataArgs, skip), "",
      "make: leave out rows that cannot be used, and say how many", 0, 0 },
    { "row", OPT_INT, offsetof(DataArgs, row), "N", "show: the first row to show, from 0", 0, 1e15 },
    { "n", OPT_INT, offsetof(DataArgs, n), "K",
      "show: how many rows (3; 0: all that follow); shapes: how many questions (1000)", 0, 1e15 },
    { "columns", OPT_STR, offsetof(DataArgs, columns), "A,B", "show: only these columns", 0, 0 },
    { "json", OPT_FLAG, offsetof(DataArgs, json), "", "show, stats: JSON instead of text for people", 0, 0 },
    { "model", OPT_STR, offsetof(DataArgs, model), "DIR", "stats: lengths in this model's tokens too", 0, 0 },
    { "prompt-key", OPT_STR, offsetof(DataArgs, prompt_key), "COLUMN",
      "stats --model: where the prompt stands (prompt)", 0, 0 },
    { "seed", OPT_INT, offsetof(DataArgs, seed), "N", "shapes: which pictures are drawn (0)", 0, 9e18 },
    { "threads", OPT_INT, offsetof(DataArgs, threads), "N", "threads to use (all cores)", 1, THREADS_MOST },
    { 0 },
};
/* clang-format on */

static int make(const Verb *v, const DataArgs *a, const Prepare *p, const char **words, int n) {
    words[0] = a->in; /* the word that named the format: its place takes --in */
    int from = a->in ? 0 : 1;
    return n - from < 1 ? cmd_usage(v, "--in RAW names the raw file") : data_prepare(v, a, p, words + from, n - from);
}

static int unknown(const Verb *v, const char *word) {
    Buf b = { 0 };
    for (int i = 0; prepare_at(i); i++) buf_printf(&b, "%s%s", i ? ", " : "", prepare_at(i)->name);
    int rc = cmd_usage(v, "'%s' is neither show, stats, nor a data set that can be made (%s)", word, b.data);
    buf_free(&b);
    return rc;
}

static int run(const Verb *v, int argc, char **argv) {
    enum { MOST = 4096 };
    DataArgs a = { .n = 3 };
    const char *words[MOST];
    int n = 0, rc = opt_parse(v, &a, words, 1, MOST, &n, argc, argv);
    if (rc >= 0) return rc;
    bool show = !strcmp(words[0], "show"), stats = !strcmp(words[0], "stats");
    if ((show || stats) && n < 2) return cmd_usage(v, "name a file");
    if (show) return data_show(v, &a, words + 1, n - 1);
    if (stats) return data_stats(v, &a, words + 1, n - 1);
    if (!strcmp(words[0], "shapes")) return data_shapes(v, &a);
    const Prepare *p = prepare_find(words[0]);
    return p ? make(v, &a, p, words, n) : unknown(v, words[0]);
}

const Verb verb_data = {
    .name = "data",
    .usage =
        "show|stats FILE...   or   gsm8k|math|math500|dapo|aime|geo3k|qa|sft|copy --in RAW --out FILE   or   shapes "
        "--out FILE",
    .summary = "looks at data files, and makes them from published raw ones",
    .detail =
        "show     rows as text (--json: as JSON lines); stats   rows, columns, lengths, sources, repeated prompts\n"
        "gsm8k    GSM8K: question, answer with \"#### 18\"\n"
        "math     MATH: problem, solution with \\boxed{...};  math500   problem, answer\n"
        "dapo     prompt and answer, judged by the last \"Answer: ...\" line;  aime   the same for AIME\n"
        "geo3k    Geometry3K: images, problem with <image>, answer;  shapes   questions about drawn pictures\n"
        "qa       any questions and answers, with --source NAME for the scorer\n"
        "sft      prompts and responses to train on\n"
        "copy     rows as they are, from one kind of file to another\n"
        "Files are Parquet, JSON lines (also .gz and .zst) or one JSON array; see docs/data.md.\n",
    .options = options,
    .run = run,
};
