/* api.h - the page's questions and their answers in JSON: about runs by their number, never about a path. */
#ifndef PAGE_API_H
#define PAGE_API_H

#include "page/view.h"

struct evhttp_request;
typedef struct { View *run; int n; } Views;

/* Seven digits, which draw any picture; null where it is not finite. */
void put_number(Buf *b, double x);

/* The answers, without HTTP. */
void api_runs   (Buf *out, const Views *all);
void api_run    (Buf *out, View *w);
void api_metrics(Buf *out, const View *w, const char *names, const Range *r, int px);
void api_samples(Buf *out, View *w, const Wanted *wanted, int64_t first, int64_t n);
bool api_sample (Buf *out, View *w, int64_t id, int64_t token);        /* false: there is none of that number */
void api_log    (Buf *out, const View *w, int64_t from);
void api_system (Buf *out, const View *w);
void api_live   (Buf *out, const Views *all);                         /* a line of what a page shows at once */

/* A request under /api/ but 'live'; what is wrong with it is answered too. */
void api_answer(const Views *all, const char *what, struct evhttp_request *req);

#endif
