/* pictures.h - the pictures of a prompt: from where a data row or a message says they are to rows of pixels, and from
 * one place in the template's text to as many tokens as each has.
 *
 * One is said by a path inside the folder of the file that names it, by bytes (Parquet), by {"base64": ...} or by a
 * data: address; under the keys bytes, path, image, image_url, url.  Nothing is fetched from a network. */
#ifndef TASK_PICTURES_H
#define TASK_PICTURES_H

#include "arch/arch.h"
#include "base/json.h"
#include "image/picture.h"
#include "text/tok.h"

enum { PICTURES_MOST = 64, FRAMES_MOST = 768 };      /* of one prompt; of a clip */

typedef struct {
    bool        takes;                   /* this model takes pictures; else why not: */
    char        why[400];
    PixelsRules rules;
    float       table[3][256];
    int32_t     token, clip_token;       /* the ids that hold a picture's place, and a clip's */
} PictureReader;
/* road: "verl", "slow" or "fast" (image/pixels.h).  False only for a road that is none. */
bool picture_reader_open(PictureReader *r, const ModelDesc *m, const char *processor, Err *err);


/* folder: where paths begin, and what they may not leave; NULL: any path of this machine.
 * Without 'pixels' only the head is read, and the picture has a grid alone. */
bool picture_read(Picture *out, const PictureReader *r, const Json *said, const char *folder, bool pixels, Mem *mem,
                  Err *err);
/* The files that a data row's picture, or clip, is said by: each path, as picture_read opens it. */
typedef void PictureFile(void *user, const char *path);
void picture_files(const Json *said, const char *folder, PictureFile *each, void *user);
/* The pictures of messages' contents, in their order: pics [PICTURES_MOST].  A clip is a list
 * of frames, "fps" of them a second (2): a file with a film in it is refused. */
bool pictures_of(Picture *pics, int *n, const PictureReader *r, const Json *messages, const char *folder, bool pixels,
                 Mem *mem, Err *err);
/* ids from 'from' on hold one token a picture; they get all of them.  A number of places other than n is an error. */
bool pictures_place(Spans *out, TokIds *ids, size_t from, const Picture *pics, int n, const PictureReader *r,
                    Mem *mem, Err *err);

#endif
