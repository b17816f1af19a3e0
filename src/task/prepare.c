/* prepare.c - published raw questions to rows of the data schema.
 * The instructions are those that the scorers' formats want: "#### 18", \boxed{18}, "Answer: 18". */
#include "task/prepare.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- truths */
/* The number behind "#### " of a GSM8K solution, without its thousands' commas. */
static const char *truth_gsm8k(const char *s, size_t n, Mem *mem, Err *err) {
    for (size_t i = 0; i + 5 < n + 1; i++) {
        if (memcmp(s + i, "#### ", 5)) continue;
        Buf b = { 0 };
        size_t k = i + 5;
        if (k < n && s[k] == '-') buf_putc(&b, s[k++]);
        for (; k < n && s[k] && strchr("0123456789.,", s[k]); k++)
            if (s[k] != ',') buf_putc(&b, s[k]);
        bool some = b.n > 0 && b.data[b.n - 1] != '-';
        const char *out = some ? mem_str(mem, b.data, b.n) : NULL;
        buf_free(&b);
        if (some) return out;
    }
    err_set(err, "the answer has no \"#### NUMBER\"");
    return NULL;
}

/* What stands in the last \boxed{...} or \fbox{...} (braces counted), or behind "\boxed " up to the next $. */
static const char *truth_boxed(const char *s, size_t n, Mem *mem, Err *err) {
    static const char *const mark[] = { "\\boxed", "\\fbox" };
    for (size_t i = n; i-- > 0;)
        for (size_t m = 0; m < COUNT(mark); m++) {
            size_t len = strlen(mark[m]);
            if (n - i < len || memcmp(s + i, mark[m], len)) continue;
            size_t at = i + len;
            if (at < n && s[at] == ' ' && m == 0) {
                size_t end = at + 1;
                while (end < n && s[end] != '$') end++;
                return mem_str(mem, s + at + 1, end - at - 1);
            }
            int depth = 0;
            for (size_t k = at; k < n && (k > at || s[k] == '{'); k++) {
                depth += s[k] == '{' ? 1 : s[k] == '}' ? -1 : 0;
                if (depth == 0) return mem_str(mem, s + at + 1, k - at - 1);
            }
        }
    err_set(err, "the solution has no \\boxed{...}");
    return NULL;
}

static const char *truth_as_is(const char *s, size_t n, Mem *mem, Err *err) {
    while (n && strchr(" \n\t\r", s[n - 1]) && s[n - 1]) n--;
    while (n && strchr(" \n\t\r", *s) && *s) s++, n--;
    if (n) return mem_str(mem, s, n);
    err_set(err, "the answer is empty");
    return NULL;
}

#define BOXED "{question} Let's think step by step and output the final answer within \\boxed{}."
#define LINED                                                                                                          \
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "     \
    "$Answer "                                                                                                         \
    "(without quotes) where $Answer is the answer to the problem.\n\n{question}\n\nRemember to put your answer on "    \
    "its own "                                                                                                         \
    "line after \"Answer:\"."
#define QUESTION "question|problem|prompt|instruction|input"
#define ANSWER   "answer|ground_truth|final_answer|target|solution"

/* clang-format off */
static const Prepare table[] = {
    { "gsm8k", "GSM8K: question, answer with \"#### 18\" at its end", "openai/gsm8k", "math",
      "{question} Let's think step by step and output the final answer after \"####\".",
          "question", "answer", truth_gsm8k, "answer|question", NULL },
    { "math", "MATH: problem, solution with \\boxed{...}", "DigitalLearningGmbH/MATH-lighteval", "math",
      BOXED, "problem", "solution", truth_boxed, "level|type", NULL },
    { "math500", "MATH-500: problem, answer", "HuggingFaceH4/MATH-500", "math",
      BOXED, "problem", "answer", truth_as_is, "subject|level|unique_id", NULL },
    { "dapo", "prompt and answer, judged by the last \"Answer: ...\" line", "math_dapo", "math",
      LINED, QUESTION, ANSWER, truth_as_is, NULL, NULL },
    { "aime", "AIME: problem and answer, judged like dapo", "aime", "math",
      LINED, QUESTION, ANSWER, truth_as_is, "id|ID|year|url", NULL },
    { "qa", "any questions and answers; name the scorer with --source", NULL, "",
      "{question}", QUESTION, ANSWER, truth_as_is, NULL, NULL },
    { "sft", "prompts and responses to train on", "sft", "",
      "{question}", "prompt|question|problem|instruction|messages", "response|answer|solution|output|completion",
      NULL, NULL, NULL },
    { "geo3k", "Geometry3K: images, problem with <image>, answer", "hiyouga/geometry3k", "math",
      "{question} Think first, between <think> and </think>, then put the final answer within \\boxed{}.",
          "problem", "answer", truth_as_is, "answer|question=problem", "images" },
    { "copy", "rows as they are, from one kind of file to another", "", "", NULL, NULL, NULL, NULL, NULL, NULL },
};
/* clang-format on */

const Prepare *prepare_find(const char *name) {
    for (size_t i = 0; i < COUNT(table); i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

const Prepare *prepare_at(int i) { return i >= 0 && i < (int)COUNT(table) ? &table[i] : NULL; }

/* ---- building rows */
static Json text(Mem *mem, const char *s, size_t n) {
    return (Json){ .kind = JSON_STRING, .n = n, .str = mem_str(mem, s, n) };
}
static Json words(Mem *mem, const char *s) { return text(mem, s, strlen(s)); }

static Json object(Mem *mem, size_t room) {
    return (Json){ .kind = JSON_OBJECT, .members = MEM_ARRAY(mem, JsonMember, room) };
}

static void add(Json *o, const char *key, Json v) { o->members[o->n++] = (JsonMember){ key, strlen(key), v }; }

/* The first of the columns that the row has and that is not null. */
static const Json *first_of(const Json *row, const char *columns, char name[64]) {
    while (columns && *columns) {
        size_t n = strcspn(columns, "|");
        snprintf(name, 64, "%.*s", (int)n, columns);
        const Json *v = json_path(row, name);
        if (v && v->kind != JSON_NULL) return v;
        columns += n + (columns[n] == '|');
    }
    return NULL;
}

static Json message(Mem *mem, const char *role, Json content) {
    Json m = object(mem, 2);
    add(&m, "role", words(mem, role));
    add(&m, "content", content);
    return m;
}

static Json instructed(Mem *mem, const char *instruction, const char *q, size_t n) {
    Buf b = { 0 };
    const char *hole = strstr(instruction, "{question}");
    if (hole) {
        buf_put(&b, instruction, (size_t)(hole - instruction));
        buf_put(&b, q, n);
        buf_puts(&b, hole + strlen("{question}"));
    } else {
        buf_put(&b, q, n);
        buf_putc(&b, ' ');
        buf_puts(&b, instruction);
    }
    Json v = text(mem, b.data ? b.data : "", b.n);
    buf_free(&b);
    return v;
}

static bool is_text(const Json *v) { return v->kind == JSON_STRING && (!v->flag || utf8_valid(v->str, v->n)); }

/* Messages as they are; a question in its instruction, behind the system message if one is wanted. */
static bool make_prompt(const Prepare *p, const PrepareWith *w, const Json *q, const char *column, Mem *mem, Json *out,
                        Err *err) {
    if (q->kind == JSON_ARRAY) return *out = json_copy(q, mem), true;
    if (!is_text(q)) return err_set(err, "%s must be text or messages, not %s", column, json_kind_name(q->kind));
    *out = (Json){ .kind = JSON_ARRAY, .items = MEM_ARRAY(mem, Json, 2) };
    if (w->system) out->items[out->n++] = message(mem, "system", words(mem, w->system));
    out->items[out->n++] =
        message(mem, "user", instructed(mem, w->instruction ? w->instruction : p->instruction, q->str, q->n));
    return true;
}

static bool answer_text(const Json *a, const char *column, Buf *b, Err *err) {
    if (a->kind == JSON_STRING && !is_text(a)) return err_set(err, "%s is not UTF-8 text", column);
    if (a->kind == JSON_STRING) buf_put(b, a->str, a->n);
    else if (a->kind == JSON_INT || a->kind == JSON_REAL) json_put_number_own(b, a);
    else return err_set(err, "%s must be text or a number, not %s", column, json_kind_name(a->kind));
    return true;
}

static Json make_extra(const Prepare *p, const PrepareWith *w, const Json *raw, int64_t index, Mem *mem) {
    Json e = object(mem, 16);
    add(&e, "split", words(mem, w->split));
    add(&e, "index", (Json){ .kind = JSON_INT, .integer = index });
    for (const char *c = p->extra; c && *c && e.n < 16;) {
        size_t n = strcspn(c, "|");
        char *name = mem_str(mem, c, n), *column = strchr(name, '=');
        if (column) *column++ = 0;
        const Json *v = json_get(raw, column ? column : name);
        if (v && v->kind != JSON_NULL) add(&e, name, json_copy(v, mem));
        c += n + (c[n] == '|');
    }
    return e;
}

/* A conversation whose last word is the assistant's: that is the response, what is before it the prompt. */
static bool split_messages(Json *prompt, Mem *mem, Json *response, Err *err) {
    const Json *last = prompt->n ? &prompt->items[prompt->n - 1] : NULL, *content = json_get(last, "content");
    if (prompt->n < 2 || !json_is_str(json_get(last, "role"), "assistant") || !content || !is_text(content))
        return err_set(err, "there is no response, and the messages do not end with the assistant's");
    *response = json_copy(content, mem);
    prompt->n--;
    return true;
}

/* As many pictures as the text says <image>. */
static bool make_images(const Prepare *p, const Json *raw, const Json *question, Mem *mem, Json *out, Err *err) {
    const Json *v = json_get(raw, p->images);
    size_t said = 0, mark = strlen("<image>");
    if (!v || v->kind != JSON_ARRAY) return err_set(err, "there is no list of pictures in column %s", p->images);
    if (question->kind == JSON_STRING)
        for (const char *at = question->str;
             (at = memmem(at, question->n - (size_t)(at - question->str), "<image>", mark));)
            said++, at += mark;
    if (question->kind == JSON_STRING && said != v->n)
        return err_set(err, "%zu pictures for %zu times <image>", v->n, said);
    *out = json_copy(v, mem);
    return true;
}

bool prepare_row(const Prepare *p, const PrepareWith *w, const Json *raw, int64_t index, Mem *mem, Json *out,
                 Err *err) {
    if (!p->question) return *out = json_copy(raw, mem), true;
    char qname[64], aname[64];
    const char *qs = w->question ? w->question : p->question, *as = w->answer ? w->answer : p->answer;
    const char *source = w->source ? w->source : p->source;
    const Json *q = first_of(raw, qs, qname), *a = first_of(raw, as, aname);
    if (!q) return err_set(err, "there is no column %s", qs);
    Json prompt, response = { 0 }, images;
    if (p->images) TRY(make_images(p, raw, q, mem, &images, err));
    TRY(make_prompt(p, w, q, qname, mem, &prompt, err));
    const char *truth = NULL;
    if (p->truth || a) {
        Buf b = { 0 };
        if (!a) return err_set(err, "there is no column %s", as);
        bool ok = answer_text(a, aname, &b, err);
        if (ok && p->truth) ok = (truth = p->truth(b.data ? b.data : "", b.n, mem, err)) != NULL;
        else if (ok) response = text(mem, b.data ? b.data : "", b.n);
        buf_free(&b);
        TRY(ok);
    } else TRY(split_messages(&prompt, mem, &response, err));
    *out = object(mem, 7);
    if (source) add(out, "data_source", words(mem, source));
    add(out, "prompt", prompt);
    if (p->images) add(out, "images", images);
    add(out, "ability", words(mem, p->ability));
    if (truth) {
        Json r = object(mem, 2);
        add(&r, "style", words(mem, "rule"));
        add(&r, "ground_truth", words(mem, truth));
        add(out, "reward_model", r);
    } else add(out, "response", response);
    add(out, "extra_info", make_extra(p, w, raw, index, mem));
    return true;
}
