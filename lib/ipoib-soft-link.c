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
#include "ipoib-soft-private.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ipoib-soft.h"
#include "latch.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "socket-util.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_soft_link);

/* The software HCA's link over a socket to the soft fabric
 * (Documentation/topics/soft-fabric.rst).
 *
 * A thread of the HCA attaches the port, again whenever the fabric went away,
 * and receives.  Senders write to the socket themselves; a socket that has no
 * room loses the packet. */

#define RX_BATCH   32
#define RX_ROUNDS  8            /* Batches between two looks at the rest. */
#define RX_BUF_LEN 4608         /* Above IB_SOFT_MSG_MAX. */
#define TX_BATCH   32
#define SOCKET_BUF (8 * 1024 * 1024)

/* Time between attempts to connect: soon at first, so that nobody waits for
 * a fabric that is restarted. */
#define RETRY_SOON_MS   100
#define RETRY_LATER_MS  500
#define RETRY_SOON_FOR  100     /* Attempts. */

/* UDP: see "Transport" of the contract. */
#define ATTACH_FIRST_MS 1000
#define ATTACH_AGAIN_MS 5000
#define PORT_SILENT_MS  15000

/* A connection.  Freed under RCU, since senders use it without a lock. */
struct soft_conn {
    int fd;
};

struct soft_socket {
    struct soft_hca *hca;
    bool udp;
    struct sockaddr_in sin;     /* If 'udp'. */
    pthread_t thread;
    struct latch exit;
    struct latch refused;       /* UDP: nobody listens there now. */
    struct latch failed;        /* The device has failed: stop. */
    OVSRCU_TYPE(struct soft_conn *) conn;

    /* Of the thread alone. */
    long long int next_try;     /* To connect, or (UDP) to attach. */
    long long int last_port;    /* UDP: when the last PORT came; 0: never. */
    int n_tries;
    bool attached;              /* A PORT has come. */
    bool dead;                  /* 'failed' was seen. */
    struct soft_port port;      /* What the fabric said. */
    uint8_t (*bufs)[RX_BUF_LEN];
};

static void
conn_free(struct soft_conn *conn)
{
    close(conn->fd);
    free(conn);
}

static struct soft_conn *
socket_conn(const struct soft_socket *s)
{
    return ovsrcu_get(struct soft_conn *, &s->conn);
}

/* The port is Down from now on, until the next PORT. */
static void
port_down(struct soft_socket *s)
{
    if (s->attached) {
        s->attached = false;
        soft_count(s->hca, SOFT_C_LOST, 1);
        VLOG_INFO("%s: lost the fabric", s->hca->full_name);
        s->port.state = IBV_PORT_DOWN;
        s->port.grh_required = false;
        soft_port_set(s->hca, &s->port, false);
    }
}

static void
socket_disconnect(struct soft_socket *s)
{
    struct soft_conn *conn = socket_conn(s);

    if (conn) {
        shutdown(conn->fd, SHUT_RDWR);
        ovsrcu_set(&s->conn, NULL);
        ovsrcu_postpone(conn_free, conn);
    }
    port_down(s);
    s->next_try = time_msec() + RETRY_SOON_MS;
    s->n_tries = 0;
}

static void
set_buffer(int fd, int force, int option)
{
    int size = SOCKET_BUF;

    if (setsockopt(fd, SOL_SOCKET, force, &size, sizeof size)) {
        ignore(setsockopt(fd, SOL_SOCKET, option, &size, sizeof size));
    }
}

static int
socket_open(struct soft_socket *s)
{
    int fd;

    if (!s->udp) {
        return make_unix_socket(SOCK_SEQPACKET, true, NULL,
                                s->hca->name.where);
    }
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    if (connect(fd, (struct sockaddr *) &s->sin, sizeof s->sin)) {
        int error = errno;

        close(fd);
        return -error;
    }
    return fd;
}

static void
socket_connect(struct soft_socket *s)
{
    struct soft_conn *conn;
    int fd = socket_open(s);

    if (fd < 0) {
        if (!s->n_tries++) {
            VLOG_INFO("%s: the fabric does not answer (%s), trying on",
                      s->hca->full_name, ovs_strerror(-fd));
        }
        s->next_try = time_msec() + (s->n_tries < RETRY_SOON_FOR
                                     ? RETRY_SOON_MS : RETRY_LATER_MS);
        return;
    }
    set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
    set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF);
    conn = xmalloc(sizeof *conn);
    conn->fd = fd;
    ovsrcu_set(&s->conn, conn);
    s->n_tries = 0;
    s->last_port = 0;
    s->next_try = time_msec();
}

static void
put_guid(ovs_be32 dst[2], uint64_t guid)
{
    dst[0] = htonl(guid >> 32);
    dst[1] = htonl(guid);
}

static char description[64];    /* Empty if none was set. */

void
ipoib_soft_set_description(const char *s)
{
    ovs_strlcpy(description, s, sizeof description);
}

static void
socket_attach(struct soft_socket *s)
{
    struct soft_conn *conn = socket_conn(s);
    struct ib_soft_attach m;
    char host[64] = "";

    memset(&m, 0, sizeof m);
    m.h.magic = htons(IB_SOFT_MAGIC);
    m.h.version = IB_SOFT_VERSION;
    m.h.type = IB_SOFT_ATTACH;
    put_guid(m.node_guid, s->hca->port_guid);
    put_guid(m.port_guid, s->hca->port_guid);
    m.max_mtu = IBV_MTU_4096;
    if (gethostname(host, sizeof host - 1)) {
        host[0] = '\0';
    }
    snprintf(m.description, sizeof m.description, "%.24s %.38s", host,
             description[0] ? description : s->hca->full_name);
    if (send(conn->fd, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0
        && !s->udp && errno != EAGAIN) {
        socket_disconnect(s);
    }
}

/* Connects and attaches when it is time to. */
static void
socket_run(struct soft_socket *s)
{
    long long int now = time_msec();

    if (s->dead || latch_is_set(&s->failed)) {
        if (!s->dead) {
            socket_disconnect(s);
            s->next_try = LLONG_MAX;
            s->last_port = 0;
            s->dead = true;
        }
        return;
    }
    if (s->udp && s->last_port && now - s->last_port >= PORT_SILENT_MS) {
        s->last_port = 0;
        port_down(s);
        s->next_try = now;
    }
    if (s->udp && latch_poll(&s->refused)) {
        /* The fabric ended, and may be started anew at once. */
        s->next_try = MIN(s->next_try, now + ATTACH_FIRST_MS);
    }
    if (now < s->next_try) {
        return;
    }
    if (!socket_conn(s)) {
        socket_connect(s);
        if (!socket_conn(s)) {
            return;
        }
    }
    s->next_try = (!s->udp ? LLONG_MAX
                   : now + (s->last_port ? ATTACH_AGAIN_MS
                            : ATTACH_FIRST_MS));
    socket_attach(s);
}

static void
socket_wait(struct soft_socket *s)
{
    if (s->next_try != LLONG_MAX) {
        poll_timer_wait_until(s->next_try);
    }
    if (s->udp && s->last_port) {
        poll_timer_wait_until(s->last_port + PORT_SILENT_MS);
    }
    if (socket_conn(s)) {
        poll_fd_wait(socket_conn(s)->fd, POLLIN);
    }
    latch_wait(&s->exit);
    latch_wait(&s->refused);
    if (!s->dead) {
        latch_wait(&s->failed);
    }
}

static void
handle_port(struct soft_socket *s, const struct ib_soft_port *m, size_t len)
{
    struct soft_port *p = &s->port;
    size_t n = len >= IB_SOFT_PORT_LEN ? ntohs(m->n_pkeys) : 0;
    uint64_t prefix;

    if (n < 1 || n > IB_SOFT_MAX_PKEYS
        || len < IB_SOFT_PORT_LEN + n * sizeof m->pkeys[0]
        || m->state < IBV_PORT_DOWN || m->state > IBV_PORT_ACTIVE
        || !ib_mtu_bytes(m->active_mtu) || m->lmc > 7) {
        soft_count(s->hca, SOFT_C_RX_BAD_MESSAGE, 1);
        return;
    }
    if (!s->attached) {
        s->attached = true;
        soft_count(s->hca, SOFT_C_ATTACHED, 1);
        VLOG_INFO("%s: attached to the fabric as LID %u, GUID 0x%016"PRIx64,
                  s->hca->full_name, ntohs(m->lid), s->hca->port_guid);
    }
    p->state = m->state;
    p->lmc = m->lmc;
    p->lid = ntohs(m->lid);
    p->sm_lid = ntohs(m->sm_lid);
    p->sm_sl = m->sm_sl;
    p->subnet_timeout = m->subnet_timeout;
    prefix = ((uint64_t) ntohl(m->gid_prefix[0]) << 32
              | ntohl(m->gid_prefix[1]));
    p->gid = ib_gid_make(prefix, s->hca->port_guid);
    p->active_mtu = m->active_mtu;
    p->active_width = m->active_width;
    p->active_speed = m->active_speed;
    for (size_t i = 0; i < IB_SOFT_MAX_PKEYS; i++) {
        p->pkeys[i] = i < n ? ntohs(m->pkeys[i]) : 0;
    }
    if (s->udp) {
        if (!s->last_port) {
            s->next_try = time_msec() + ATTACH_AGAIN_MS;
        }
        s->last_port = time_msec();
    }
    soft_port_set(s->hca, p, m->flags & IB_SOFT_PORT_REREGISTER);
}

static void
handle_packet(struct soft_socket *s, const uint8_t *data, size_t len)
{
    struct soft_packet p;

    if (ib_ud_parse(data, len, &p.ud)) {
        soft_count(s->hca, SOFT_C_RX_MALFORMED, 1);
        return;
    }
    p.sender = NULL;
    p.n_iov = 1;
    p.iov[0].iov_base = CONST_CAST(void *, p.ud.payload);
    p.iov[0].iov_len = p.ud.payload_len;
    soft_deliver(s->hca, &p);
}

static void
handle_message(struct soft_socket *s, const uint8_t *data, size_t len)
{
    const struct ib_soft_header *h = ALIGNED_CAST(const void *, data);

    if (len < sizeof *h || h->magic != htons(IB_SOFT_MAGIC)
        || h->version != IB_SOFT_VERSION) {
        soft_count(s->hca, SOFT_C_RX_BAD_MESSAGE, 1);
        return;
    }
    switch (h->type) {
    case IB_SOFT_PORT:
        handle_port(s, ALIGNED_CAST(const void *, data), len);
        break;

    case IB_SOFT_PACKET:
        handle_packet(s, data + sizeof *h, len - sizeof *h);
        break;

    case IB_SOFT_PORTCAP:
        if (len < IB_SOFT_PORTCAP_LEN) {
            soft_count(s->hca, SOFT_C_RX_BAD_MESSAGE, 1);
        } else {
            const struct ib_soft_portcap *m = ALIGNED_CAST(const void *, data);

            s->port.grh_required = m->flags & IB_SOFT_PORTCAP_GRH_REQUIRED;
            soft_port_set(s->hca, &s->port, false);
        }
        break;

    default:
        soft_count(s->hca, SOFT_C_RX_UNKNOWN_TYPE, 1);
        break;
    }
}

/* Receives one batch.  Returns false when there is no more for now. */
static bool
socket_receive(struct soft_socket *s)
{
    struct mmsghdr msgs[RX_BATCH];
    struct iovec iov[RX_BATCH];
    struct soft_conn *conn = socket_conn(s);
    int n;

    if (!conn) {
        return false;
    }
    memset(msgs, 0, sizeof msgs);
    for (int i = 0; i < RX_BATCH; i++) {
        iov[i].iov_base = s->bufs[i];
        iov[i].iov_len = RX_BUF_LEN;
        msgs[i].msg_hdr.msg_iov = &iov[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
    }
    n = recvmmsg(conn->fd, msgs, RX_BATCH, MSG_DONTWAIT, NULL);
    if (n < 0) {
        if (s->udp) {
            if (errno == ECONNREFUSED) {
                latch_set(&s->refused);
            }
        } else if (errno != EAGAIN && errno != EINTR) {
            socket_disconnect(s);
        }
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!msgs[i].msg_len && !s->udp) {
            socket_disconnect(s);   /* End of the connection. */
            return false;
        }
        if (msgs[i].msg_hdr.msg_flags & MSG_TRUNC) {
            soft_count(s->hca, SOFT_C_RX_BAD_MESSAGE, 1);
        } else {
            handle_message(s, s->bufs[i], msgs[i].msg_len);
        }
    }
    return n == RX_BATCH;
}

static void *
socket_main(void *s_)
{
    struct soft_socket *s = s_;

    while (!latch_is_set(&s->exit)) {
        int i;

        socket_run(s);
        for (i = 0; i < RX_ROUNDS && socket_receive(s); i++) {
            continue;
        }
        if (i == RX_ROUNDS) {
            poll_immediate_wake();
        }
        socket_wait(s);
        poll_block();
    }
    return NULL;
}

static int
socket_start(struct soft_hca *hca, char **errp OVS_UNUSED)
{
    struct soft_socket *s = xzalloc(sizeof *s);

    s->hca = hca;
    s->udp = hca->name.type == SOFT_UDP;
    s->port = *soft_port_get(hca);
    if (s->udp) {
        char *colon = strrchr(hca->name.where, ':');
        char *addr = xmemdup0(hca->name.where, colon - hca->name.where);
        ovs_be32 ip = 0;
        int port = 0;

        ignore(ip_parse(addr, &ip));   /* Both were checked with the name. */
        ignore(str_to_int(colon + 1, 10, &port));
        s->sin.sin_family = AF_INET;
        s->sin.sin_addr.s_addr = ip;
        s->sin.sin_port = htons(port);
        free(addr);
    }
    s->bufs = xmalloc_cacheline(RX_BATCH * sizeof *s->bufs);
    latch_init(&s->exit);
    latch_init(&s->refused);
    latch_init(&s->failed);
    ovsrcu_init(&s->conn, NULL);
    hca->socket = s;
    s->thread = ovs_thread_create("ipoib_hca", socket_main, s);
    return 0;
}

static void
socket_stop(struct soft_hca *hca)
{
    struct soft_socket *s = hca->socket;
    struct soft_conn *conn;

    latch_set(&s->exit);
    xpthread_join(s->thread, NULL);
    conn = socket_conn(s);
    if (conn) {
        struct ib_soft_header m = { .magic = htons(IB_SOFT_MAGIC),
                                    .version = IB_SOFT_VERSION,
                                    .type = IB_SOFT_DETACH };

        ignore(send(conn->fd, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL));
        conn_free(conn);
    }
    latch_destroy(&s->exit);
    latch_destroy(&s->refused);
    latch_destroy(&s->failed);
    free_cacheline(s->bufs);
    free(s);
}

static void
socket_fail(struct soft_hca *hca)
{
    latch_set(&hca->socket->failed);
}

/* Writes the 'n' messages 'msgs', of which those that the socket has no room
 * for are lost. */
static void
socket_write(struct soft_hca *hca, int fd, struct mmsghdr *msgs, size_t n)
{
    bool again = true;

    for (size_t i = 0; i < n; ) {
        int sent = sendmmsg(fd, msgs + i, n - i, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent > 0) {
            i += sent;
            again = true;
        } else if (errno == EINTR) {
            continue;
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            soft_count(hca, SOFT_C_TX_FULL, n - i);
            break;
        } else if (errno == ECONNREFUSED && again) {
            again = false;      /* An error of an earlier datagram. */
            latch_set(&hca->socket->refused);
        } else {
            soft_count(hca, SOFT_C_TX_ERROR, n - i);
            break;
        }
    }
}

static void
socket_send(struct soft_hca *hca, const struct soft_port *port OVS_UNUSED,
            struct soft_packet *const packets[], size_t n)
{
    struct tx {
        struct iovec iov[SOFT_MAX_SGE + 2];
        struct ib_soft_header h; /* 'hdr' follows without a gap. */
        uint8_t hdr[IB_UD_HEADER_MAX];
        uint8_t trailer[IB_UD_TRAILER_MAX];
    } tx[TX_BATCH];
    struct mmsghdr msgs[TX_BATCH];
    struct soft_conn *conn = socket_conn(hca->socket);

    BUILD_ASSERT_DECL(offsetof(struct tx, hdr) - offsetof(struct tx, h)
                      == sizeof(struct ib_soft_header));
    if (!conn) {
        soft_count(hca, SOFT_C_TX_LINK_DOWN, n);
        return;
    }
    ovs_assert(n <= TX_BATCH);
    memset(msgs, 0, n * sizeof msgs[0]);
    for (size_t i = 0; i < n; i++) {
        const struct soft_packet *p = packets[i];
        struct iovec *iov = tx[i].iov;
        size_t hdr_len, trailer_len;

        tx[i].h = (struct ib_soft_header) { .magic = htons(IB_SOFT_MAGIC),
                                            .version = IB_SOFT_VERSION,
                                            .type = IB_SOFT_PACKET };
        hdr_len = ib_ud_compose(&p->ud, tx[i].hdr, tx[i].trailer,
                                &trailer_len);
        iov[0].iov_base = &tx[i].h;
        iov[0].iov_len = sizeof tx[i].h + hdr_len;
        memcpy(iov + 1, p->iov, p->n_iov * sizeof *iov);
        iov[p->n_iov + 1].iov_base = tx[i].trailer;
        iov[p->n_iov + 1].iov_len = trailer_len;
        msgs[i].msg_hdr.msg_iov = iov;
        msgs[i].msg_hdr.msg_iovlen = p->n_iov + 2;
    }
    socket_write(hca, conn->fd, msgs, n);
}

const struct soft_link_class soft_link_socket = {
    .start = socket_start,
    .stop = socket_stop,
    .send = socket_send,
    .fail = socket_fail,
};
