/* page.h - one page of runs, served to browsers: read-only, by number, with a token. */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include "page/view.h"

typedef struct {
    const char *const *run;     /* folders */
    int         runs;
    const char *listen;         /* a numeric address; NULL: 127.0.0.1, and ::1 where that is there */
    const char *name;           /* HOST or HOST:PORT, under which a browser may ask too; or NULL */
    const char *alert_command;  /* told of what only a watcher sees; or NULL */
    int         port;           /* 0: any */
    bool        quiet;          /* the address is written to page.url alone */
} PageConf;

/* Until SIGINT, SIGTERM or SIGHUP. */
bool page_serve(const PageConf *c, Err *err);

#endif
