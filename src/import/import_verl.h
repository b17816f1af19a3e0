/* import_verl.h - verl's settings as a configuration of hone's, with what became of each. */
#ifndef IMPORT_IMPORT_VERL_H
#define IMPORT_IMPORT_VERL_H

#include "import/hydra.h"

typedef enum { FATE_TAKEN, FATE_CHANGED, FATE_NOT_NEEDED, FATE_NOT_SUPPORTED, FATES } Fate;

typedef struct {
    const HydraSet *set;
    Fate            fate;
    const char     *name;                 /* hone's option, where it has one */
    const char     *why;                  /* NULL: taken as it is */
} ImportRow;

typedef struct {
    const char *script;                   /* for the places of settings: "run.sh" gives "run.sh:12" */
    const char *module;                   /* "verl.trainer.main_ppo", or NULL */
    const char *config_name;              /* --config-name, or NULL */
    const char *model;                    /* a config.json or its folder that says what model.path will be, or NULL */
} ImportIn;

typedef struct {
    Mem       *mem;
    ImportIn   in;
    Config     c;
    HydraSets  sets;                      /* the last of each key wins; earlier ones are in twice */
    VEC(ImportRow) rows;                  /* one for each of sets */
    VEC(const char *) notes;
    const char *refused;                  /* NULL, or why verl itself could not start this, with the remedy */
    bool       megatron, sft, dapo;
    bool       stale;                     /* verl would train on answers of older weights */
    const char *no_model;                 /* why hone does not run the model, or NULL */
    int64_t    layers, experts;           /* of the model; 0: not known; experts also 0: none */
} Import;

/* sets are taken over; config_free(&im->c) and import_free at the end. */
void import_verl(Import *im, const ImportIn *in, HydraSets sets, Mem *mem);
void import_free(Import *im);

/* ---- for the rules */
/* NULL: not set; "a b": the first of several keys */
const HydraSet *import_find(const Import *im, const char *key);
const char     *import_text(const Import *im, const char *key, const char *standard);
double          import_number(const Import *im, const char *key, double standard);
bool            import_yes(const Import *im, const char *key, bool standard);
/* Sets an option of hone's; the row says so.  what: NULL or the reason of a change.  False: the value cannot be had. */
bool import_put(Import *im, ImportRow *row, const char *option, const char *value, const char *why);
bool import_put_value(Import *im, ImportRow *row, const char *option, const ConfValue *value, const char *why);
const char     *import_place(const Import *im, const HydraSet *s);            /* "line 12: key" */
/* Sets an option that no key of the script asks for. */
void import_derive(Import *im, const char *option, const char *value, const char *why);
bool import_rule(Import *im, ImportRow *row);                                 /* import_rules.c: true if one applies */
void import_finish(Import *im);                                               /* what follows from several settings */

/* ---- import_known.c: which model it is, and whether hone runs it; which trainer (its row, where hone has none) */
#define IMPORT_MODEL "actor_rollout_ref.model.path model.path model.partial_pretrain"
void import_know_model(Import *im);
void import_know_trainer(Import *im);

/* ---- import_report.c */
void import_table(Buf *out, const Import *im);
void import_yaml(Buf *out, const Import *im);

#endif
