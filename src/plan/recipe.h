/* recipe.h - a plan as a configuration that `hone train` accepts, and the settings of a
 * configuration that cannot be meant. */
#ifndef PLAN_RECIPE_H
#define PLAN_RECIPE_H

#include "plan/plan.h"

typedef struct {
    const char *path;             /* where the recipe will lie: named in its run lines */
    const char *model, *data;     /* model.path and data.train_files */
    const char *cluster;          /* as it was asked for: "H20-96x96", "this" or a file */
    const char *host_memory, *storage, *weights, *grads, *moments;    /* what was asked for beyond it; NULL: nothing */
    int         per_node;                                     /* ... 0: nothing */
} RecipeText;

/* The plan's own section lets `hone plan --recipe` make the same plan again. */
void recipe_write(const Plan *p, const RecipeText *t, Buf *out);

/* Settings that run but cannot be meant: one line each, with the reason and what would do.  Returns how many. */
int plan_faults(const Plan *p, Buf *out);

#endif
