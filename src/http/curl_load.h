/* curl_load.h - the part of libcurl that client.c calls, found at run time. */
#ifndef HTTP_CURL_LOAD_H
#define HTTP_CURL_LOAD_H

#include "base/base.h"

#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

/* clang-format off */
#define CURL_FUNCTIONS(X) \
    X(CURLcode, curl_global_init, (long))                                                                              \
    X(const char *, curl_easy_strerror, (CURLcode))                                                                    \
    X(CURL *, curl_easy_init, (void))                                                                                  \
    X(CURLcode, curl_easy_setopt, (CURL *, CURLoption, ...))                                                           \
    X(CURLcode, curl_easy_getinfo, (CURL *, CURLINFO, ...))                                                            \
    X(void, curl_easy_cleanup, (CURL *))                                                                               \
    X(struct curl_slist *, curl_slist_append, (struct curl_slist *, const char *))                                     \
    X(void, curl_slist_free_all, (struct curl_slist *))                                                                \
    X(CURLM *, curl_multi_init, (void))                                                                                \
    X(CURLMcode, curl_multi_add_handle, (CURLM *, CURL *))                                                             \
    X(CURLMcode, curl_multi_remove_handle, (CURLM *, CURL *))                                                          \
    X(CURLMcode, curl_multi_perform, (CURLM *, int *))                                                                 \
    X(CURLMcode, curl_multi_poll, (CURLM *, struct curl_waitfd *, unsigned, int, int *))                               \
    X(CURLMsg *, curl_multi_info_read, (CURLM *, int *))                                                               \
    X(CURLMcode, curl_multi_cleanup, (CURLM *))                                                                        \
    X(char *, curl_version, (void))
/* clang-format on */

typedef struct {
#define X(result, name, args) result(*name) args;
    CURL_FUNCTIONS(X)
#undef X
    void *lib;
} CurlApi;

bool curl_load(CurlApi *api, Err *err);

#endif
