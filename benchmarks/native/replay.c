/* A server that costs nothing: answers from memory, at once, all requests of a receive in one send.

   Speaks the handshake, ping, close, `srvr` for its version, and seven operations; remembers no node, so a get finds 100 bytes
   anywhere, and children are always ten.  One thread.  Prints its port on 127.0.0.1, and ends with
   its standard input. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 4096, CHUNK = 1 << 16, CONNECT_BYTES = 41, STAT_BYTES = 68, DATA_BYTES = 100 };

struct peer {
    char *in, *out;
    size_t in_used, in_size, out_used, out_sent, out_size;
    int greeted, closing;
};

static struct pollfd polls[MOST];
static struct peer peers[MOST];
static nfds_t count;
static uint64_t zxid = 1000;

static char data_reply[4 + DATA_BYTES + STAT_BYTES], stat_reply[STAT_BYTES], names_reply[4 + 10 * 9], names2_reply[4 + 10 * 9 + STAT_BYTES];
static const char version[] = "Zookeeper version: 3.4.14-0, built on nothing\n";

static void put32(char *to, uint32_t value) { value = htonl(value); memcpy(to, &value, 4); }
static uint32_t get32(const char *from) { uint32_t value; memcpy(&value, from, 4); return ntohl(value); }

static void make_replies(void) {
    for (int n = 7; n < STAT_BYTES; n += 8) stat_reply[n] = 1;
    put32(data_reply, DATA_BYTES);
    memset(data_reply + 4, 'x', DATA_BYTES);
    memcpy(data_reply + 4 + DATA_BYTES, stat_reply, STAT_BYTES);
    put32(names_reply, 10);
    for (int n = 0; n < 10; n++) {
        put32(names_reply + 4 + 9 * n, 5);
        memcpy(names_reply + 8 + 9 * n, "n0000", 5);
        names_reply[8 + 9 * n + 4] += n;
    }
    memcpy(names2_reply, names_reply, sizeof names_reply);
    memcpy(names2_reply + sizeof names_reply, stat_reply, STAT_BYTES);
}

/* Room for so many more bytes of output. */
static char *room(struct peer *p, size_t bytes) {
    if (p->out_used + bytes > p->out_size) {
        p->out_size = 2 * (p->out_used + bytes);
        p->out = realloc(p->out, p->out_size);
        if (!p->out) exit(1);
    }
    char *at = p->out + p->out_used;
    p->out_used += bytes;
    return at;
}

static void reply(struct peer *p, uint32_t xid, int32_t error, const char *body, size_t bytes) {
    char *to = room(p, 20 + bytes);
    zxid++;
    put32(to, 16 + bytes);
    put32(to + 4, xid);
    put32(to + 8, zxid >> 32);
    put32(to + 12, (uint32_t)zxid);
    put32(to + 16, error);
    if (bytes) memcpy(to + 20, body, bytes);
}

static void greet(struct peer *p, const char *body) {
    char *to = room(p, CONNECT_BYTES);
    memset(to, 0, CONNECT_BYTES);
    put32(to, CONNECT_BYTES - 4);
    memcpy(to + 8, body + 12, 4); /* the session timeout that was asked for */
    put32(to + 16, (uint32_t)++zxid);
    put32(to + 20, 16);
    p->greeted = 1;
}

static void answer(struct peer *p, const char *body, size_t bytes) {
    uint32_t xid = get32(body);
    switch ((int32_t)get32(body + 4)) {
    case 1: /* create: the path comes back */
        reply(p, xid, 0, body + 8, bytes >= 12 ? 4 + get32(body + 8) : 0);
        break;
    case 3: case 5: reply(p, xid, 0, stat_reply, sizeof stat_reply); break;
    case 4: reply(p, xid, 0, data_reply, sizeof data_reply); break;
    case 12: reply(p, xid, 0, names2_reply, sizeof names2_reply); break;
    case 8: reply(p, xid, 0, names_reply, sizeof names_reply); break;
    case 2: case 11: reply(p, xid, 0, 0, 0); break;
    case -11: reply(p, xid, 0, 0, 0); p->closing = 1; break;
    default: reply(p, xid, -6, 0, 0);
    }
}

static int receive(int fd, struct peer *p) {
    if (p->in_size - p->in_used < CHUNK) {
        p->in_size = p->in_used + 2 * CHUNK;
        p->in = realloc(p->in, p->in_size);
        if (!p->in) exit(1);
    }
    ssize_t got = recv(fd, p->in + p->in_used, p->in_size - p->in_used, 0);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    p->in_used += got;
    size_t at = 0;
    while (p->in_used - at >= 4) {
        size_t bytes = get32(p->in + at);
        if (!p->greeted && !memcmp(p->in, "srvr", 4)) { /* in place of a length */
            memcpy(room(p, sizeof version - 1), version, sizeof version - 1);
            p->closing = 1;
            return 1;
        }
        if (bytes < 8 || bytes > 16 << 20) return 0;
        if (p->in_used - at - 4 < bytes) break;
        if (p->greeted) answer(p, p->in + at + 4, bytes);
        else greet(p, p->in + at + 4);
        at += 4 + bytes;
    }
    memmove(p->in, p->in + at, p->in_used -= at);
    return 1;
}

static int flush(int fd, struct peer *p) {
    while (p->out_sent < p->out_used) {
        ssize_t sent = send(fd, p->out + p->out_sent, p->out_used - p->out_sent, MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN;
        p->out_sent += sent;
    }
    p->out_sent = p->out_used = 0;
    return !p->closing;
}

static void welcome(int listener) {
    int fd = accept4(listener, 0, 0, SOCK_NONBLOCK), one = 1;
    if (fd < 0) return;
    if (count == MOST) { close(fd); return; }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memset(&peers[count], 0, sizeof peers[count]);
    polls[count++] = (struct pollfd){fd, POLLIN, 0};
}

static void part(nfds_t n) {
    close(polls[n].fd);
    free(peers[n].in);
    free(peers[n].out);
    polls[n] = polls[--count];
    peers[n] = peers[count];
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1024)) return 1;
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    make_replies();
    polls[0] = (struct pollfd){0, POLLIN, 0};
    polls[1] = (struct pollfd){listener, POLLIN, 0};
    count = 2;
    while (poll(polls, count, -1) > 0) {
        if (polls[0].revents) return 0;
        for (nfds_t n = count; n-- > 2;) {
            if (!polls[n].revents) continue;
            struct peer *p = &peers[n];
            int well = polls[n].revents & POLLOUT || receive(polls[n].fd, p);
            if (!well || !flush(polls[n].fd, p)) part(n);
            /* Who does not read is not read from. */
            else polls[n].events = p->out_used ? POLLOUT : POLLIN;
        }
        if (polls[1].revents) welcome(listener);
    }
    return 0;
}
