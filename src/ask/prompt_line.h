/* prompt_line.h - a prompt in words: one input line of score and generate, or what a server was sent: "tokens",
 * "text" or "messages", turned into token ids. */
#ifndef ASK_PROMPT_LINE_H
#define ASK_PROMPT_LINE_H

#include "arch/arch.h"
#include "task/pictures.h"
#include "text/chat.h"
#include "text/tok.h"

typedef enum { PROMPT_SCORE, PROMPT_GENERATE } PromptUse;

typedef struct {
    const ModelDesc *desc;
    PromptUse        use;
    int              text;              /* how "text" is read: tok.h's flags; TOK_BOS */
    Tok             *tok;               /* NULL: the folder has no tokenizer; lines with "tokens" work all the same */
    TokScratch      *scratch;
    Chat            *chat;              /* NULL: no chat template, and why */
    const char      *no_chat;
    Mem              mem;
    PictureReader    pictures;
    const char      *folder;            /* where paths of pictures begin, and what they may not leave; NULL: any path */
} PromptReader;

typedef struct {
    bool        ok;
    const char *err;                    /* when not ok */
    int32_t    *tokens;
    int         n, prompt;              /* prompt: tokens before the answer, where score was told */
    uint64_t    key;                    /* of "id", if the line has one */
    bool        has_key;
    Json        json;                   /* the whole line */
    Spans pictures;
} PromptLine;

bool prompt_reader_open (PromptReader *r, const ModelDesc *desc, PromptUse use, Err *err);
void prompt_reader_close(PromptReader *r);

/* False for a blank line.  Everything lies in mem.  A bad line gives ok = false with its reason. */
bool prompt_line_read(PromptLine *out, PromptReader *r, const char *text, size_t n, Mem *mem);
/* The same of an object that was read already. */
void prompt_take(PromptLine *out, PromptReader *r, const Json *line, Mem *mem);

#endif
