/* answers.h - samples.jsonl as an index: for each line where it lies and its numbers, in columns; and lists of those
 * that somebody asked for (by step, score, text), in an order. */
#ifndef PAGE_ANSWERS_H
#define PAGE_ANSWERS_H

#include "page/follow.h"
#include "base/scan.h"

typedef struct {
    int64_t at;             /* of its line in the file */
    int64_t row;            /* of the question; -1: not said */
    int32_t n;              /* bytes of the line */
    int32_t step, sample, tokens;       /* -1: not said */
    float   score, advantage;           /* NAN: not said */
    uint8_t finish;         /* an index into Answers.finish */
} Answer;

enum { FINISH_MOST = 32, LISTS_MOST = 4 };
typedef enum { BY_STEP, BY_STEP_DOWN, BY_SCORE, BY_SCORE_DOWN } Order;
typedef struct {
    int64_t     from, to;   /* steps, both within */
    double      min, max;   /* scores; NAN: any */
    int64_t     row;        /* of the question; -1: any */
    const char *finish;     /* "": any */
    const char *text;       /* in the prompt, the answer, the right one, the reason, a turn; "": any */
    Order       order;
} Wanted;

typedef struct {
    bool     used;
    Mem      mem;           /* of 'wanted' */
    Wanted   wanted;
    uint64_t last_used;
    uint32_t *id;           /* those found so far, as they stand in the file */
    size_t   n, cap;
    uint32_t scanned;       /* lines looked at */
    uint32_t *sorted;       /* by score: the same in order, of when there were sorted_n; else NULL */
    size_t   sorted_n, sorted_cap;
} AnswerList;

typedef struct {
    struct { Answer *at; size_t n, cap; } all;
    int64_t     damaged;
    Mem         mem;
    const char *finish[FINISH_MOST];    /* [0] "" */
    int         n_finish;
    AnswerList  list[LISTS_MOST];
    uint64_t    clock;
} Answers;

void answers_free(Answers *a);
void answers_line(Answers *a, const char *line, size_t n, int64_t at);
/* The list of what is wanted, looked for further for at most so many seconds; done when scanned == a->all.n. */
AnswerList *answers_find(Answers *a, const Follow *file, const Wanted *w, double seconds);
uint32_t    list_id(const AnswerList *l, size_t i);         /* the i-th in the wanted order */
/* Does a line hold that text in one of the strings that are read? */
bool        answer_says(const char *line, size_t n, const char *text);

#endif
