/* prompt.h - a row of a data set to the token ids that the model is given: messages through
 * the model's chat template, text as one user message or as it stands. */
#ifndef TASK_PROMPT_H
#define TASK_PROMPT_H

#include "task/dataset.h"
#include "task/pictures.h"
#include "text/chat.h"
#include "text/tok.h"

typedef struct {
    const char *model;              /* folder with tokenizer and chat template */
    const char *chat_template;      /* a file in the place of the folder's template; NULL: the folder's */
    const char *variables;          /* JSON object with further variables, e.g. {"enable_thinking":false}; NULL: none */
    bool        bare_text;          /* a prompt that is text is encoded as it stands; else it is one user message */
    int64_t     vocab;              /* the model's: a tokenizer's id beyond it is an error; 0: any */
    int32_t     end;                /* token that ends an answer whose template does not say (pairs); -1: none */
    const ModelDesc *desc;          /* or NULL: no pictures */
    const char *now;                /* the time that the template prints unless the variables say another (chat_clock);
                                     * NULL: the machine's, whenever it is rendered */
    const Json *tools;              /* that the template is told of, where the variables have none; or NULL */
    const char *processor;               /* how they are prepared; NULL: "verl" */
} PromptOptions;

typedef struct Prompter Prompter;
Prompter  *prompter_open(const PromptOptions *o, int workers, Err *err);   /* workers 0..workers-1 may use it at once */
void       prompter_close(Prompter *p);
const Tok *prompter_tok(const Prompter *p);
/* What renders its prompts; NULL where the model has no template. */
const Chat *prompter_chat(const Prompter *p);
const Json *prompter_variables(const Prompter *p), *prompter_tools(const Prompter *p);      /* tools: or NULL */
/* The row's messages; text is a user's message.  Strings belong to the row. */
bool prompter_messages(const DataRow *row, Json *out, Mem *mem, Err *err);

/* Append to text, to ids.  Special tokens are recognised in what the template made, never in bare text. */
bool prompter_text(Prompter *p, int worker, const DataRow *row, Buf *text, Err *err);
bool prompter_encode(Prompter *p, int worker, const DataRow *row, TokIds *ids, Err *err);
/* The same with the row's pictures, in mem; prompter_encode reads no more of them than their sizes. */
bool prompter_encode_images(Prompter *p, int worker, const DataRow *row, TokIds *ids, Spans *pics, Mem *mem, Err *err);
bool prompter_tells_time(const Prompter *p);     /* o->now is printed */
bool prompter_takes(const Prompter *p);          /* pictures */
/* prompter_encode_images without pixels */
bool prompter_sizes(Prompter *p, const DataRow *row, TokIds *ids, Spans *pics, Mem *mem, Err *err);
/* Prompt and response: ids[0..*n_prompt) is what prompter_encode gives, behind it the
 * response as the template writes an answer, with what ends it. */
bool prompter_pair(Prompter *p, int worker, const DataRow *row, TokIds *ids, size_t *n_prompt, Err *err);

/* A conversation (row->talk): appends the ids of the whole as the template writes it, and makes mask a byte for each:
 * 1 where it is of an assistant's message that is learned.  Those are all but what "train": false or "weight": 0 leaves
 * out; by the template's {% generation %} blocks where it has them, else what rendering up to a message adds.  Where
 * that is not how the whole rendering goes on (a template that drops earlier thoughts, a generation prompt that opens
 * one) the message is learned as it stands in the whole.  A template that leaves a message out is refused.  An answer's
 * first token begins where its text does. */
typedef struct {
    int64_t messages, as_is;     /* learned ones; of them, those that stand otherwise in the whole than alone */
} TalkCount;
/* count: adds; or NULL.  pixels: read pictures, not only their sizes, into mem. */
bool prompter_talk(Prompter *p, int worker, const DataRow *row, TokIds *ids, Buf *mask, TalkCount *count,
                   Spans *pics, Mem *mem, bool pixels, Err *err);

int64_t prompter_length(void *prompter, int worker, const DataRow *row, Err *why);     /* a DataLength */

#endif
