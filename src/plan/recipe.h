/* recipe.h - a plan as a configuration that `hone train` accepts, and the settings of a configuration that cannot be meant. */
#ifndef PLAN_RECIPE_H
#define PLAN_RECIPE_H

#include "plan/plan.h"

typedef struct {
    const char *path;             /* where the recipe will lie: named in its run lines */
    const char *model, *data;     /* model.path and data.train_files */
    const char *note;             /* further comment lines, each ending in a newline; or NULL */
} RecipeText;

void recipe_write(const Plan *p, const RecipeText *t, Buf *out);

/* Settings that run but cannot be meant: one line each, with the reason and what would do.  Returns how many. */
int plan_faults(const Plan *p, Buf *out);

#endif
