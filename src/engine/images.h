/* images.h - the pictures of the requests that an engine has: each is computed once between two changes of the weights
 * and kept while somebody needs it, and longer where nobody else needs its rows.
 *
 * The scheduler and the prefix table know tokens only.  So a picture's tokens get names of their own in its
 * prompt, below 0 and one for every token of every picture that was seen since the last flush: two pictures
 * share no name, so their pages are never taken for each other's, and one picture that comes twice has the
 * same names, so its pages are found again. */
#ifndef ENGINE_IMAGES_H
#define ENGINE_IMAGES_H

#include "engine/engine.h"

typedef struct Images Images;
size_t images_tmp_bytes (const ModelDesc *m, const EngineConf *c, DevKind like);
Images  *images_open (Model *m, const EngineConf *c, Mem *mem);
void   images_close(Images *s);
void   images_flush(Images *s);                             /* the weights changed, and no request is under way */

/* The pictures of a request, for group g: computed where they are not there.  False: they
 * find no room while others have theirs. */
bool   images_take(Images *s, int group, const Request *r);
void   images_drop(Images *s, int group);
const int32_t *images_tokens(const Images *s, int group);   /* its prompt with names for pictures' tokens */
/* Tokens start.. of a sequence of that group, n of them: ids become ids of the vocabulary or
 * its end, pos [n,3] their positions, from their rows of images_feats. */
void   images_rows(Images *s, int group, int start, int n, int32_t *ids, int32_t *pos, int32_t *from);
Tensor images_feats(const Images *s);

#endif
