/* version.h - which hone this is.  The commit is the program's, not the library's: what links main.c has one, and only
 * that is linked again when it changes. */
#ifndef RUN_VERSION_H
#define RUN_VERSION_H

#define HONE_VERSION "0.1"

/* By cmd/main.c, from the repository that it was built in, with a hash of what is not committed; outside of one a hash
 * of the sources (tools/commit.cmake).  Of a program without main.c, a test: "not known". */
extern const char hone_commit[] __attribute__((weak));
static inline const char *hone_commit_of(void) { return hone_commit ? hone_commit : "not known"; }

#endif
