/* tensorboard.h - TensorBoard event files: records of a length, its masked CRC32C, the bytes and theirs; the bytes
 * are the protocol buffers tensorflow.Event with scalar summaries. */
#ifndef RUN_TENSORBOARD_H
#define RUN_TENSORBOARD_H

#include "base/base.h"

typedef struct TbWriter TbWriter;

/* A new file events.out.tfevents.TIME.HOST.PID in the folder, the last by its name: TIME is the clock's, or a second
 * behind the newest file's.  first_step: TensorBoard forgets what older files of the folder say about this step and
 * later ones (a resumed run repeats them). */
TbWriter *tb_open(const char *dir, int64_t first_step, Err *err);
void      tb_begin(TbWriter *w, int64_t step);                /* the scalars of one step become one record */
void      tb_scalar(TbWriter *w, const char *tag, float value);
bool      tb_end(TbWriter *w, Err *err);                      /* writes and flushes it */
bool      tb_close(TbWriter *w, Err *err);

uint32_t crc32c(const void *data, size_t n);                  /* Castagnoli */

#endif
