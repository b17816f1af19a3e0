/* identity.h - what a run is, in lines: what was asked for, and of what it was found with (files, data) sizes and
 * hashes.  Ranks compare them before they begin (comm/alike.h), a checkpoint keeps those of its files (state.json), so
 * that what changed until the run goes on can be told.
 *
 *   train.lr <tab> 1e-6            tokenizer.json <tab> 7031645 bytes, 9a1d2f0c83b4e657
 *
 * Keys and values stand for what they are about, not for where it lies: paths may differ from machine to machine.  Of
 * weights, which may be terabytes, a sample is looked at: of each file its size, its header, and IDENTITY_SAMPLE bytes
 * at a place drawn from a seed. */
#ifndef RUN_IDENTITY_H
#define RUN_IDENTITY_H

#include "base/json.h"

enum { IDENTITY_SAMPLE = 64 << 10 };

/* {0} is an empty one.  read: bytes of files that were read for it. */
typedef struct { Buf lines; int64_t read; } Identity;
void identity_free(Identity *id);

void identity_say  (Identity *id, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);
void identity_text (Identity *id, const char *key, const void *bytes, size_t n);    /* their number and hash */
bool identity_file (Identity *id, const char *key, const char *path, Err *err);     /* likewise, of a file's bytes */
bool identity_files(Identity *id, const char *dir, const char *const *names, int n, Err *err);     /* those that are
                                                                                    * there, by their names */
/* A large file: its size, and the sample alone. */
bool identity_sample(Identity *id, const char *key, const char *path, uint64_t seed, Err *err);
void identity_program(Identity *id, const char *verb);                             /* and its version and commit */
/* A model folder: config.json and generation_config.json; of the safetensors files that are loaded the samples. */
bool identity_config (Identity *id, const char *dir, Err *err);
bool identity_weights(Identity *id, const char *dir, uint64_t seed, Err *err);
/* Tokenizer, chat template and how pictures are prepared: the files of a folder that are read (text/tok.h,
 * text/chat.h); path may be a tokenizer's file.  chat_template: the file in the place of the folder's,
 * or NULL; it goes by the same name. */
bool identity_tokenizer(Identity *id, const char *path, const char *chat_template, Err *err);

/* Who judges: a Python file, a shared library, the scripts that a command line names (programs of the machine are not
 * looked at); each may be NULL. */
bool identity_scorer(Identity *id, const char *python, const char *library, const char *command, Err *err);

/* The lines as one JSON object, and what is other in 'now' than such an object says: was, is; NULL: there is none. */
void identity_put(Buf *out, const Identity *id);
typedef void IdentityChange(void *user, const char *key, const char *was, const char *is);
void identity_changes(const Identity *now, const Json *was, IdentityChange *each, void *user);

#endif
