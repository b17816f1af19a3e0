/* dataset.h - questions from files, in the schema that verl uses, and the order in which a run meets them.
 *
 *   data_source   "openai/gsm8k"                       which scorer judges the answer
 *   prompt        [{"role","content"}, ...] or text    what the model is given
 *   ability       "math"                               for reports
 *   reward_model  {"ground_truth": ...}  what the scorer compares with; other than text: kept as JSON text
 *   extra_info    {...}                                handed to the scorer as it is
 *
 * All rows are held in memory, as text (messages as JSON text), one after the other; nothing is parsed twice but a
 * prompt when it is rendered.  A row that does not fit the schema is an error that names file and row, never a hole. */
#ifndef TASK_DATASET_H
#define TASK_DATASET_H

#include "base/json.h"
#include "base/threads.h"

/* Where things stand in a row; dotted for a member of a struct.  NULL: the name above. */
typedef struct { const char *prompt, *source, *ability, *truth, *extra, *response, *tools; } DataColumns;

typedef struct {
    const char *const *files;        /* names and patterns: Parquet, JSON lines (.gz, .zst), a JSON array */
    int         n_files;
    DataColumns columns;             /* truth: "reward_model.ground_truth"; response: "response" */
    const char *source;              /* data_source of rows that have none; NULL: they must
                                      * have one when truth is needed */
    bool        need_truth;          /* training by rewards */
    bool        need_response;       /* training on given answers */
    bool        conversations;       /* the prompt column holds whole conversations, and the column of tools what
                                      * their template is told of */
    const char *images, *videos;     /* the columns of pictures and of clips; NULL: "images", "videos" */
    bool        pictures;            /* rows may have them; else that column must be empty */
    int64_t     max_rows;            /* the first so many only; 0: all */
    Threads    *threads;             /* NULL: one */
} DataOptions;

typedef struct {
    const char *source, *ability;    /* shared by all rows that have the same; "" when there is none */
    const char *prompt, *truth, *extra, *response;       /* all followed by a 0; NULL when there is none */
    size_t      prompt_n, truth_n, extra_n, response_n;
    const char *tools;               /* of a conversation: JSON text of a list; or NULL */
    size_t      tools_n;
    bool        talk;                /* prompt is a whole conversation, to learn its answers from */
    bool        chat;                /* prompt is the JSON text of a list of messages; else it is text */
    bool        truth_json;          /* truth is JSON text: it was not a string */
    int         file;
    int32_t     tokens;              /* length of the prompt, once dataset_measure has run; else 0 */
    int64_t     row;                 /* in its file, from 0 (JSON lines: from the first line that is not blank) */
    const Json *images;              /* [n_images] as the file says them (task/pictures.h); paths begin in: */
    int         n_images, n_videos;
    const Json *videos;              /* [n_videos] likewise: lists of frames */
    const char *folder;              /* of its file */
} DataRow;
static inline bool row_has_images(const DataRow *r) { return r->n_images + r->n_videos > 0; }

typedef struct Dataset Dataset;
Dataset       *dataset_open(const DataOptions *o, Err *err);
void           dataset_close(Dataset *d);
int64_t        dataset_n(const Dataset *d);
const DataRow *dataset_row(const Dataset *d, int64_t i);
const char    *dataset_file(const Dataset *d, int file);
uint64_t       dataset_print(const Dataset *d);      /* of all that was read, in order: the same data or not? */
/* The sources that occur, in the order of their first row, with the number of their rows; NULL behind the last. */
const char    *dataset_source(const Dataset *d, int i, int64_t *rows);

/* ---- prompts that are too long --------------------------------------------------------------------------------------
 * Tokens of a row's prompt, as the run will make them; below zero: it cannot be made, and
 * why.  Called by many threads. */
typedef int64_t DataLength(void *ctx, int worker, const DataRow *row, Err *why);
typedef enum { DATA_LONG_REFUSE, DATA_LONG_FILTER, DATA_LONG_LEFT, DATA_LONG_RIGHT, DATA_LONG_MIDDLE } DataLong;
typedef struct { int64_t rows, long_rows, failed, dropped, kept, shortest, longest; double mean; } DataCounts;

/* Measures every prompt in parallel, fills in row->tokens, and drops (FILTER) or refuses (REFUSE) those
 * above max; the other three keep them, to be cut by data_cut.  A prompt that cannot be made is dropped by
 * FILTER and refused by the others. */
bool dataset_measure(Dataset *d, Threads *threads, int64_t max, DataLong what, DataLength *length, void *ctx,
                     DataCounts *out, Err *err);
/* Cuts ids [n] to max: LEFT keeps the end, RIGHT the beginning, MIDDLE both halves.  Returns the new n. */
int64_t data_cut(int32_t *ids, int64_t n, int64_t max, DataLong how);
/* The same as *n; false where 'how' does not allow to cut: dataset_measure let none pass, so the prompt has grown. */
bool data_fit(int32_t *ids, int64_t *n, int64_t max, DataLong how, Err *err);

/* ---- order ----------------------------------------------------------------------------------------------------------
 * The order of an epoch is a function of (seed, epoch, n) alone; where a run stands is two numbers. */
typedef struct { int64_t epoch, position; } DataCursor;

typedef struct DataStream DataStream;
typedef struct {
    const Dataset *data;
    uint64_t seed;
    bool     shuffle;
    bool     drop_last;              /* an epoch's rest of less than a batch is dropped; else it opens the next batch */
    int64_t  epochs;                 /* 0: for ever */
} StreamOptions;

DataStream *stream_open(const StreamOptions *o);
void        stream_close(DataStream *s);
/* The next n rows' indices; fewer, perhaps 0, only when the last epoch ends. */
int64_t     stream_next(DataStream *s, int64_t n, int64_t *index);
DataCursor  stream_cursor(const DataStream *s);
bool        stream_seek(DataStream *s, DataCursor at, Err *err);     /* goes on with the row after those that
                                                                      * were given out */

void data_order(uint64_t seed, int64_t epoch, int64_t n, int64_t *order);      /* a permutation of 0..n-1 */

#endif
