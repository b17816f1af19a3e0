/* api.h - what libhone_mpi.so gives: MPI's calls, begun and asked after.  The library knows nothing of hone but this
 * page, and hone needs MPI only where a launcher started it: world.c loads the library then. */
#ifndef COMM_MPI_API_H
#define COMM_MPI_API_H

#include <stddef.h>

enum { MPI_API_VERSION = 3 };
typedef struct { size_t at, bytes; } MpiPart;
typedef struct {
    int  version;
    /* NULL, or what went wrong; node: the first rank of this machine */
    const char *(*open)(int *rank, int *size, int *local_rank, int *local_size, int *node);
    void (*close)(void);
    void (*take_down)(void);                                                         /* every rank, now */
    void *(*all)(void);                                                              /* the group of all ranks */
    void *(*split)(void *group, int color, int key);                                 /* collective */
    void *(*all_to_all)(void *group, void *to, const MpiPart *get, const void *from, const MpiPart *give);
    void *(*all_gather)(void *group, void *to, const MpiPart *get, const void *mine, size_t bytes);
    /* the host's: 'each' bytes of every rank, one behind the other, or, where get is given, as much as that says */
    void *(*gather)(void *group, void *all, const MpiPart *get, size_t each, const void *mine);
    void *(*broadcast)(void *group, int from, void *data, size_t bytes);
    void *(*send)(void *group, int peer, int tag, const void *from, size_t bytes);
    void *(*recv)(void *group, int peer, int tag, void *to, size_t bytes);
    int  (*test)(void *call);
    const char *(*library)(void);                                                    /* its version, in its own words */
} MpiApi;
const MpiApi *hone_mpi(void);

#endif
