/* fuzz_hub.c - a hub's list of files, a model's index, names from the command line: no path leaves its folder. */
#include "hub/hub_in.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Mem mem = { 0 };
    Err err;
    HubList l;
    HubName name;
    HubConf c = { 0 };
    const char *text = mem_str(&mem, (const char *)data, n);
    if (hub_name(&name, text, HUB_MODEL, true, &mem, &err)
        && (strstr(name.repo, "..") || strchr(name.repo, '/') == name.repo))
        abort();
    name = (HubName){ .repo = "a/b", .revision = "main", .kind = n & 1 ? HUB_DATA : HUB_MODEL };
    if (hub_list_parse(&l, text, n, &mem, &err)) {
        for (int i = 0; i < l.n; i++)
            if (l.files[i].path[0] == '/' || !strncmp(l.files[i].path, "../", 3) || strstr(l.files[i].path, "/../"))
                abort();
        hub_choose(&l, &c, &name, &err);
        hub_choose_shards(&l, text, n, &err);
    }
    mem_free(&mem);
    return 0;
}
