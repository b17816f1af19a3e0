/* curl_load.c - libcurl by its file's name: whichever of the distribution's builds is there.  It is never closed: its
 * libraries leave threads and handlers behind. */
#include "http/curl_load.h"

#include <dlfcn.h>
#include <string.h>

bool curl_load(CurlApi *api, Err *err) {
    static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
    *api = (CurlApi){ 0 };
    for (size_t i = 0; i < COUNT(names) && !api->lib; i++) api->lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!api->lib)
        return err_set(err, "libcurl is not on this machine (libcurl.so.4): apt-get install libcurl4 (libcurl4t64 on "
                            "Debian 13 and Ubuntu 24.04)");
    const struct {
        const char *name;
        void *slot;
    } want[] = {
#define X(result, fn, args) { #fn, &api->fn },
        CURL_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        void *symbol = dlsym(api->lib, want[i].name);
        if (!symbol)
            return err_set(err, "libcurl here has no %s: it is older than 7.66; take a newer one", want[i].name);
        memcpy(want[i].slot, &symbol, sizeof symbol);
    }
    if (api->curl_global_init(CURL_GLOBAL_DEFAULT)) return err_set(err, "libcurl does not start");
    return true;
}
