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

/* A transport for management datagrams over libibumad, that is through the
 * kernel's own queue pair 1, where a queue pair of our own cannot be used: it
 * may need a privilege, a site's subnet manager may refuse it, and mlx4 counts
 * a virtual function's memberships only in what passes here.
 *
 * A thread of its own blocks in umad_recv(), hands what it gets to a list, and
 * wakes the control thread by a latch.  (poll() on the descriptor among others
 * is not done, since libumad2sim, with which this is tested, cannot do it.) */

#include <config.h>
#include "ipoib-mad.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "coverage.h"
#include "latch.h"
#include "openvswitch/list.h"
#include "openvswitch/vlog.h"
#include "ovs-atomic.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "util.h"

/* <infiniband/umad.h> has functions of these names, unless they are macros. */
#define ntohll ntohll
#define htonll htonll
#include <infiniband/umad.h>

VLOG_DEFINE_THIS_MODULE(ipoib_umad);

COVERAGE_DEFINE(ipoib_umad_rx);
COVERAGE_DEFINE(ipoib_umad_tx);
COVERAGE_DEFINE(ipoib_umad_undelivered);
COVERAGE_DEFINE(ipoib_umad_bad_length);
COVERAGE_DEFINE(ipoib_umad_overflow);

/* The kernel drops the answer to a request that has no timeout; the client has
 * timers of its own, the longest of which is shorter than this, in ms. */
#define UMAD_TIMEOUT 5000

/* The thread looks this often, in ms, whether it is to end. */
#define UMAD_EXIT_POLL 100

/* Datagrams that wait for the control thread, at most. */
#define UMAD_MAX_RX 65536

/* Bytes of the SA header, which count in the length of a segment. */
#define UMAD_SA_HEADER_LEN 20

/* Room for an answer of several packets, which the kernel puts together.  It
 * grows, as a datagram that does not fit would stay in the way. */
#define UMAD_BUF_LEN 65536
#define UMAD_BUF_MAX (8 << 20)

struct umad_rx {
    struct ovs_list node;       /* In umad 'rx'. */
    bool undelivered;           /* Our own, back again. */
    uint16_t slid;
    struct ib_sa_mad mad;
};

struct umad {
    struct ipoib_mad_transport up;
    char ca[UMAD_CA_NAME_LEN];
    uint8_t port;
    int portid;                 /* Negative: not open. */
    int agent;
    uint16_t pkey_index;
    void *send_buf;

    pthread_t thread;
    bool has_thread;
    atomic_bool exiting;
    struct latch latch;         /* 'rx' or 'failed' was set. */
    struct ovs_mutex mutex;
    struct ovs_list rx OVS_GUARDED; /* Of struct umad_rx. */
    size_t n_rx OVS_GUARDED;
    int failed OVS_GUARDED;     /* errno: the device is gone. */
};

static const struct ipoib_mad_class umad_class;

static struct umad *
umad_cast(struct ipoib_mad_transport *transport)
{
    ovs_assert(transport->class == &umad_class);
    return CONTAINER_OF(transport, struct umad, up);
}


/* Receiving: the thread. */

static void
umad_push_rx(struct umad *u, struct umad_rx *rx)
{
    ovs_mutex_lock(&u->mutex);
    if (u->n_rx < UMAD_MAX_RX) {
        ovs_list_push_back(&u->rx, &rx->node);
        u->n_rx++;
        rx = NULL;
    }
    ovs_mutex_unlock(&u->mutex);
    if (rx) {
        COVERAGE_INC(ipoib_umad_overflow);
        free(rx);
    }
    latch_set(&u->latch);
}

/* Hands on the datagram of 'length' bytes.  Some senders leave out the unused
 * end of the record, and what comes back undelivered may have no length. */
static void
umad_push(struct umad *u, ib_user_mad_t *umad, size_t length, int status)
{
    struct umad_rx *rx = xzalloc(sizeof *rx);

    rx->undelivered = status != 0;
    rx->slid = ntohs(umad->addr.lid);
    memcpy(&rx->mad, umad_get_mad(umad), status ? sizeof rx->mad : length);
    umad_push_rx(u, rx);
}

/* Hands on the table of 'length' bytes, with its headers, which the kernel has
 * put together from segments, as segments again. */
static void
umad_push_table(struct umad *u, ib_user_mad_t *umad, size_t length)
{
    const size_t header = offsetof(struct ib_sa_mad, data);
    const uint8_t *data = umad_get_mad(umad);

    for (size_t ofs = header; ofs < length || ofs == header;
         ofs += IB_SA_DATA_LEN) {
        size_t n = MIN(IB_SA_DATA_LEN, length - ofs);
        struct umad_rx *rx = xzalloc(sizeof *rx);
        struct ib_sa_mad *mad = &rx->mad;

        rx->slid = ntohs(umad->addr.lid);
        memcpy(mad, data, header);
        mad->rmpp_version = IB_RMPP_VERSION;
        memcpy(mad->data, data + ofs, n);
        mad->rmpp_type = IB_RMPP_TYPE_DATA;
        mad->rmpp_flags = IB_RMPP_FLAG_ACTIVE;
        if (ofs == header) {
            mad->rmpp_flags |= IB_RMPP_FLAG_FIRST;
        }
        if (ofs + n >= length) {
            mad->rmpp_flags |= IB_RMPP_FLAG_LAST;
        }
        mad->rmpp_data1 = htonl((ofs - header) / IB_SA_DATA_LEN + 1);
        mad->rmpp_data2 = htonl(n + UMAD_SA_HEADER_LEN);
        umad_push_rx(u, rx);
    }
}


static void
umad_fail(struct umad *u, int error)
{
    ovs_mutex_lock(&u->mutex);
    u->failed = error;
    ovs_mutex_unlock(&u->mutex);
    latch_set(&u->latch);
}

/* What umad_recv() has stored at 'umad'. */
static void
umad_received(struct umad *u, ib_user_mad_t *umad, int length)
{
    int status = umad_status(umad);
    const struct ib_sa_mad *mad = ALIGNED_CAST(const struct ib_sa_mad *,
                                               umad->data);
    int header = offsetof(struct ib_sa_mad, data);

    if (!status && length >= header && mad->method == IB_METHOD_GET_TABLE_RESP
        && mad->rmpp_flags & IB_RMPP_FLAG_ACTIVE) {
        umad_push_table(u, umad, length);
    } else if (status || (length >= header && length <= IB_MAD_LEN)) {
        umad_push(u, umad, length, status);
    } else {
        COVERAGE_INC(ipoib_umad_bad_length);
    }
}

static void *
umad_main(void *u_)
{
    struct umad *u = u_;
    int allocated = UMAD_BUF_LEN;
    ib_user_mad_t *umad = xzalloc(umad_size() + allocated);
    bool exiting = false;

    ovsrcu_quiesce_start();
    while (!exiting) {
        int length = allocated;
        int retval = umad_recv(u->portid, umad, &length, UMAD_EXIT_POLL);

        if (retval >= 0) {
            umad_received(u, umad, length);
        } else if (retval == -ENOSPC && length > allocated
                   && length <= UMAD_BUF_MAX) {
            allocated = length;
            umad = xrealloc(umad, umad_size() + allocated);
        } else if (retval != -ETIMEDOUT && retval != -EINTR
                   && retval != -EAGAIN) {
            umad_fail(u, -retval);
            break;
        }
        atomic_read_relaxed(&u->exiting, &exiting);
    }
    free(umad);
    return NULL;
}


/* The control thread. */

static void
umad_run(struct ipoib_mad_transport *transport)
{
    struct umad *u = umad_cast(transport);
    struct ovs_list list = OVS_LIST_INITIALIZER(&list);
    struct umad_rx *rx;

    latch_poll(&u->latch);
    ovs_mutex_lock(&u->mutex);
    ovs_list_push_back_all(&list, &u->rx);
    u->n_rx = 0;
    u->up.broken = u->failed;
    ovs_mutex_unlock(&u->mutex);

    LIST_FOR_EACH_POP (rx, node, &list) {
        if (!rx->undelivered) {
            COVERAGE_INC(ipoib_umad_rx);
            u->up.recv(u->up.aux, &rx->mad, rx->slid);
        } else {
            COVERAGE_INC(ipoib_umad_undelivered);
            if (u->up.undelivered) {
                u->up.undelivered(u->up.aux, &rx->mad);
            }
        }
        free(rx);
    }
}

static void
umad_wait(struct ipoib_mad_transport *transport)
{
    latch_wait(&umad_cast(transport)->latch);
}

static int
umad_transmit(struct ipoib_mad_transport *transport,
              const struct ib_sa_mad *mad, const struct ipoib_mad_dest *dest)
{
    struct umad *u = umad_cast(transport);
    ib_user_mad_t *umad = u->send_buf;
    bool is_response = (mad->method & IB_METHOD_RESP) != 0;
    int retval;

    memset(umad, 0, umad_size());
    memcpy(umad_get_mad(umad), mad, IB_MAD_LEN);
    umad_set_addr(umad, dest->lid, IB_QPN_GSI, dest->sl, IB_QKEY_GSI);
    umad_set_pkey(umad, u->pkey_index);
    if (dest->has_grh) {
        ib_mad_addr_t addr = { .grh_present = 1 };

        memcpy(addr.gid, dest->dgid.raw, IB_GID_LEN);
        umad_set_grh(umad, &addr);
    }
    retval = umad_send(u->portid, u->agent, umad, IB_MAD_LEN,
                       is_response ? 0 : UMAD_TIMEOUT, 0);
    if (retval < 0) {
        return -retval;
    }
    COVERAGE_INC(ipoib_umad_tx);
    return 0;
}

/* Reads which P_Key index to use: of 0xffff, else of 0x7fff, else 0. */
static int
umad_update(struct ipoib_mad_transport *transport)
{
    struct umad *u = umad_cast(transport);
    umad_port_t port;
    int limited = 0;
    int full = -1;
    int retval;

    retval = umad_get_port(u->ca, u->port, &port);
    if (retval < 0) {
        return -retval;
    }
    for (int i = port.pkeys_size - 1; i >= 0; i--) {
        if (port.pkeys[i] == IB_PKEY_DEFAULT) {
            full = i;
        } else if (port.pkeys[i] == (IB_PKEY_DEFAULT & IB_PKEY_MASK)) {
            limited = i;
        }
    }
    umad_release_port(&port);
    u->pkey_index = full >= 0 ? full : limited;
    return 0;
}

static void
umad_destroy(struct ipoib_mad_transport *transport)
{
    struct umad *u = umad_cast(transport);
    struct umad_rx *rx;

    if (u->has_thread) {
        atomic_store_relaxed(&u->exiting, true);
        xpthread_join(u->thread, NULL);
    }
    if (u->portid >= 0) {
        /* The agent goes with it. */
        umad_close_port(u->portid);
    }
    LIST_FOR_EACH_POP (rx, node, &u->rx) {
        free(rx);
    }
    latch_destroy(&u->latch);
    ovs_mutex_destroy(&u->mutex);
    free(u->send_buf);
    free(u);
}

static const struct ipoib_mad_class umad_class = {
    .name = "umad",
    .rmpp = true,
    .destroy = umad_destroy,
    .send = umad_transmit,
    .update = umad_update,
    .run = umad_run,
    .wait = umad_wait,
};


/* Opening. */

/* Registers for answers and, if nobody else on this port has them, for
 * Reports. */
static int
umad_register_sa(struct umad *u)
{
    unsigned int bits = 8 * sizeof(long);
    long methods[16 / sizeof(long)];

    memset(methods, 0, sizeof methods);
    methods[IB_METHOD_REPORT / bits] |= 1L << (IB_METHOD_REPORT % bits);
    u->agent = umad_register(u->portid, IB_MGMT_CLASS_SA, IB_SA_CLASS_VERSION,
                             1, methods);
    if (u->agent < 0) {
        VLOG_INFO("%s port %"PRIu8": somebody else receives the subnet "
                  "administrator's reports", u->ca, u->port);
        u->agent = umad_register(u->portid, IB_MGMT_CLASS_SA,
                                 IB_SA_CLASS_VERSION, 1, NULL);
    }
    return u->agent < 0 ? -u->agent : 0;
}

static int
umad_open(struct umad *u)
{
    int error;

    umad_init();
    u->portid = umad_open_port(u->ca, u->port);
    if (u->portid < 0) {
        return -u->portid;
    }
    /* Not earlier: the header is 8 bytes longer once the first port is open
     * and the kernel turns out to take a P_Key index in it. */
    u->send_buf = xzalloc(umad_size() + IB_MAD_LEN);
    error = umad_register_sa(u);
    if (!error) {
        error = umad_update(&u->up);
    }
    if (!error) {
        u->thread = ovs_thread_create("ipoib_umad", umad_main, u);
        u->has_thread = true;
    }
    return error;
}

struct ipoib_mad_transport *
ipoib_mad_umad_create(const char *device, uint8_t port,
                      ipoib_mad_recv_cb *recv, void *aux)
{
    struct umad *u;
    int error;

    /* An empty name would be any device. */
    if (!*device || strlen(device) >= UMAD_CA_NAME_LEN) {
        errno = ENODEV;
        return NULL;
    }
    u = xzalloc(sizeof *u);
    u->up.class = &umad_class;
    u->up.recv = recv;
    u->up.aux = aux;
    ovs_strlcpy(u->ca, device, sizeof u->ca);
    u->port = port;
    u->portid = u->agent = -1;
    atomic_init(&u->exiting, false);
    latch_init(&u->latch);
    ovs_mutex_init(&u->mutex);
    ovs_list_init(&u->rx);
    error = umad_open(u);
    if (error) {
        umad_destroy(&u->up);
        errno = error;
        return NULL;
    }
    return &u->up;
}
