/* prompt_in.h - inside a Prompter: shared by prompt.c and talk.c only. */
#ifndef TASK_PROMPT_IN_H
#define TASK_PROMPT_IN_H

#include "task/prompt.h"

typedef struct {
    TokScratch *scratch;
    Buf text, whole, mask;
    TokIds ids;
} Worker;

struct Prompter {
    Mem mem;
    Tok *tok;
    Chat *chat; /* NULL: there is none, 'no_chat' says why */
    const char *no_chat;
    Json variables;
    const Json *tools; /* or NULL */
    bool bare_text;
    int64_t vocab;
    int32_t end;
    int n;
    Worker *worker;
    PictureReader pictures;
};

/* Puts the row's pictures where its marks are. */
bool prompt_show_pictures(Json *messages, const DataRow *row, Mem *mem, Err *err);
/* Of what was appended behind 'from'. */
bool prompt_check_ids(const Prompter *p, const TokIds *ids, size_t from, Err *err);

#endif
