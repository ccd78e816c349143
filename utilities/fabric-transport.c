/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#include "fabric-transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fatal-signal.h"
#include "hash.h"
#include "ipoib-wire.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "socket-util.h"
#include "sset.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_transport);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

/* Messages that one system call takes from a socket. */
#define RX_BATCH 64
/* Messages that wait for one flush. */
#define TX_BATCH 256
/* Rounds of epoll_wait() before the main loop gets its turn, and time after
 * which it does in any case: what comes may be much work. */
#define MAX_ROUNDS 16
#define MAX_ROUNDS_MS 10
/* Longer ones are no messages of the contract. */
#define RX_SIZE ROUND_UP(IB_SOFT_MSG_MAX + 1, 64)

#define SOCKET_BUFFER (4 << 20)
#define UDP_SILENCE_MS 30000

enum {
    KIND_UNIX,                  /* A connection. */
    KIND_UDP,                   /* A source of datagrams. */
    KIND_UNIX_LISTENER,
    KIND_UDP_SOCKET,
};

struct fabric_transport {
    const struct fabric_transport_ops *ops;
    void *aux;
    int epoll_fd;

    struct fabric_endpoint unix_listener; /* 'fd' is -1 if there is none. */
    char *unix_path;
    long long int accept_after; /* LLONG_MIN: the listener is in the epoll. */
    struct fabric_endpoint udp_socket;    /* 'fd' is -1 if there is none. */

    struct ovs_list connections; /* Of KIND_UNIX. */
    struct hmap sources;        /* Of KIND_UDP. */
    struct ovs_list dead;       /* Freed when no event can refer to them. */
    long long int next_silence_check;

    /* Received. */
    struct mmsghdr rx[RX_BATCH];
    struct iovec rx_iov[RX_BATCH];
    struct sockaddr_in rx_sin[RX_BATCH];
    uint8_t (*rx_buf)[RX_SIZE];

    /* To be sent. */
    struct mmsghdr tx[TX_BATCH];
    struct iovec tx_iov[TX_BATCH];
    struct fabric_endpoint *tx_to[TX_BATCH];
    size_t n_tx;
};

static void
watch(struct fabric_transport *t, struct fabric_endpoint *ep)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = ep };

    if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, ep->fd, &event)) {
        VLOG_ERR("epoll_ctl: %s", ovs_strerror(errno));
    }
}

static void
unwatch(struct fabric_transport *t, struct fabric_endpoint *ep)
{
    epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, ep->fd, NULL);
}

/* Gives 'fd' room for bursts: beyond the system's limit if we may. */
static void
widen_buffers(int fd)
{
    static const int options[][2] = {
        { SO_SNDBUFFORCE, SO_SNDBUF }, { SO_RCVBUFFORCE, SO_RCVBUF }
    };
    int size = SOCKET_BUFFER;

    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        if (setsockopt(fd, SOL_SOCKET, options[i][0], &size, sizeof size)) {
            setsockopt(fd, SOL_SOCKET, options[i][1], &size, sizeof size);
        }
    }
}

/* Every port over AF_UNIX takes a file descriptor. */
static void
raise_fd_limit(void)
{
    struct rlimit limit;

    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < 65536) {
        limit.rlim_cur = (limit.rlim_max == RLIM_INFINITY
                          ? 65536 : MIN(65536, limit.rlim_max));
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

struct fabric_transport *
fabric_transport_create(const struct fabric_transport_ops *ops, void *aux)
{
    struct fabric_transport *t = xzalloc(sizeof *t);

    t->ops = ops;
    t->aux = aux;
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (t->epoll_fd < 0) {
        ovs_fatal(errno, "epoll_create1");
    }
    t->unix_listener.fd = t->udp_socket.fd = -1;
    t->unix_listener.kind = KIND_UNIX_LISTENER;
    t->udp_socket.kind = KIND_UDP_SOCKET;
    t->accept_after = LLONG_MIN;
    ovs_list_init(&t->connections);
    hmap_init(&t->sources);
    ovs_list_init(&t->dead);
    t->rx_buf = xmalloc(RX_BATCH * sizeof *t->rx_buf);
    for (int i = 0; i < RX_BATCH; i++) {
        t->rx_iov[i].iov_base = t->rx_buf[i];
        t->rx_iov[i].iov_len = sizeof t->rx_buf[i];
        t->rx[i].msg_hdr.msg_iov = &t->rx_iov[i];
        t->rx[i].msg_hdr.msg_iovlen = 1;
    }
    raise_fd_limit();
    return t;
}

static void
free_dead(struct fabric_transport *t)
{
    struct fabric_endpoint *ep;

    LIST_FOR_EACH_POP (ep, list_node, &t->dead) {
        free(ep);
    }
}

void
fabric_transport_destroy(struct fabric_transport *t)
{
    struct fabric_endpoint *ep;

    if (!t) {
        return;
    }
    LIST_FOR_EACH_SAFE (ep, list_node, &t->connections) {
        fabric_endpoint_close(t, ep);
    }
    HMAP_FOR_EACH_SAFE (ep, node, &t->sources) {
        fabric_endpoint_close(t, ep);
    }
    free_dead(t);
    hmap_destroy(&t->sources);
    if (t->unix_listener.fd >= 0) {
        close(t->unix_listener.fd);
        fatal_signal_unlink_file_now(t->unix_path);
        free(t->unix_path);
    }
    if (t->udp_socket.fd >= 0) {
        close(t->udp_socket.fd);
    }
    close(t->epoll_fd);
    free(t->rx_buf);
    free(t);
}

/* Checks that nobody serves at 'path', and that binding there would at most
 * remove a socket that a dead process left.  Returns NULL or an error, which
 * the caller must free. */
static char *
check_unix_path(const char *path)
{
    struct stat s;
    int fd;

    if (lstat(path, &s)) {
        return errno == ENOENT ? NULL : xasprintf("%s: %s", path,
                                                  ovs_strerror(errno));
    }
    if (!S_ISSOCK(s.st_mode)) {
        return xasprintf("%s: exists and is not a socket", path);
    }
    fd = make_unix_socket(SOCK_SEQPACKET, true, NULL, path);
    if (fd == -ECONNREFUSED) {
        return NULL;
    } else if (fd >= 0) {
        close(fd);
        return xasprintf("%s: another process listens there", path);
    }
    return xasprintf("%s: another process may listen there (%s)", path,
                     ovs_strerror(-fd));
}

/* Listens at 'path'.  Returns NULL or an error, which the caller must free. */
char *
fabric_transport_listen_unix(struct fabric_transport *t, const char *path)
{
    char *abs_path = abs_file_name(NULL, path);
    char *error = check_unix_path(abs_path);
    int fd;

    if (error) {
        free(abs_path);
        return error;
    }
    fd = make_unix_socket(SOCK_SEQPACKET, true, abs_path, NULL);
    if (fd < 0) {
        error = xasprintf("%s: %s", path, ovs_strerror(-fd));
        free(abs_path);
        return error;
    }
    if (listen(fd, 1024)) {
        error = xasprintf("%s: listen: %s", path, ovs_strerror(errno));
        close(fd);
        fatal_signal_unlink_file_now(abs_path);
        free(abs_path);
        return error;
    }
    t->unix_path = abs_path;
    t->unix_listener.fd = fd;
    watch(t, &t->unix_listener);
    return NULL;
}

/* Listens at 'address', "ADDR:PORT".  Returns NULL or an error, which the
 * caller must free. */
char *
fabric_transport_listen_udp(struct fabric_transport *t, const char *address)
{
    const char *colon = strrchr(address, ':');
    struct sockaddr_in sin = { .sin_family = AF_INET };
    unsigned int port;
    char *host, *error;
    bool ok;
    int fd;

    host = colon ? xmemdup0(address, colon - address) : NULL;
    ok = (host && inet_pton(AF_INET, host, &sin.sin_addr) == 1
          && str_to_uint(colon + 1, 10, &port) && port <= 65535);
    free(host);
    if (!ok) {
        return xasprintf("%s: not an IPv4 address and a port", address);
    }
    sin.sin_port = htons(port);

    fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return xasprintf("%s: socket: %s", address, ovs_strerror(errno));
    }
    widen_buffers(fd);
    if (bind(fd, (struct sockaddr *) &sin, sizeof sin)) {
        error = xasprintf("%s: bind: %s", address, ovs_strerror(errno));
        close(fd);
        return error;
    }
    t->udp_socket.fd = fd;
    watch(t, &t->udp_socket);
    return NULL;
}

/* Adds "unix:PATH" and "udp:ADDR:PORT" to 'addresses', as far as there are. */
void
fabric_transport_format_addresses(const struct fabric_transport *t,
                                  struct sset *addresses)
{
    if (t->unix_listener.fd >= 0) {
        sset_add_and_free(addresses, xasprintf("unix:%s", t->unix_path));
    }
    if (t->udp_socket.fd >= 0) {
        struct sockaddr_in sin;
        socklen_t len = sizeof sin;

        if (!getsockname(t->udp_socket.fd, (struct sockaddr *) &sin, &len)) {
            sset_add_and_free(addresses,
                              xasprintf("udp:"IP_FMT":%"PRIu16,
                                        IP_ARGS(sin.sin_addr.s_addr),
                                        ntohs(sin.sin_port)));
        }
    }
}

bool
fabric_endpoint_is_udp(const struct fabric_endpoint *ep)
{
    return ep->kind == KIND_UDP;
}

void
fabric_endpoint_format(const struct fabric_endpoint *ep, struct ds *ds)
{
    if (ep->kind == KIND_UDP) {
        ds_put_format(ds, "udp:"IP_FMT":%"PRIu16,
                      IP_ARGS(ep->sin.sin_addr.s_addr),
                      ntohs(ep->sin.sin_port));
    } else {
        ds_put_cstr(ds, "unix");
    }
}

/* Ends 'ep', without the 'closed' callback. */
void
fabric_endpoint_close(struct fabric_transport *t, struct fabric_endpoint *ep)
{
    if (ep->dead) {
        return;
    }
    fabric_transport_flush(t);
    ep->dead = true;
    ep->owner = NULL;
    if (ep->kind == KIND_UDP) {
        hmap_remove(&t->sources, &ep->node);
    } else {
        ovs_list_remove(&ep->list_node);
        unwatch(t, ep);
        close(ep->fd);
    }
    ep->fd = -1;
    ovs_list_push_back(&t->dead, &ep->list_node);
}

static void
endpoint_ended(struct fabric_transport *t, struct fabric_endpoint *ep)
{
    if (ep->owner) {
        t->ops->closed(t->aux, ep);
    }
    fabric_endpoint_close(t, ep);
}

static uint32_t
hash_sin(const struct sockaddr_in *sin)
{
    return hash_2words((OVS_FORCE uint32_t) sin->sin_addr.s_addr,
                       (OVS_FORCE uint32_t) sin->sin_port);
}

/* Returns the UDP endpoint of 'sin', made if need be. */
static struct fabric_endpoint *
udp_endpoint(struct fabric_transport *t, const struct sockaddr_in *sin)
{
    uint32_t hash = hash_sin(sin);
    struct fabric_endpoint *ep;

    HMAP_FOR_EACH_WITH_HASH (ep, node, hash, &t->sources) {
        if (ep->sin.sin_addr.s_addr == sin->sin_addr.s_addr
            && ep->sin.sin_port == sin->sin_port) {
            return ep;
        }
    }
    ep = xzalloc(sizeof *ep);
    ep->kind = KIND_UDP;
    ep->fd = t->udp_socket.fd;
    ep->sin = *sin;
    hmap_insert(&t->sources, &ep->node, hash);
    return ep;
}

/* Takes messages from the UDP socket.  A source that does not become
 * somebody's is forgotten at once. */
static void
udp_receive(struct fabric_transport *t)
{
    int n;

    for (int i = 0; i < RX_BATCH; i++) {
        t->rx[i].msg_hdr.msg_name = &t->rx_sin[i];
        t->rx[i].msg_hdr.msg_namelen = sizeof t->rx_sin[i];
    }
    n = recvmmsg(t->udp_socket.fd, t->rx, RX_BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++) {
        struct fabric_endpoint *ep = udp_endpoint(t, &t->rx_sin[i]);

        ep->heard = time_msec();
        t->ops->receive(t->aux, ep, t->rx_buf[i], t->rx[i].msg_len);
        if (!ep->owner) {
            fabric_endpoint_close(t, ep);
        }
    }
    fabric_transport_flush(t);
}

static void
unix_receive(struct fabric_transport *t, struct fabric_endpoint *ep)
{
    bool ended;
    int n;

    for (int i = 0; i < RX_BATCH; i++) {
        t->rx[i].msg_hdr.msg_name = NULL;
        t->rx[i].msg_hdr.msg_namelen = 0;
    }
    n = recvmmsg(ep->fd, t->rx, RX_BATCH, MSG_DONTWAIT, NULL);
    ended = n < 0 && errno != EAGAIN && errno != EINTR;
    ep->heard = time_msec();
    for (int i = 0; i < n && !ep->dead; i++) {
        /* A message of no bytes cannot be told from the end. */
        if (!t->rx[i].msg_len) {
            ended = true;
            break;
        }
        t->ops->receive(t->aux, ep, t->rx_buf[i], t->rx[i].msg_len);
    }
    fabric_transport_flush(t);
    if (ended && !ep->dead) {
        endpoint_ended(t, ep);
    }
}

static void
unix_accept(struct fabric_transport *t)
{
    for (int i = 0; i < RX_BATCH; i++) {
        struct fabric_endpoint *ep;
        int fd = accept4(t->unix_listener.fd, NULL, NULL,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS
                || errno == ENOMEM) {
                VLOG_WARN_RL(&rl, "cannot take more connections: %s",
                             ovs_strerror(errno));
                unwatch(t, &t->unix_listener);
                t->accept_after = time_msec() + 1000;
            }
            return;
        }
        widen_buffers(fd);
        ep = xzalloc(sizeof *ep);
        ep->kind = KIND_UNIX;
        ep->fd = fd;
        ovs_list_push_back(&t->connections, &ep->list_node);
        watch(t, ep);
    }
}

/* Ends UDP endpoints from which nothing has come for long. */
static void
check_silence(struct fabric_transport *t)
{
    long long int now = time_msec();
    struct fabric_endpoint *ep;

    if (now < t->next_silence_check) {
        return;
    }
    t->next_silence_check = now + 1000;
    HMAP_FOR_EACH_SAFE (ep, node, &t->sources) {
        if (now - ep->heard >= UDP_SILENCE_MS) {
            endpoint_ended(t, ep);
        }
    }
}

void
fabric_transport_run(struct fabric_transport *t)
{
    long long int deadline;

    if (t->accept_after != LLONG_MIN && time_msec() >= t->accept_after) {
        t->accept_after = LLONG_MIN;
        watch(t, &t->unix_listener);
    }
    check_silence(t);

    deadline = time_msec() + MAX_ROUNDS_MS;
    for (int round = 0; round < MAX_ROUNDS && time_msec() < deadline;
         round++) {
        struct epoll_event events[64];
        int n = epoll_wait(t->epoll_fd, events, ARRAY_SIZE(events), 0);

        if (n <= 0) {
            break;
        }
        for (int i = 0; i < n; i++) {
            struct fabric_endpoint *ep = events[i].data.ptr;

            if (ep->dead) {
                continue;
            }
            switch (ep->kind) {
            case KIND_UNIX:
                unix_receive(t, ep);
                break;
            case KIND_UNIX_LISTENER:
                unix_accept(t);
                break;
            case KIND_UDP_SOCKET:
                udp_receive(t);
                break;
            default:
                OVS_NOT_REACHED();
            }
        }
        free_dead(t);
    }
    fabric_transport_flush(t);
    free_dead(t);
}

void
fabric_transport_wait(struct fabric_transport *t)
{
    poll_fd_wait(t->epoll_fd, POLLIN);
    if (t->accept_after != LLONG_MIN) {
        poll_timer_wait_until(t->accept_after);
    }
    if (!hmap_is_empty(&t->sources)) {
        poll_timer_wait_until(t->next_silence_check);
    }
}

/* Sends the message of 'len' bytes at 'msg' to 'ep', not later than the next
 * fabric_transport_flush(), until which it must stay where it is. */
void
fabric_transport_queue(struct fabric_transport *t, struct fabric_endpoint *ep,
                       const void *msg, size_t len)
{
    struct msghdr *hdr;

    if (t->n_tx >= TX_BATCH) {
        fabric_transport_flush(t);
    }
    t->tx_iov[t->n_tx].iov_base = CONST_CAST(void *, msg);
    t->tx_iov[t->n_tx].iov_len = len;
    hdr = &t->tx[t->n_tx].msg_hdr;
    memset(hdr, 0, sizeof *hdr);
    hdr->msg_iov = &t->tx_iov[t->n_tx];
    hdr->msg_iovlen = 1;
    if (ep->kind == KIND_UDP) {
        hdr->msg_name = &ep->sin;
        hdr->msg_namelen = sizeof ep->sin;
    }
    t->tx_to[t->n_tx++] = ep;
}

/* Sends what is queued: each run of messages that leave by one socket with
 * one system call. */
void
fabric_transport_flush(struct fabric_transport *t)
{
    size_t end;

    for (size_t i = 0; i < t->n_tx; i = end) {
        int fd = t->tx_to[i]->fd;

        for (end = i + 1; end < t->n_tx && t->tx_to[end]->fd == fd; end++) {
            continue;
        }
        for (size_t j = i; j < end; ) {
            int n = sendmmsg(fd, &t->tx[j], end - j,
                             MSG_DONTWAIT | MSG_NOSIGNAL);

            if (n > 0) {
                j += n;
            } else if (errno != EINTR) {
                t->ops->send_failed(t->aux, t->tx_to[j++]);
            }
        }
    }
    t->n_tx = 0;
}

/* Sends the message of 'len' bytes at 'msg' to 'ep', at once.  Returns 0 or a
 * positive errno value. */
int
fabric_transport_send(struct fabric_transport *t, struct fabric_endpoint *ep,
                      const void *msg, size_t len)
{
    ssize_t n;

    fabric_transport_flush(t);
    do {
        if (ep->kind == KIND_UDP) {
            n = sendto(ep->fd, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL,
                       (struct sockaddr *) &ep->sin, sizeof ep->sin);
        } else {
            n = send(ep->fd, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
    } while (n < 0 && errno == EINTR);
    return n < 0 ? errno : 0;
}
