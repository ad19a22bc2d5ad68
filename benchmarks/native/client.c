/* ZooKeeper's own C client, measured: `client REAL REPLAY` does jobs from standard input.

   The jobs and outcomes are those of benchmarks/jobs.py.  One at a time goes through the blocking
   calls, pipelined through the asynchronous ones with a countdown at the end of each window. */

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define LOCK "/bench/locks/c-free"

enum { SESSION_MS = 1800000, NODES = 100, SMALL = 100, PATH = 64, MOST_DATA = 1 << 20, TOGETHER = 1000 };

static const char *addresses[2];
static zhandle_t *handles[2];
static char data[MOST_DATA];
static long made;

struct job { char server[16], kind[32]; long count, width, size; };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static long resident(void) {
    long all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void fail(const char *what, int code) {
    printf("{\"error\": \"%s: %s\"}\n", what, zerror(code));
    fflush(stdout);
    exit(1);
}

static void must(int code, const char *what) { if (code != ZOK) fail(what, code); }

/* --- a session ------------------------------------------------------------------------------- */

static void on_session(zhandle_t *z, int type, int state, const char *path, void *context) {
    (void)z; (void)path;
    if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE && context) sem_post(context);
}

static zhandle_t *opened(const char *address) {
    sem_t *connected = malloc(sizeof *connected);
    sem_init(connected, 0, 0);
    zhandle_t *z = zookeeper_init(address, on_session, SESSION_MS, 0, connected, 0);
    if (!z) fail("init", ZSYSTEMERROR);
    sem_wait(connected); /* kept: later session events come there too */
    return z;
}

static zhandle_t *handle(const struct job *j) {
    int n = !strcmp(j->server, "replay");
    if (!handles[n]) handles[n] = opened(addresses[n]);
    return handles[n];
}

/* --- operations ------------------------------------------------------------------------------ */

static void path_of(char *path, const char *verb, const struct job *j, long n) {
    if (!strcmp(verb, "create") || !strcmp(verb, "delete"))
        snprintf(path, PATH, "/bench/new/c-%09ld", n);
    else if (!strcmp(verb, "children")) snprintf(path, PATH, "/bench/n%ld", j->size);
    else snprintf(path, PATH, "/bench/d%ld/%02ld", j->size, j->size <= SMALL ? n % NODES : 0);
}

static int one(zhandle_t *z, const char *verb, const char *path, long size) {
    static _Thread_local char buffer[MOST_DATA];
    struct Stat stat;
    switch (verb[0]) {
    case 'g': { int length = sizeof buffer; return zoo_get(z, path, 0, buffer, &length, &stat); }
    case 's': return zoo_set2(z, path, data, size, -1, &stat);
    case 'e': return zoo_exists(z, path, 0, &stat);
    case 'd': return zoo_delete(z, path, -1);
    case 'c': break;
    }
    if (!strcmp(verb, "create"))
        return zoo_create(z, path, data, size, &ZOO_OPEN_ACL_UNSAFE, 0, buffer, PATH);
    struct String_vector names;
    int code = zoo_get_children(z, path, 0, &names);
    if (code == ZOK) deallocate_String_vector(&names);
    return code;
}

struct countdown { long left; int code; sem_t done; };

static void tick(const void *context, int code) {
    struct countdown *c = (struct countdown *)context; /* only ever touched by the client's thread */
    if (code != ZOK) c->code = code;
    if (!--c->left) sem_post(&c->done);
}

static void on_void(int code, const void *c) { tick(c, code); }
static void on_stat(int code, const struct Stat *s, const void *c) { (void)s; tick(c, code); }
static void on_string(int code, const char *s, const void *c) { (void)s; tick(c, code); }
static void on_data(int code, const char *v, int n, const struct Stat *s, const void *c) {
    (void)v; (void)n; (void)s;
    tick(c, code);
}

static int start(zhandle_t *z, const char *verb, const char *path, long size, struct countdown *c) {
    switch (verb[0]) {
    case 'g': return zoo_aget(z, path, 0, on_data, c);
    case 's': return zoo_aset(z, path, data, size, -1, on_stat, c);
    case 'd': return zoo_adelete(z, path, -1, on_void, c);
    case 'e': return zoo_aexists(z, path, 0, on_stat, c);
    default: return zoo_acreate(z, path, data, size, &ZOO_OPEN_ACL_UNSAFE, 0, on_string, c);
    }
}

static void window(zhandle_t *z, const char *verb, char (*paths)[PATH], long count, long size) {
    struct countdown c = {.left = count, .code = ZOK};
    sem_init(&c.done, 0, 0);
    for (long n = 0; n < count; n++) must(start(z, verb, paths[n], size, &c), verb);
    sem_wait(&c.done);
    must(c.code, verb);
}

static void windows(zhandle_t *z, const char *verb, char (*paths)[PATH], struct job *j, long width) {
    for (long n = 0; n < j->count; n += width)
        window(z, verb, paths + n, j->count - n < width ? j->count - n : width, j->size);
}

/* --- threads --------------------------------------------------------------------------------- */

struct share { zhandle_t *z; const char *verb; char (*paths)[PATH]; long first, step, count, size; };

static void *work(void *of) {
    struct share *s = of;
    for (long n = s->first; n < s->count; n += s->step) must(one(s->z, s->verb, s->paths[n], s->size), s->verb);
    return 0;
}

static void in_threads(zhandle_t *z, const char *verb, char (*paths)[PATH], struct job *j) {
    pthread_t threads[j->width];
    struct share shares[j->width];
    for (long n = 0; n < j->width; n++) {
        shares[n] = (struct share){z, verb, paths, n, j->width, j->count, j->size};
        pthread_create(&threads[n], 0, work, &shares[n]);
    }
    for (long n = 0; n < j->width; n++) pthread_join(threads[n], 0);
}

/* --- jobs ------------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(long ops, double seconds, double used, double *latencies, long count) {
    printf("{\"ops\": %ld, \"seconds\": %.9f, \"cpu_seconds\": %.6f, \"rss\": %ld", ops, seconds, used, resident());
    if (count) {
        qsort(latencies, count, sizeof *latencies, ascending);
        printf(", \"p50\": %.2f, \"p99\": %.2f", latencies[count / 2] * 1e6, latencies[count * 99 / 100] * 1e6);
    }
    printf("}\n");
}

static void connects(const struct job *j) {
    double *latencies = malloc(j->count * sizeof *latencies), used = 0, all = 0;
    for (long n = 0; n < j->count; n++) {
        double began = now(), cpu_began = cpu();
        zhandle_t *z = opened(addresses[!strcmp(j->server, "replay")]);
        used += cpu() - cpu_began;
        all += latencies[n] = now() - began;
        zookeeper_close(z);
    }
    tell(j->count, all, used, latencies, j->count);
    free(latencies);
}

/* A free lock by the plain recipe: sequential node, list, see that it is the first, delete. */
static void cycle(zhandle_t *z) {
    char own[PATH];
    struct String_vector names;
    must(zoo_create(z, LOCK "/lock-", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, own, PATH), "create");
    must(zoo_get_children(z, LOCK, 0, &names), "children");
    for (int n = 0; n < names.count; n++)
        if (strcmp(names.data[n], own + sizeof LOCK) < 0) fail("the lock is not free", ZNODEEXISTS);
    deallocate_String_vector(&names);
    must(zoo_delete(z, own, -1), "delete");
}

static void locks(const struct job *j) {
    zhandle_t *z = handle(j);
    int code = zoo_create(z, LOCK, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, 0, 0);
    if (code != ZNODEEXISTS) must(code, "create");
    double *latencies = malloc(j->count * sizeof *latencies);
    double cpu_began = cpu(), began = now(), mark = began;
    for (long n = 0; n < j->count; n++) {
        cycle(z);
        double end = now();
        latencies[n] = end - mark;
        mark = end;
    }
    tell(j->count, mark - began, cpu() - cpu_began, latencies, j->count);
    free(latencies);
}

/* --- watches --------------------------------------------------------------------------------- */

/* A question to the benchmark, see benchmarks/asking.py; its answer is one word. */
static void ask(const char *question) {
    printf("{\"ask\": \"%s\"}\n", question);
    fflush(stdout);
}

static void answered(char word[PATH]) {
    if (scanf("%63s", word) != 1) exit(1); /* the benchmark is gone */
}

static void on_event(zhandle_t *z, int type, int state, const char *path, void *context) {
    (void)z; (void)state; (void)path;
    if (type == ZOO_DELETED_EVENT) tick(context, ZOK);
}

static void watch_all(zhandle_t *z, const char *parent, long count, struct countdown *events) {
    char path[2 * PATH];
    for (long n = 0; n < count; n += TOGETHER) {
        long some = count - n < TOGETHER ? count - n : TOGETHER;
        struct countdown c = {.left = some, .code = ZOK};
        sem_init(&c.done, 0, 0);
        for (long m = n; m < n + some; m++) {
            snprintf(path, sizeof path, "%s/t%06ld", parent, m);
            must(zoo_awget(z, path, on_event, events, on_data, &c), "watch");
        }
        sem_wait(&c.done);
        must(c.code, "watch");
    }
}

static void watches(const struct job *j) {
    zhandle_t *z = handle(j);
    char question[PATH], word[PATH];
    struct countdown events = {.left = j->count, .code = ZOK};
    sem_init(&events.done, 0, 0);
    snprintf(question, PATH, "nodes %ld %ld", j->count, j->width);
    ask(question);
    answered(word);
    watch_all(z, word, j->count, &events);
    double cpu_began = cpu(), began = now();
    ask("delete");
    sem_wait(&events.done);
    double seconds = now() - began, used = cpu() - cpu_began;
    answered(word);
    tell(j->count, seconds, used, 0, 0);
}

static void verb_job(struct job *j, const char *verb, char way) {
    zhandle_t *z = handle(j);
    int real = !strcmp(j->server, "real"), created = !strcmp(verb, "create");
    j->count = (j->count + j->width - 1) / j->width * j->width;
    char (*paths)[PATH] = malloc(j->count * PATH);
    double *latencies = malloc(j->count * sizeof *latencies);
    for (long n = 0; n < j->count; n++) path_of(paths[n], verb, j, verb[0] == 'g' ? n : made++);
    if (real && verb[0] == 'd') windows(z, "create", paths, j, TOGETHER);
    double cpu_began = cpu(), began = now(), mark = began;
    if (way == 'p') windows(z, verb, paths, j, j->width);
    else if (way == 't') in_threads(z, verb, paths, j);
    else for (long n = 0; n < j->count; n++) {
        must(one(z, verb, paths[n], j->size), verb);
        double end = now();
        latencies[n] = end - mark;
        mark = end;
    }
    double seconds = now() - began, used = cpu() - cpu_began;
    if (real && created) windows(z, "delete", paths, j, TOGETHER);
    tell(j->count, seconds, used, latencies, way ? 0 : j->count);
    free(latencies);
    free(paths);
}

static int known(const char *verb) {
    const char *verbs[] = {"get", "create", "set", "delete", "exists", "children"};
    for (int n = 0; n < 6; n++) if (!strcmp(verb, verbs[n])) return 1;
    return 0;
}

int main(int count, char **arguments) {
    struct job j;
    if (count != 3) return 2;
    addresses[0] = arguments[1];
    addresses[1] = arguments[2];
    memset(data, 'x', sizeof data);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    printf("{\"note\": \"ready\"}\n");
    fflush(stdout);
    while (scanf("%15s %31s %ld %ld %ld", j.server, j.kind, &j.count, &j.width, &j.size) == 5) {
        const char *dash = strchr(j.kind, '-'), *verb = dash ? dash + 1 : j.kind;
        if (!strcmp(j.kind, "connect")) connects(&j);
        else if (!strcmp(j.kind, "lock")) locks(&j);
        else if (!strcmp(j.kind, "callbacks")) watches(&j);
        else if (known(verb) && j.kind[0] != 'b') verb_job(&j, verb, dash ? j.kind[0] : 0);
        else printf("{\"error\": \"not offered\"}\n");
        fflush(stdout);
    }
    for (int n = 0; n < 2; n++) if (handles[n]) zookeeper_close(handles[n]);
    return 0;
}
