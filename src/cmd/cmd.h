/* cmd.h - a verb of `hone`: its options as a table, and the contract that all JSON-lines verbs share.
 *
 * A verb is one file src/cmd/verb_NAME.c that defines `const Verb verb_NAME` (the list of verbs is made from the file
 * names).  Exit codes: 0 done, 1 something in the input was bad or a check failed, 2 the command line was wrong, 3 a
 * run's log-probs were not the same (step/difference.h). */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "base/json.h"
#include "base/threads.h"
#include "run/identity.h"

typedef enum { OPT_FLAG, OPT_INT, OPT_REAL, OPT_STR } OptKind;       /* bool, int64_t, double, const char * */

typedef struct {
    const char *name;            /* without the dashes; --name VALUE or --name=VALUE */
    OptKind     kind;
    size_t      at;              /* offsetof in the verb's struct of arguments, which holds the defaults */
    const char *value, *help;    /* "N" or "FILE" or "f32|bf16"; one line */
    double      min, max;        /* checked when min < max */
} Opt;

typedef struct Verb {
    const char *name, *usage, *summary;      /* "score"; "MODEL --in F --out F"; one line */
    const char *detail;                      /* further help, or NULL */
    const Opt  *options;                     /* ends with {0} */
    int       (*run)(const struct Verb *v, int argc, char **argv);   /* argv without "hone" and the verb */
    bool        ranks;                       /* may be started under mpirun (ranks.h); others are refused there */
} Verb;

/* Fills args and words (positional arguments, least..most of them).  Returns -1 to go on, else the exit code
 * (0 after --help, 2 after a message). */
int opt_parse(const Verb *v, void *args, const char **words, int least, int most, int *n_words, int argc, char **argv);

/* The options as lines, but for those that may be another on another machine (threads, paths): what ranks compare. */
void opt_identity(const Verb *v, const void *args, Identity *id);

int cmd_fail(const Verb *v, const Err *err);        /* prints "hone VERB: message", returns 1; of many ranks one does */
int cmd_usage(const Verb *v, const char *fmt, ...) PRINTF_LIKE(2, 3);    /* the same for a wrong command line,
                                                                          * returns 2 */

/* ---- JSON lines: unknown fields are ignored, output is in input order, a bad line gives {"error": ...} in its place
 * and exit code 1 at the end, floats are printed with the digits that restore them. */
typedef struct JsonlOut JsonlOut;
JsonlOut *jsonl_open(const char *path, Err *err);                    /* NULL or "-": standard output */
void      jsonl_put(JsonlOut *o, const Buf *line);                   /* adds the newline */
void      jsonl_error(JsonlOut *o, const char *msg);                 /* a line {"error": msg}, counted */
bool      jsonl_broken(const JsonlOut *o);                           /* the reader went away: stop quietly */
int       jsonl_close(JsonlOut *o, Err *err);                        /* exit code so far: 1 if there were errors */

/* The whole of a verb that turns each line into one line, on many threads.  fn writes the answer into out, or fails. */
typedef bool JsonlFn(void *ctx, int worker, const Json *line, Mem *mem, Buf *out, Err *err);
int jsonl_map(const Verb *v, const char *in, const char *out, Threads *threads, JsonlFn *fn, void *ctx);

#endif
