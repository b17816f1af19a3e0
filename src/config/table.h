/* table.h - a row of the option table; for this folder, and for hydra.h. */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include "config/config.h"

/* PAIR: two reals */
typedef enum { CONF_BOOL, CONF_INT, CONF_REAL, CONF_STR, CONF_ENUM, CONF_STRS, CONF_PAIR } ConfKind;

typedef struct {
    const char *name;
    ConfKind    kind;
    size_t      at;                /* offsetof in Config */
    const char *standard;          /* the default as YAML; "null": unset, or filled in by config_resolve */
    double      min, max;          /* inclusive; ABOVE_0 as min: must be greater than 0 */
    const Name *names;             /* CONF_ENUM */
    int         verbs;             /* ConfVerb, or-ed */
    const char *help, *verl;       /* verl: its name or names, separated by blanks; NULL: none */
} ConfOption;

#define ABOVE_0 1e-300
#define NO_MAX  1e300

extern const ConfOption conf_options[];            /* ends with {0} */

/* verl's keys that have no option: one that means nothing here, one that hone cannot do (why
 * says what to do instead), or none of verl's that is known. */
typedef enum { CONF_UNKNOWN, CONF_GONE, CONF_REFUSED } ConfFate;
ConfFate conf_verl(const char *key, const char *value, const char **why);
bool     conf_verl_section(const char *name);                                /* a prefix of some of them, up to a dot */

static inline void *conf_field(const Config *c, const ConfOption *o) { return (void *)((uintptr_t)c + o->at); }
const ConfOption *conf_find(const char *name, int verbs, bool *is_verl);      /* by hone's or verl's name, or NULL */
/* A member of one of verl's mappings (data.apply_chat_template_kwargs.NAME): the list of
 * name=value that it joins, or NULL. */
const ConfOption *conf_joins(const char *key, int verbs, const char **name);
void conf_join(Config *c, const ConfOption *o, const char *name, const char *value);
bool conf_is_section(const char *name, int verbs);                      /* a prefix of some name, up to a dot */
const char *conf_nearest(const char *name, int verbs);                  /* the closest name, or NULL if none is close */
void conf_allowed(Buf *out, const ConfOption *o);                       /* "a number from 0 to 1", "grpo|dr_grpo|..." */

/* A value as written: a scalar (quoted or plain) or a list of scalars. */
typedef struct { const char *text; size_t n; bool quoted; } ConfScalar;
typedef struct { ConfScalar one; ConfScalar *items; size_t n; bool is_list; } ConfValue;
/* type and range; message without the place */
bool conf_set(Config *c, const ConfOption *o, const ConfValue *v, Err *err);
bool conf_read_yaml(Config *c, const char *name, const char *text, size_t n, Err *err);
bool conf_read_override(Config *c, const char *text, Err *err);
bool conf_put(Config *c, const char *key, const ConfValue *v, const char *where, bool again, Err *err);

#endif
