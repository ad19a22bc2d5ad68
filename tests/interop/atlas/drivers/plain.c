/* ZooKeeper's own C client (zookeeper_mt), as the ZooKeeper Programmer's Guide uses it.
 * The lines are those of lines.py.  Debian's package has no recipes and no persistent watches. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define LINE 4096
#define WORDS 8
#define SESSIONS 4096

struct session {
    char name[64];
    zhandle_t *zh;
    int connected;
};

struct call {
    char line[LINE];
    char *words[WORDS];
    struct session *session;
};

#define FLOOD 1000
#define NO_ANSWER 1 /* no code of ZooKeeper's */

struct flood { /* the code of each call */
    int codes[FLOOD], left;
};

struct one {
    struct flood *flood;
    int index;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct session sessions[SESSIONS];
static int session_count;

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    flockfile(stdout);
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
    funlockfile(stdout);
    va_end(arguments);
}

static const char *code_name(int code) {
    switch (code) {
    case ZOK: return "ok";
    case ZCONNECTIONLOSS: return "ZCONNECTIONLOSS";
    case ZOPERATIONTIMEOUT: return "ZOPERATIONTIMEOUT";
    case ZSESSIONEXPIRED: return "ZSESSIONEXPIRED";
    case ZINVALIDSTATE: return "ZINVALIDSTATE";
    case ZCLOSING: return "ZCLOSING";
    case ZMARSHALLINGERROR: return "ZMARSHALLINGERROR";
    case ZRUNTIMEINCONSISTENCY: return "ZRUNTIMEINCONSISTENCY";
    case ZSYSTEMERROR: return "ZSYSTEMERROR";
    case ZNODEEXISTS: return "ZNODEEXISTS";
    case ZNONODE: return "ZNONODE";
    case ZBADVERSION: return "ZBADVERSION";
    case ZNOAUTH: return "ZNOAUTH";
    case ZINVALIDACL: return "ZINVALIDACL";
    case ZNOTEMPTY: return "ZNOTEMPTY";
    case ZNOCHILDRENFOREPHEMERALS: return "ZNOCHILDRENFOREPHEMERALS";
    default: return "another";
    }
}

static const char *state_name(int state) {
    return state == ZOO_CONNECTED_STATE         ? "CONNECTED"
           : state == ZOO_CONNECTING_STATE      ? "CONNECTING"
           : state == ZOO_ASSOCIATING_STATE     ? "ASSOCIATING"
           : state == ZOO_EXPIRED_SESSION_STATE ? "EXPIRED_SESSION"
           : state == ZOO_AUTH_FAILED_STATE     ? "AUTH_FAILED"
                                                : "another";
}

static void session_watcher(zhandle_t *zh, int type, int state, const char *path, void *context) {
    struct session *session = context;
    if (type != ZOO_SESSION_EVENT) {
        return;
    }
    say("* %s state %s", session->name, state_name(state));
    pthread_mutex_lock(&mutex);
    session->connected = state == ZOO_CONNECTED_STATE;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void node_watcher(zhandle_t *zh, int type, int state, const char *path, void *context) {
    struct session *session = context;
    if (type == ZOO_SESSION_EVENT) { /* each watch is told of the session, too */
        return;
    }
    say("* %s event %s %s", session->name,
        type == ZOO_CHANGED_EVENT   ? "CHANGED"
        : type == ZOO_CHILD_EVENT   ? "CHILD"
        : type == ZOO_CREATED_EVENT ? "CREATED"
        : type == ZOO_DELETED_EVENT ? "DELETED"
                                    : "another",
        path);
}

static int connect_session(struct session *session, char **w) {
    session->zh = zookeeper_init(w[0], session_watcher, atoi(w[1]), NULL, session, 0);
    pthread_mutex_lock(&mutex);
    while (session->zh && !session->connected) {
        pthread_cond_wait(&changed, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    return session->zh ? ZOK : ZSYSTEMERROR;
}

static int create(struct session *session, char **w, const struct ACL_vector *acl, int flags, char *result) {
    return zoo_create(session->zh, w[0], w[1], strlen(w[1]), acl, flags, result, LINE);
}

static int multi(struct session *session, char **w) {
    char path[LINE];
    struct Stat stat;
    zoo_op_t ops[2];
    zoo_op_result_t results[2];
    zoo_create_op_init(&ops[0], w[0], "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
    zoo_set_op_init(&ops[1], w[1], "x", 1, atoi(w[2]), &stat);
    return zoo_multi(session->zh, 2, ops, results);
}

static void flood_ended(int code, const struct Stat *stat, const void *context) {
    const struct one *one = context;
    pthread_mutex_lock(&mutex);
    one->flood->codes[one->index] = code;
    one->flood->left--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static int do_flood(struct session *session, char **w, char *result) {
    struct flood *flood = calloc(1, sizeof *flood); /* for answers that come late */
    struct one *ones = calloc(FLOOD, sizeof *ones);
    struct timespec limit;
    int size = atoi(w[2]);
    char *data = malloc(size);
    memset(data, 'x', size);
    flood->left = FLOOD;
    for (int i = 0; i < FLOOD; i++) {
        flood->codes[i] = NO_ANSWER;
        ones[i] = (struct one){flood, i};
    }
    for (int i = 0; i < FLOOD; i++) {
        int code = zoo_aset(session->zh, w[0], data, size, -1, flood_ended, &ones[i]);
        if (code != ZOK) {
            flood_ended(code, NULL, &ones[i]);
        }
    }
    if (w[3]) {
        zookeeper_close(session->zh);
    }
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    pthread_mutex_lock(&mutex);
    while (flood->left > 0 && pthread_cond_timedwait(&changed, &mutex, &limit) == 0) {
    }
    *result = '\0';
    for (int i = 0, next; i < FLOOD; i = next) { /* how many in a row have the same end */
        for (next = i; next < FLOOD && flood->codes[next] == flood->codes[i]; next++) {
        }
        if (strlen(result) < LINE - 100) {
            const char *name = flood->codes[i] == NO_ANSWER ? "no answer" : code_name(flood->codes[i]);
            sprintf(result + strlen(result), "%s%d*%s", i ? ", " : "", next - i, name);
        }
    }
    pthread_mutex_unlock(&mutex);
    return ZOK;
}

static int watch(struct session *session, char **w) {
    char data[LINE];
    int size = sizeof data;
    struct Stat stat;
    struct String_vector children = {0};
    if (strcmp(w[0], "data") == 0) {
        return zoo_wget(session->zh, w[1], node_watcher, session, data, &size, &stat);
    }
    if (strcmp(w[0], "exists") == 0) {
        int code = zoo_wexists(session->zh, w[1], node_watcher, session, &stat);
        return code == ZNONODE ? ZOK : code;
    }
    return zoo_wget_children(session->zh, w[1], node_watcher, session, &children);
}

static int get(struct session *session, const char *path, char *result) {
    int size = LINE - 1;
    struct Stat stat;
    int code = zoo_get(session->zh, path, 0, result, &size, &stat);
    result[code == ZOK && size > 0 ? size : 0] = '\0';
    return code;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int children(struct session *session, const char *path, char *result) {
    struct String_vector names = {0};
    int code = zoo_get_children(session->zh, path, 0, &names);
    qsort(names.data, names.count, sizeof *names.data, compare);
    for (int n = 0; n < names.count; n++) {
        sprintf(result + strlen(result), "%s%s", n ? "," : "", names.data[n]);
    }
    return code;
}

static int stat_node(struct session *session, const char *path, char *result) {
    struct Stat s;
    int code = zoo_exists(session->zh, path, 0, &s);
    if (code == ZOK) {
        sprintf(result, "%d %d %d, %d bytes, %d children%s", s.version, s.cversion, s.aversion, s.dataLength,
                s.numChildren, s.ephemeralOwner ? ", owned" : "");
    }
    return code;
}

static int fork_and_get(struct session *session, const char *path, char *result) {
    int ends[2];
    if (pipe(ends)) {
        return ZSYSTEMERROR;
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(5);
        char text[LINE];
        dprintf(ends[1], "%s", code_name(get(session, path, text)));
        _exit(0);
    }
    close(ends[1]);
    ssize_t size = read(ends[0], result, LINE - 1);
    close(ends[0]);
    waitpid(child, NULL, 0);
    result[size > 0 ? size : 0] = '\0';
    if (size <= 0) {
        strcpy(result, "no answer in 5 s");
    }
    return ZOK;
}

static void *follow(void *argument) {
    struct call *call = argument;
    struct session *session = call->session;
    char *command = call->words[2], **w = call->words + 3, result[LINE] = "";
    int code;
    if (strcmp(command, "connect") == 0) {
        code = connect_session(session, w);
    } else if (strcmp(command, "create") == 0) {
        code = create(session, w, &ZOO_OPEN_ACL_UNSAFE, 0, result);
    } else if (strcmp(command, "sequential") == 0) {
        code = create(session, w, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, result);
    } else if (strcmp(command, "ephemeral") == 0) {
        code = create(session, w, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, result);
    } else if (strcmp(command, "mine") == 0) {
        code = create(session, w, &ZOO_CREATOR_ALL_ACL, 0, result);
    } else if (strcmp(command, "auth") == 0) {
        code = zoo_add_auth(session->zh, w[0], w[1], strlen(w[1]), NULL, NULL);
    } else if (strcmp(command, "children") == 0) {
        code = children(session, w[0], result);
    } else if (strcmp(command, "stat") == 0) {
        code = stat_node(session, w[0], result);
    } else if (strcmp(command, "set") == 0) {
        code = zoo_set(session->zh, w[0], w[1], strlen(w[1]), atoi(w[2]));
    } else if (strcmp(command, "delete") == 0) {
        code = zoo_delete(session->zh, w[0], atoi(w[1]));
    } else if (strcmp(command, "multi") == 0) {
        code = multi(session, w);
    } else if (strcmp(command, "get") == 0) {
        code = get(session, w[0], result);
    } else if (strcmp(command, "flood") == 0) {
        code = do_flood(session, w, result);
    } else if (strcmp(command, "watch") == 0 && strchr("dce", w[0][0])) {
        code = watch(session, w);
    } else if (strcmp(command, "fork") == 0) {
        code = fork_and_get(session, w[0], result);
    } else if (strcmp(command, "close") == 0) {
        code = zookeeper_close(session->zh);
    } else {
        say("%s lacks", call->words[0]);
        free(call);
        return NULL;
    }
    if (code == ZOK) {
        say("%s ok %s", call->words[0], result);
    } else {
        say("%s error %s", call->words[0], code_name(code));
    }
    free(call);
    return NULL;
}

static struct session *find_session(const char *name) {
    for (int n = 0; n < session_count; n++) {
        if (strcmp(sessions[n].name, name) == 0) {
            return &sessions[n];
        }
    }
    snprintf(sessions[session_count].name, sizeof sessions[0].name, "%s", name);
    return &sessions[session_count++];
}

int main(void) {
    char line[LINE];
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        struct call *call = calloc(1, sizeof *call);
        pthread_t thread;
        strcpy(call->line, line);
        char *rest = call->line;
        for (int n = 0; n < WORDS; n++) {
            call->words[n] = strtok_r(n ? NULL : rest, " \n", &rest);
        }
        if (strcmp(call->words[2], "exit") == 0) {
            return 0;
        }
        call->session = find_session(call->words[1]);
        pthread_create(&thread, NULL, follow, call);
        pthread_detach(thread);
    }
    _exit(0);
}
