/* flat.c - memory of the columns, and of the methods that work on them. */
#include "step/flat.h"
#include "algo/advantage.h"
#include "algo/shape.h"
#include "run/token_rows.h"

void flat_open(Flat *f, int answers, int max_answer, Mem *mem) {
    size_t n = (size_t)answers, t = n * (size_t)max_answer;
    float *cols = MEM_ARRAY(mem, float, 6 * t);
    *f = (Flat){ .ref = cols,
                 .reward = cols + t,
                 .adv = cols + 2 * t,
                 .weight = cols + 3 * t,
                 .now = cols + 4 * t,
                 .ret = cols + 5 * t };
    f->at = MEM_ARRAY(mem, int64_t, n), f->end = MEM_ARRAY(mem, int64_t, n);
    f->group = MEM_ARRAY(mem, int32_t, n);
    f->pick = MEM_ARRAY(mem, uint8_t, t);
    f->score = MEM_ARRAY(mem, double, n);
    f->baseline = MEM_ARRAY(mem, float, n), f->metric = MEM_ARRAY(mem, float, n);
    f->keep = MEM_ARRAY(mem, uint8_t, n);
    f->order = MEM_ARRAY(mem, int32_t, n);
    f->seq = MEM_ARRAY(mem, TrainSeq, n);
    f->column = MEM_ARRAY(mem, float *, n);
    f->rows = MEM_ARRAY(mem, unsigned char, (size_t)max_answer *TOKEN_ROW);
    int64_t tokens = (int64_t)t;
    size_t methods = adv_scratch(answers, tokens) + pick_scratch(tokens) + filter_scratch(answers) + 4096;
    f->scratch = arena_on_host("methods", methods, mem);
}
