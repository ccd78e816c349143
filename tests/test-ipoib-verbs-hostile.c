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
#undef NDEBUG
#include "test-ipoib-verbs.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ipoib-soft.h"
#include "ovs-rcu.h"
#include "random.h"
#include "socket-util.h"

/* A fabric that sends a software HCA what no fabric should.
 *
 * Nothing may crash or hang; each bad message is counted, and the port works
 * afterwards. */

#define N_ROUNDS 20000

struct fabric {
    int listen_fd;
    int fd;                     /* The HCA. */
    uint32_t qpn;               /* A queue pair of it. */
};

static void
wait_fd(int fd)
{
    struct pollfd pfd = { .fd = fd, .events = POLLIN };

    ovs_assert(poll(&pfd, 1, 5000) == 1);
}

/* Accepts the HCA, and takes its ATTACH. */
static void
fabric_accept(struct fabric *f)
{
    struct ib_soft_attach m;

    wait_fd(f->listen_fd);
    f->fd = accept(f->listen_fd, NULL, NULL);
    ovs_assert(f->fd >= 0);
    wait_fd(f->fd);
    ovs_assert(recv(f->fd, &m, sizeof m, 0) == sizeof m
               && m.h.magic == htons(IB_SOFT_MAGIC)
               && m.h.version == IB_SOFT_VERSION
               && m.h.type == IB_SOFT_ATTACH
               && (m.port_guid[0] || m.port_guid[1])
               && m.max_mtu == IBV_MTU_4096);
}

static size_t
put_header(void *buf, uint8_t type)
{
    struct ib_soft_header *h = buf;

    h->magic = htons(IB_SOFT_MAGIC);
    h->version = IB_SOFT_VERSION;
    h->type = type;
    return sizeof *h;
}

static size_t
put_port(void *buf)
{
    struct ib_soft_port *m = buf;

    memset(m, 0, IB_SOFT_PORT_LEN);
    put_header(m, IB_SOFT_PORT);
    m->state = IBV_PORT_ACTIVE;
    m->lid = htons(5);
    m->sm_lid = htons(1);
    m->gid_prefix[0] = htonl(0xfe800000);
    m->active_mtu = IBV_MTU_2048;
    m->active_width = 2;
    m->active_speed = 32;
    m->n_pkeys = htons(1);
    m->pkeys[0] = htons(IB_PKEY_DEFAULT);
    return IB_SOFT_PORT_LEN + sizeof m->pkeys[0];
}

static size_t
put_packet(const struct fabric *f, uint8_t *buf, uint8_t seed,
           size_t payload_len)
{
    struct ib_ud ud = {
        .slid = 6, .dlid = 5, .opcode = IB_OPCODE_UD_SEND,
        .pkey = IB_PKEY_DEFAULT, .dqpn = f->qpn, .sqpn = 0x77, .qkey = QKEY,
        .payload_len = payload_len,
    };
    uint8_t trailer[IB_UD_TRAILER_MAX];
    size_t len = put_header(buf, IB_SOFT_PACKET), trailer_len;

    len += ib_ud_compose(&ud, buf + len, trailer, &trailer_len);
    fill(buf + len, seed, payload_len);
    len += payload_len;
    memcpy(buf + len, trailer, trailer_len);
    return len + trailer_len;
}

static void
fabric_send(const struct fabric *f, const void *data, size_t len)
{
    ovs_assert(send(f->fd, data, len, 0) == len);
}

/* A message that is right but for a few bytes, or its length. */
static void
send_mutant(const struct fabric *f)
{
    uint8_t buf[8192] OVS_ALIGNED_VAR(8);
    size_t len;

    memset(buf, 0, sizeof buf);
    len = (random_range(4) ? put_packet(f, buf, 0, random_range(200))
           : put_port(buf));
    switch (random_range(4)) {
    case 0:
        len = 1 + random_range(len);
        break;
    case 1:
        len += random_range(sizeof buf - len);
        break;
    default:
        for (int i = random_range(4); i >= 0; i--) {
            buf[random_range(MIN(len, 64))] = random_uint8();
        }
        break;
    }
    fabric_send(f, buf, len);
}

/* True if a good packet arrives at 'e' after a good PORT.  Each such packet
 * has a seed of its own: a mutant may be as good, and still be queued. */
static bool
passes(const struct fabric *f, struct end *e)
{
    static uint8_t seed;
    uint8_t buf[4096] OVS_ALIGNED_VAR(8);
    struct ibv_wc wc;

    fabric_send(f, buf, put_port(buf));
    fabric_send(f, buf, put_packet(f, buf, ++seed, 99));
    while (poll_one(e->rcq, &wc)) {
        bool ok = (!wc.status && wc.byte_len == IB_GRH_LEN + 99
                   && filled(slot(e, wc.wr_id) + IB_GRH_LEN, seed, 99));

        post_recv(e, wc.wr_id, wc.wr_id, SLOT);
        if (ok) {
            return true;
        }
    }
    return false;
}

/* Messages that are bad in one way each, and the counter of each. */
static void
test_bad_messages(const struct fabric *f, struct dev *d, struct end *e)
{
    static const struct {
        const char *what;
        size_t ofs;
        uint8_t value;
        const char *counter;
    } bad[] = {
        { "a bad magic", 0, 0, "rx_bad_message" },
        { "another version", 2, 9, "rx_bad_message" },
        { "a type that is not known", 3, 99, "rx_unknown_type" },
        { "a bad LNH", 4 + 1, 0, "rx_malformed" },
        { "a bad PktLen", 4 + 4, 0x7f, "rx_malformed" },
        { "another opcode", 4 + 8, 0x04, "rx_malformed" },
        { "another P_Key", 4 + 8 + 3, 0xfe, "rx_bad_pkey" },
        { "no such QPN", 4 + 8 + 5, 0, "rx_no_qp" },
        { "another Q_Key", 4 + 8 + 12, 0x99, "rx_bad_qkey" },
        { "another DLID", 4 + 3, 9, "rx_wrong_lid" },
        { "multicast without GRH", 4 + 2, 0xc0, "rx_multicast_without_grh" },
    };
    uint8_t buf[4096] OVS_ALIGNED_VAR(8);

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t before = ipoib_soft_counter(d->ctx, bad[i].counter);
        size_t len = put_packet(f, buf, 0, 60);

        /* A QPN may have that byte by chance. */
        buf[bad[i].ofs] = (buf[bad[i].ofs] == bad[i].value
                           ? ~bad[i].value : bad[i].value);
        fabric_send(f, buf, len);
        check(passes(f, e)
              && ipoib_soft_counter(d->ctx, bad[i].counter) == before + 1,
              "%s: %s", bad[i].what, bad[i].counter);
    }
}

void
test_hostile(const char *path)
{
    struct fabric f = { .fd = -1 };
    char *name = xasprintf("soft:unix:%s", path);
    struct dev d;
    struct end e;

    f.listen_fd = make_unix_socket(SOCK_SEQPACKET, false, path, NULL);
    ovs_assert(f.listen_fd >= 0 && !listen(f.listen_fd, 5));
    memset(&d, 0, sizeof d);
    open_dev(&d, name);
    make_end(&e, &d, NULL);
    post_recvs(&e, 64);
    f.qpn = e.qp->qp_num;
    fabric_accept(&f);
    check(passes(&f, &e), "a fabric, and a packet");
    test_bad_messages(&f, &d, &e);

    random_set_seed(getpid());
    for (int i = 0; i < N_ROUNDS; i++) {
        send_mutant(&f);
        if (!(i % 32)) {
            struct ibv_wc wc[32];
            int n = ibv_poll_cq(e.rcq, 32, wc);

            for (int j = 0; j < n; j++) {
                post_recv(&e, wc[j].wr_id, wc[j].wr_id, SLOT);
            }
            drop_events(&d);
            ovsrcu_quiesce();
        }
    }
    check(passes(&f, &e), "%d mutants, and a packet passes", N_ROUNDS);
    drop_events(&d);
    close(f.fd);
    check(wait_event(&d, IBV_EVENT_PORT_ERR, NULL, 2000), "it hangs up");
    fabric_accept(&f);
    check(passes(&f, &e) && port_is(&d, IBV_PORT_ACTIVE),
          "... and gets the port back");

    free_end(&e);
    ovs_assert(!d.v->dealloc_pd(d.pd) && !d.v->close_device(d.ctx));
    wait_fd(f.fd);
    close(f.fd);
    close(f.listen_fd);
    unlink(path);
    free(name);
}
