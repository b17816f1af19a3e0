/* setting.h - a plan that has its model (a fixture's config), its cluster and its profile, and nothing else yet. */
#ifndef TESTS_PLAN_SETTING_H
#define TESTS_PLAN_SETTING_H

#include "plan/plan.h"
#include "test.h"

static inline Plan *plan_setting(Mem *mem, const char *config, const char *cluster, const char *profile) {
    Err err = { 0 };
    ModelDesc *m = MEM_NEW(mem, ModelDesc);
    ModelSum *s = MEM_NEW(mem, ModelSum);
    Plan *p = MEM_NEW(mem, Plan);
    CHECK(model_desc_load(m, mem_printf(mem, FIXTURE("configs/%s.json"), config), mem, &err), "%s", err.msg);
    model_sum(s, m);
    p->sum = s, p->profile = profile_find(profile);
    CHECK(cluster_parse(&p->cluster, cluster, mem, &err), "%s", err.msg);
    return p;
}

#endif
