/* parts.c - what hone finds when it wants it: MPI, libcurl, python3, a GPU. */
#include "base/file.h"
#include "cmd/doctor/doctor.h"
#include "op/op.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The first line that it prints; false: it is not there, or fails. */
static bool first_line(char *out, size_t n, char *const argv[]) {
    int to[2];
    pid_t pid;
    posix_spawn_file_actions_t files;
    if (pipe2(to, O_CLOEXEC)) return false;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, to[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    bool ok = !posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(to[1]);
    size_t have = 0;
    char room[512];
    for (ssize_t k; ok && (k = read(to[0], room, sizeof room)) != 0;) {
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) break;
        for (ssize_t i = 0; i < k && have + 1 < n; i++) out[have++] = room[i];
    }
    close(to[0]);
    int status = 0;
    if (ok)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    out[have] = 0;
    out[strcspn(out, "\n")] = 0;
    return ok && WIFEXITED(status) && !WEXITSTATUS(status) && have;
}

static bool loads(const char *name) {
    void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (lib) dlclose(lib);
    return lib != NULL;
}

static bool beside(const char *name) {
    char path[4200];
    ssize_t n = readlink("/proc/self/exe", path, 4096);
    path[n > 0 ? n : 0] = 0;
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    snprintf(slash + 1, 64, "%s", name);
    return !access(path, R_OK);
}

void look_at_parts(Patient *p) {
    char line[120] = "";
    bool run = first_line(line, sizeof line, (char *[]){ (char *)"mpirun", (char *)"--version", NULL });
    bool lib = loads("libmpi.so.40"), ours = beside("libhone_mpi.so");
    find(p, "MPI", run && lib && ours ? STATE_OK : STATE_MISSING,
         !ours ? "several ranks: build hone where libopenmpi-dev is" : "several ranks: apt-get install openmpi-bin",
         "%s, %s, %s", run ? line : "no mpirun", lib ? "libmpi.so.40" : "no libmpi.so.40",
         ours ? "libhone_mpi.so" : "no libhone_mpi.so");
    bool curl = loads("libcurl.so.4") || loads("libcurl-gnutls.so.4");
    find(p, "libcurl", curl ? STATE_OK : STATE_MISSING,
         "hone pull, hub:, MLflow: apt-get install libcurl4 (libcurl4t64 on Debian 13 and Ubuntu 24.04)", "%s",
         curl ? "libcurl.so.4" : "none");
    bool py = first_line(line, sizeof line, (char *[]){ (char *)"python3", (char *)"--version", NULL });
    find(p, "python3", py ? STATE_OK : STATE_MISSING, "scorers in Python: apt-get install python3", "%s",
         py ? line : "none");
}

void look_at_gpu(Patient *p) {
    Err err;
    Dev d;
    bool card = !access("/dev/nvidiactl", F_OK), driver = loads("libcuda.so.1"), backend = beside("libhone_cuda.so");
    if (!card && !driver) {
        find(p, "GPU", STATE_OK, "", "none; the CPU computes");
        return;
    }
    bool opens = backend && dev_open_cuda(&d, (CudaOpts){ .act = DT_BF16 }, NULL, &err);
    if (!opens) {
        find(p, "GPU", STATE_MISSING,
             backend ? err.msg : "build hone where nvcc is: libhone_cuda.so, beside the program", "%s, %s",
             driver ? "a driver" : "no driver (libcuda.so.1)", backend ? "the CUDA backend" : "no CUDA backend");
        return;
    }
    DevAbout about = dev_about(&d);
    snprintf(p->card, sizeof p->card, "%s", about.name);
    char node[32];
    for (p->gpus = 0; p->gpus < 64; p->gpus++) {
        snprintf(node, sizeof node, "/dev/nvidia%d", p->gpus);
        if (access(node, F_OK)) break;
    }
    find(p, "GPU", STATE_OK, "", "%d x %s, %.1f GB, %s", p->gpus ? p->gpus : 1, about.name, (double)about.total / 1e9,
         about.libraries);
    dev_close(&d);
}
