/* The tasks by ZooKeeper's own C client, with threads: tasks-c HOSTS.
 *
 * The package of Debian has a client without ephemeral lists, counts and persistent watches. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#define TIMEOUT 10000
#define ALL 64 /* events that wait, and children of a node */
#define LINE 1024

struct session {
    zhandle_t *zh;
    const char *name;
};

static const char *task = "connect";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static char events[ALL][LINE]; /* those that no one has taken; guarded by the mutex */
static int event_count;
static int last_number;

static void tell(const char *call, const char *result) {
    printf("%s: %s = %s\n", task, call, result);
    fflush(stdout);
}

static void ask(const char *request) {
    char line[LINE];
    printf("! %s\n", request);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) {
        exit(2);
    }
}

static const char *state_name(int state) {
    return state == ZOO_CONNECTED_STATE         ? "connected"
           : state == ZOO_CONNECTING_STATE      ? "connecting"
           : state == ZOO_EXPIRED_SESSION_STATE ? "expired"
           : state == ZOO_AUTH_FAILED_STATE     ? "authentication failed"
                                                : "another";
}

static const char *type_name(int type) {
    return type == ZOO_CREATED_EVENT       ? "created"
           : type == ZOO_DELETED_EVENT     ? "deleted"
           : type == ZOO_CHANGED_EVENT     ? "changed"
           : type == ZOO_CHILD_EVENT       ? "children"
           : type == ZOO_NOTWATCHING_EVENT ? "not watching"
                                           : "another";
}

/* Events of nodes and of the session alike; a state is taken down once in a row. */
static void watcher(zhandle_t *zh, int type, int state, const char *path, void *name) {
    char event[LINE];
    if (type == ZOO_SESSION_EVENT) {
        if (strcmp(name, "watch") == 0) {
            return; /* each watch is told of the session, too */
        }
        snprintf(event, sizeof event, "%s %s", (char *)name, state_name(state));
    } else {
        snprintf(event, sizeof event, "%s %s", type_name(type), path);
    }
    pthread_mutex_lock(&mutex);
    int again = event_count > 0 && type == ZOO_SESSION_EVENT
                && strcmp(events[event_count - 1], event) == 0;
    if (!again && event_count < ALL) {
        strcpy(events[event_count++], event);
    }
    pthread_cond_signal(&came);
    pthread_mutex_unlock(&mutex);
}

/* Tell all events until this one, which is told itself if it is of the session. */
static void until(const char *last) {
    char found[LINE * 8] = "";
    char event[LINE];
    do {
        pthread_mutex_lock(&mutex);
        while (event_count == 0) {
            pthread_cond_wait(&came, &mutex);
        }
        strcpy(event, events[0]);
        memmove(events[0], events[1], sizeof events[0] * --event_count);
        pthread_mutex_unlock(&mutex);
        if (strstr(event, "/last-") == NULL) {
            strcat(strcat(found, *found ? ", " : ""), event);
        }
    } while (strcmp(event, last) != 0);
    tell("events", found);
}

/* Tell the events that have come or are on their way. */
static void all_events(struct session s) {
    char path[32], last[LINE];
    struct Stat stat;
    snprintf(path, sizeof path, "/last-%d", last_number++);
    snprintf(last, sizeof last, "created %s", path);
    zoo_wexists(s.zh, path, watcher, "watch", &stat);
    zoo_create(s.zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0);
    until(last);
}

static const char *stat_text(const struct Stat *stat) {
    static char text[LINE];
    snprintf(text, sizeof text, "(%d, %d, %d) %s %d bytes %d children", stat->version,
             stat->cversion, stat->aversion, stat->ephemeralOwner ? "owned" : "not owned",
             stat->dataLength, stat->numChildren);
    return text;
}

static void result(const char *call, const char *path, int code, const char *text) {
    char line[LINE], value[LINE * 2];
    snprintf(line, sizeof line, "%s %s", call, path);
    snprintf(value, sizeof value, "%d %s", code, code == ZOK ? text : zerror(code));
    tell(line, value);
}

static void create_as(struct session s, const char *path, int mode, int64_t ttl,
                      const struct ACL_vector *acl) {
    char made[LINE] = "", call[LINE], text[LINE * 2];
    struct Stat stat;
    int code = ttl ? zoo_create2_ttl(s.zh, path, "x", 1, acl, mode, ttl, made, LINE, &stat)
                   : zoo_create2(s.zh, path, "x", 1, acl, mode, made, LINE, &stat);
    snprintf(call, sizeof call, "create2 mode %d", mode);
    snprintf(text, sizeof text, "%s %s", made, code == ZOK ? stat_text(&stat) : "");
    result(call, path, code, text);
}

static void create(struct session s, const char *path, int mode) {
    create_as(s, path, mode, 0, &ZOO_OPEN_ACL_UNSAFE);
}

static void create_plain(struct session s, const char *path) {
    char made[LINE] = "";
    int code = zoo_create(s.zh, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, made, LINE);
    result("create", path, code, made);
}

static void get(struct session s, const char *path, int watch) {
    char data[LINE] = "", text[LINE * 2];
    int length = sizeof data - 1;
    struct Stat stat;
    int code = watch ? zoo_wget(s.zh, path, watcher, "watch", data, &length, &stat)
                     : zoo_get(s.zh, path, 0, data, &length, &stat);
    data[code == ZOK && length > 0 ? length : 0] = 0;
    snprintf(text, sizeof text, "%d \"%s\" %s", length, data, code == ZOK ? stat_text(&stat) : "");
    result(watch ? "get and watch" : "get", path, code, text);
}

static void set(struct session s, const char *path, const char *data, int version) {
    struct Stat stat;
    int code = zoo_set2(s.zh, path, data, strlen(data), version, &stat);
    char call[LINE];
    snprintf(call, sizeof call, "set2 version %d", version);
    result(call, path, code, code == ZOK ? stat_text(&stat) : "");
}

static void delete(struct session s, const char *path, int version) {
    char call[LINE];
    snprintf(call, sizeof call, "delete version %d", version);
    result(call, path, zoo_delete(s.zh, path, version), "");
}

static void exists(struct session s, const char *path, int watch) {
    struct Stat stat;
    int code = watch ? zoo_wexists(s.zh, path, watcher, "watch", &stat)
                     : zoo_exists(s.zh, path, 0, &stat);
    result(watch ? "exists and watch" : "exists", path, code, code == ZOK ? stat_text(&stat) : "");
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void children(struct session s, const char *path, int watch) {
    char text[LINE * 2] = "";
    struct String_vector names = {0, NULL};
    struct Stat stat;
    int code = watch ? zoo_wget_children2(s.zh, path, watcher, "watch", &names, &stat)
                     : zoo_get_children2(s.zh, path, 0, &names, &stat);
    if (code == ZOK && names.count > 0) {
        qsort(names.data, names.count, sizeof *names.data, by_name);
    }
    for (int i = 0; code == ZOK && i < names.count; i++) {
        strcat(strcat(text, names.data[i]), " ");
    }
    if (code == ZOK) {
        strcat(text, stat_text(&stat));
        deallocate_String_vector(&names);
    }
    result(watch ? "children and watch" : "children", path, code, text);
}

static void get_acl(struct session s, const char *path) {
    char text[LINE * 2] = "";
    struct ACL_vector acl = {0, NULL};
    struct Stat stat;
    int code = zoo_get_acl(s.zh, path, &acl, &stat);
    for (int i = 0; code == ZOK && i < acl.count; i++) {
        struct ACL *one = &acl.data[i];
        char part[LINE];
        snprintf(part, sizeof part, "%s:%s:%d ", one->id.scheme, one->id.id, one->perms);
        strcat(text, part);
    }
    if (code == ZOK) {
        strcat(text, stat_text(&stat));
        deallocate_ACL_vector(&acl);
    }
    result("get acl", path, code, text);
}

static void set_acl(struct session s, const char *path, int perms, char *scheme, char *id,
                    int version) {
    struct ACL one = {perms, {scheme, id}};
    struct ACL_vector acl = {1, &one};
    char call[LINE];
    snprintf(call, sizeof call, "set acl %s:%s:%d version %d", scheme, id, perms, version);
    result(call, path, zoo_set_acl(s.zh, path, version, &acl), "");
}

static void done(int code, const void *data) {
    pthread_mutex_lock(&mutex);
    snprintf(events[event_count++], LINE, "%s %d", (const char *)data, code);
    pthread_cond_signal(&came);
    pthread_mutex_unlock(&mutex);
}

static void synced(int code, const char *value, const void *data) {
    char event[LINE];
    snprintf(event, sizeof event, "synced %s", code == ZOK ? value : zerror(code));
    done(code, event);
}

static struct session connected(const char *hosts, const char *name) {
    struct session s = {zookeeper_init(hosts, watcher, TIMEOUT, NULL, (void *)name, 0), name};
    char last[LINE];
    snprintf(last, sizeof last, "%s connected", name);
    until(last);
    return s;
}

static void nodes(struct session s) {
    task = "nodes";
    create(s, "/t", ZOO_PERSISTENT);
    create(s, "/t", ZOO_PERSISTENT);
    create(s, "/none/x", ZOO_PERSISTENT);
    create_plain(s, "/t/plain");
    create_plain(s, "/t/plain");
    get(s, "/t/plain", 0);
    get(s, "/t", 0);
    set(s, "/t", "yy", -1);
    get(s, "/t", 0);
    get(s, "/none", 0);
    children(s, "/none", 0);
    get_acl(s, "/none");
    delete(s, "/none", -1);
    set(s, "/none", "x", -1);
    exists(s, "/none", 0);
    create(s, "/t/ü", ZOO_PERSISTENT);
    delete(s, "/t", -1);
    create(s, "t", ZOO_PERSISTENT);
    create(s, "/t/../t", ZOO_PERSISTENT);
    task = "versions";
    create(s, "/t/v", ZOO_PERSISTENT);
    for (int i = 0; i < 3; i++) {
        set(s, "/t/v", "1", i / 2);
    }
    delete(s, "/t/v", 1);
    delete(s, "/t/v", 2);
    task = "sequence";
    create(s, "/t/s-", ZOO_PERSISTENT_SEQUENTIAL);
    create(s, "/t/s-", ZOO_EPHEMERAL_SEQUENTIAL);
    task = "ephemeral";
    create(s, "/t/e", ZOO_EPHEMERAL);
    create(s, "/t/e/x", ZOO_PERSISTENT);
    get(s, "/t/e", 0);
    task = "children";
    children(s, "/t", 0);
    children(s, "/t/e", 0);
    task = "container";
    create(s, "/t/box", ZOO_CONTAINER);
    get(s, "/t/box", 0);
    task = "ttl";
    create_as(s, "/t/ttl", ZOO_PERSISTENT_WITH_TTL, 3600000, &ZOO_OPEN_ACL_UNSAFE);
    create_as(s, "/t/ttl-", ZOO_PERSISTENT_SEQUENTIAL_WITH_TTL, 3600000, &ZOO_OPEN_ACL_UNSAFE);
    create_as(s, "/t/old", ZOO_PERSISTENT_WITH_TTL, -5, &ZOO_OPEN_ACL_UNSAFE);
    get(s, "/t/ttl", 0);
    task = "sync";
    zoo_async(s.zh, "/t", synced, NULL);
    until("synced /t 0");
}

static void configuration(struct session s) {
    char data[LINE] = "";
    int length = sizeof data - 1;
    struct Stat stat;
    task = "configuration";
    int code = zoo_getconfig(s.zh, 0, data, &length, &stat);
    result("getconfig", "", code, code == ZOK ? stat_text(&stat) : "");
    length = sizeof data - 1;
    code = zoo_reconfig(s.zh, NULL, "3", NULL, -1, data, &length, &stat);
    result("reconfig", "", code, "");
}

static void access_lists(struct session s) {
    task = "acl";
    get_acl(s, "/t");
    create_as(s, "/t/early", ZOO_PERSISTENT, 0, &ZOO_CREATOR_ALL_ACL);
    zoo_add_auth(s.zh, "digest", "u:p", 3, done, "authenticated");
    until("authenticated 0");
    create_as(s, "/t/mine", ZOO_PERSISTENT, 0, &ZOO_CREATOR_ALL_ACL);
    get_acl(s, "/t/mine");
    set_acl(s, "/t/mine", ZOO_PERM_READ, "ip", "10.0.0.1", 0);
    get(s, "/t/mine", 0);
    get_acl(s, "/t/mine");
    exists(s, "/t/mine", 0);
    children(s, "/t/mine", 0);
    create(s, "/t/mine/x", ZOO_PERSISTENT);
    create_as(s, "/t/read", ZOO_PERSISTENT, 0, &ZOO_READ_ACL_UNSAFE);
    set(s, "/t/read", "y", -1);
    delete(s, "/t/read", -1);
    set_acl(s, "/t", ZOO_PERM_ALL, "none", "x", -1);
    set_acl(s, "/t", ZOO_PERM_ALL, "digest", "x", -1);
    set_acl(s, "/t", ZOO_PERM_ALL, "ip", "x", -1);
    set_acl(s, "/t", ZOO_PERM_ALL, "world", "anyone", 7);
}

static void transactions(struct session s) {
    char made[2][LINE];
    struct Stat stat;
    task = "transactions";
    for (int version = 0; version < 3; version++) {
        zoo_op_t ops[5];
        zoo_op_result_t results[5];
        char text[LINE] = "", part[32], call[64];
        zoo_check_op_init(&ops[0], "/t", version);
        zoo_create_op_init(&ops[1], "/t/m", "x", 1, &ZOO_OPEN_ACL_UNSAFE, 0, made[0], LINE);
        zoo_create_op_init(&ops[2], "/t/m/s-", "x", 1, &ZOO_OPEN_ACL_UNSAFE,
                           ZOO_EPHEMERAL_SEQUENTIAL, made[1], LINE);
        zoo_set_op_init(&ops[3], "/t/m", "y", 1, 0, &stat);
        zoo_delete_op_init(&ops[4], "/t/m/s-0000000000", -1);
        int code = zoo_multi(s.zh, 5, ops, results);
        for (int i = 0; i < 5; i++) {
            snprintf(part, sizeof part, " %d", results[i].err);
            strcat(text, part);
        }
        snprintf(call, sizeof call, "%d from check version %d, create, set, delete", code, version);
        tell(call, text);
        if (code == ZOK) {
            result("made", made[1], code, stat_text(&stat));
        }
    }
    get(s, "/t/m", 0);
}

static void watches(struct session s) {
    task = "watches";
    exists(s, "/t/w", 1);
    create(s, "/t/w", ZOO_PERSISTENT);
    all_events(s);
    get(s, "/t/w", 1);
    set(s, "/t/w", "y", -1);
    all_events(s);
    set(s, "/t/w", "z", -1);
    all_events(s);
    children(s, "/t/w", 1);
    create(s, "/t/w/x", ZOO_PERSISTENT);
    all_events(s);
    children(s, "/t/w", 1);
    exists(s, "/t/w", 1);
    delete(s, "/t/w/x", -1);
    delete(s, "/t/w", -1);
    all_events(s);
    exists(s, "/t/w", 1);
    result("remove child watches", "/t/w",
           zoo_remove_watches(s.zh, "/t/w", ZWATCHTYPE_CHILD, watcher, "watch", 0), "");
    result("remove data watches", "/t/w",
           zoo_remove_watches(s.zh, "/t/w", ZWATCHTYPE_DATA, watcher, "watch", 0), "");
    create(s, "/t/w", ZOO_PERSISTENT);
    all_events(s);
}

static void sessions(struct session s, const char *hosts) {
    char chroot[LINE];
    task = "cut";
    create(s, "/t/cut", ZOO_PERSISTENT);
    create(s, "/t/of-session", ZOO_EPHEMERAL);
    get(s, "/t/cut", 1);
    children(s, "/t", 1);
    exists(s, "/t/new", 1);
    ask("cut /t/cut");
    until("first connected");
    get(s, "/t/of-session", 0);
    all_events(s);
    create(s, "/t/new", ZOO_PERSISTENT);
    all_events(s);
    task = "expiry";
    ask("expire /t/of-session");
    until("first expired");
    exists(s, "/t", 0);
    struct session other = connected(hosts, "second");
    exists(other, "/t/of-session", 0);
    task = "chroot";
    snprintf(chroot, sizeof chroot, "%s/t", hosts);
    struct session inner = connected(chroot, "inner");
    create(inner, "/of-session", ZOO_EPHEMERAL);
    create(inner, "/s-", ZOO_EPHEMERAL_SEQUENTIAL);
    children(inner, "/", 0);
    get(inner, "/", 0);
    get(other, "/t/of-session", 0);
    task = "close";
    exists(other, "/t/of-session", 1);
    printf("%s: close = %d\n", task, zookeeper_close(inner.zh));
    until("deleted /t/of-session");
    children(other, "/t", 0);
    zookeeper_close(s.zh);
    zookeeper_close(other.zh);
}

int main(int count, char **arguments) {
    if (count != 2) {
        return 2;
    }
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    struct session s = connected(arguments[1], "first");
    printf("%s: timeout = %d\n", task, zoo_recv_timeout(s.zh));
    nodes(s);
    configuration(s);
    access_lists(s);
    transactions(s);
    watches(s);
    sessions(s, arguments[1]);
    return 0;
}
