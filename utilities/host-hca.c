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
#include "host-hca.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coverage.h"
#include "ipoib-mad.h"
#include "ipoib-verbs.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(host_hca);

#define N_RX 1024               /* Receive buffers. */
#define N_TX 512                /* Send buffers. */
#define N_ROUNDS 4              /* Batches that a run takes at most. */

/* A receive buffer: the GRH, then at most an MTU of 4096 bytes. */
#define RX_SIZE ROUND_UP(IB_GRH_LEN + 4096, CACHE_LINE_SIZE)
#define TX_SIZE 4096

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

struct host_hca {
    const struct ipoib_verbs *verbs;
    char *device;
    uint8_t port;
    uint16_t pkey;              /* With full-member bit. */
    const struct host_hca_ops *ops;
    void *aux;

    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *recv_cq, *send_cq;
    struct ibv_srq *srq;        /* NULL: the device has none. */
    struct ibv_qp **qps;
    unsigned int n_ids;
    uint32_t min_qpn, max_qpn;

    uint8_t *rx_buf, *tx_buf;
    struct ibv_mr *rx_mr, *tx_mr;
    struct host_tx tx[N_TX];
    struct host_tx *tx_free[N_TX];
    unsigned int n_tx_free;

    /* Chain of work requests that are not posted yet, all of 'chain_id'. */
    struct ibv_send_wr *chain_first;
    struct ibv_send_wr *chain_last;
    unsigned int chain_id, chain_n;

    /* The port as it was last seen. */
    struct ibv_port_attr attr;
    struct ib_gid gid;
    bool needs_grh;
    int pkey_index;             /* Negative: not in the table. */
    bool started;               /* QPs are in RTS. */
    uint32_t qkey;
    bool fatal;
    bool was_up;
    int was_mtu;

    struct ipoib_mad_transport *mad;
    struct ipoib_sa *sa;
    struct ipoib_ah_reaper *reaper;
    struct ipoib_path_table *paths;
    struct ipoib_mcast *mcast;

    struct host_hca_stats stats;
};

static void host_hca_update_port(struct host_hca *, bool reregister);

/* Accessors. */

bool
host_hca_is_up(const struct host_hca *hca, const char **reason)
{
    const char *why = NULL;

    if (hca->fatal) {
        why = "the device has failed";
    } else if (hca->attr.state == IBV_PORT_DOWN) {
        why = "the port is down: no fabric answers";
    } else if (hca->attr.state != IBV_PORT_ACTIVE) {
        why = "the port is not active yet: the subnet manager has to "
              "bring it up";
    } else if (hca->pkey_index < 0) {
        why = "the P_Key is not in the port's table";
    } else if (!hca->started) {
        why = "the queue pairs cannot be started";
    } else if (!ipoib_mcast_broadcast(hca->mcast)) {
        why = "the broadcast group is not joined yet";
    }
    if (reason) {
        *reason = why;
    }
    return !why;
}

int
host_hca_mtu(const struct host_hca *hca)
{
    const struct ipoib_mcast_group *b = ipoib_mcast_broadcast(hca->mcast);

    return b ? ib_mtu_bytes(b->mtu) - IPOIB_HEADER_LEN : 0;
}

uint64_t
host_hca_guid(const struct host_hca *hca)
{
    return ib_gid_guid(&hca->gid);
}

unsigned int
host_hca_n_ids(const struct host_hca *hca)
{
    return hca->n_ids;
}

struct ipoib_addr
host_hca_addr(const struct host_hca *hca, unsigned int id)
{
    return ipoib_addr_make(hca->qps[id]->qp_num, &hca->gid);
}

static bool
host_hca_is_own_qpn(const struct host_hca *hca, uint32_t qpn)
{
    if (qpn < hca->min_qpn || qpn > hca->max_qpn) {
        return false;
    }
    for (unsigned int i = 0; i < hca->n_ids; i++) {
        if (hca->qps[i]->qp_num == qpn) {
            return true;
        }
    }
    return false;
}

bool
host_hca_is_own(const struct host_hca *hca, const struct ipoib_addr *addr)
{
    return (ib_gid_equals(&addr->gid, &hca->gid)
            && host_hca_is_own_qpn(hca, ipoib_addr_qpn(addr)));
}

const struct ibv_port_attr *
host_hca_port(const struct host_hca *hca)
{
    return &hca->attr;
}

uint16_t
host_hca_pkey(const struct host_hca *hca)
{
    return hca->pkey;
}

uint8_t
host_hca_scope(const struct host_hca *hca)
{
    const struct ipoib_mcast_group *b = ipoib_mcast_broadcast(hca->mcast);

    return b ? b->mgid.raw[1] & 0xf : 2;
}

const struct ib_gid *
host_hca_gid(const struct host_hca *hca)
{
    return &hca->gid;
}

const struct host_hca_stats *
host_hca_stats(const struct host_hca *hca)
{
    return &hca->stats;
}

struct ipoib_path_table *
host_hca_paths(const struct host_hca *hca)
{
    return hca->paths;
}

struct ipoib_mcast *
host_hca_mcast(const struct host_hca *hca)
{
    return hca->mcast;
}

struct ipoib_sa *
host_hca_sa(const struct host_hca *hca)
{
    return hca->sa;
}

/* Receiving. */

/* Posts the receive buffers 'slots', 'n' of them, as one chain. */
static void
host_hca_post_recv(struct host_hca *hca, const uint32_t slots[], size_t n)
{
    struct ibv_recv_wr wrs[HOST_HCA_BATCH], *bad;
    struct ibv_sge sges[HOST_HCA_BATCH];
    int error;

    if (!n) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        sges[i] = (struct ibv_sge) {
            .addr = (uintptr_t) &hca->rx_buf[(size_t) slots[i] * RX_SIZE],
            .length = RX_SIZE,
            .lkey = hca->rx_mr->lkey,
        };
        wrs[i] = (struct ibv_recv_wr) {
            .wr_id = slots[i],
            .next = i + 1 < n ? &wrs[i + 1] : NULL,
            .sg_list = &sges[i],
            .num_sge = 1,
        };
    }
    error = (hca->srq
             ? ibv_post_srq_recv(hca->srq, wrs, &bad)
             : ibv_post_recv(hca->qps[0], wrs, &bad));
    if (error) {
        VLOG_ERR_RL(&rl, "%s: cannot post receive buffers: %s", hca->device,
                    ovs_strerror(error));
    }
}

static void
host_hca_post_all_recv(struct host_hca *hca)
{
    uint32_t slots[HOST_HCA_BATCH];
    size_t n = 0;

    for (uint32_t i = 0; i < N_RX; i++) {
        slots[n++] = i;
        if (n == HOST_HCA_BATCH) {
            host_hca_post_recv(hca, slots, n);
            n = 0;
        }
    }
    host_hca_post_recv(hca, slots, n);
}

static unsigned int
host_hca_qpn_to_id(const struct host_hca *hca, uint32_t qpn)
{
    for (unsigned int i = 1; i < hca->n_ids; i++) {
        if (hca->qps[i]->qp_num == qpn) {
            return i;
        }
    }
    return 0;
}

/* True if the packet was sent by this process. */
static bool
host_hca_rx_is_own(const struct host_hca *hca, const struct host_rx *rx)
{
    uint16_t lid = rx->slid & ~((1 << hca->attr.lmc) - 1);

    return (lid == hca->attr.lid && host_hca_is_own_qpn(hca, rx->src_qpn)
            && (!rx->has_grh || ib_gid_equals(&rx->sgid, &hca->gid)));
}

static void
host_hca_receive(struct host_hca *hca, const struct ibv_wc *wc)
{
    const uint8_t *buf = &hca->rx_buf[wc->wr_id * RX_SIZE];
    struct host_rx rx = {
        .src_qpn = wc->src_qp,
        .slid = wc->slid,
        .has_grh = (wc->wc_flags & IBV_WC_GRH) != 0,
    };
    struct ipoib_header header;

    if (wc->byte_len < IB_GRH_LEN + IPOIB_HEADER_LEN
        || wc->byte_len > RX_SIZE) {
        hca->stats.rx_bad++;
        return;
    }
    if (rx.has_grh) {
        memcpy(&rx.sgid, buf + offsetof(struct ib_grh, sgid), sizeof rx.sgid);
        rx.multicast = buf[offsetof(struct ib_grh, dgid)] == 0xff;
    }
    if (host_hca_rx_is_own(hca, &rx)) {
        /* The HCA loops multicast back to the sender. */
        hca->stats.rx_own++;
        return;
    }

    memcpy(&header, buf + IB_GRH_LEN, sizeof header);
    rx.id = hca->n_ids > 1 ? host_hca_qpn_to_id(hca, wc->qp_num) : 0;
    rx.type = ntohs(header.type);
    rx.data = buf + IB_GRH_LEN + IPOIB_HEADER_LEN;
    rx.len = wc->byte_len - IB_GRH_LEN - IPOIB_HEADER_LEN;

    hca->stats.rx_packets++;
    hca->stats.rx_bytes += rx.len;
    hca->stats.rx_multicast += rx.multicast;
    switch (rx.type) {
    case ETH_TYPE_IP:
    case ETH_TYPE_IPV6:
    case ETH_TYPE_ARP:
        hca->ops->receive(hca->aux, &rx);
        break;
    default:
        hca->stats.rx_unknown_type++;
        break;
    }
}

/* Polls a batch.  Returns the number of completions. */
static int
host_hca_poll_recv(struct host_hca *hca)
{
    struct ibv_wc wcs[HOST_HCA_BATCH];
    uint32_t slots[HOST_HCA_BATCH];
    size_t n_slots = 0;
    int n = ibv_poll_cq(hca->recv_cq, HOST_HCA_BATCH, wcs);

    for (int i = 0; i < n; i++) {
        if (wcs[i].wr_id >= N_RX) {
            continue;
        }
        if (wcs[i].status == IBV_WC_SUCCESS) {
            host_hca_receive(hca, &wcs[i]);
        } else if (wcs[i].status != IBV_WC_WR_FLUSH_ERR) {
            hca->stats.rx_errors++;
        }
        slots[n_slots++] = wcs[i].wr_id;
    }
    host_hca_post_recv(hca, slots, n_slots);
    return n;
}

/* Sending. */

/* Brings 'qp', which stands in SQE after a send that failed, back to RTS. */
static void
host_hca_recover(struct host_hca *hca, uint32_t qpn)
{
    struct ibv_qp *qp = hca->qps[host_hca_qpn_to_id(hca, qpn)];
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .cur_qp_state = IBV_QPS_SQE,
    };

    hca->verbs->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE);
}

static void
host_hca_poll_send(struct host_hca *hca)
{
    struct ibv_wc wcs[HOST_HCA_BATCH];
    int n;

    do {
        n = ibv_poll_cq(hca->send_cq, HOST_HCA_BATCH, wcs);
        for (int i = 0; i < n; i++) {
            if (wcs[i].wr_id < N_TX) {
                hca->tx_free[hca->n_tx_free++] = &hca->tx[wcs[i].wr_id];
            }
            if (wcs[i].status != IBV_WC_SUCCESS) {
                hca->stats.tx_errors++;
                if (wcs[i].status != IBV_WC_WR_FLUSH_ERR) {
                    VLOG_INFO_RL(&rl, "%s: a send failed with status %d",
                                 hca->device, wcs[i].status);
                    host_hca_recover(hca, wcs[i].qp_num);
                }
            }
        }
    } while (n == HOST_HCA_BATCH);
}

struct host_tx *
host_hca_tx_get(struct host_hca *hca)
{
    if (!hca->n_tx_free) {
        host_hca_flush(hca);
        host_hca_poll_send(hca);
    }
    return hca->n_tx_free ? hca->tx_free[--hca->n_tx_free] : NULL;
}

size_t
host_hca_tx_size(const struct host_hca *hca OVS_UNUSED)
{
    return TX_SIZE;
}

void
host_hca_tx_put(struct host_hca *hca, struct host_tx *tx)
{
    hca->tx_free[hca->n_tx_free++] = tx;
}

void
host_hca_flush(struct host_hca *hca)
{
    struct ibv_send_wr *bad = NULL;
    int error;

    if (!hca->chain_first) {
        return;
    }
    error = ibv_post_send(hca->qps[hca->chain_id], hca->chain_first, &bad);
    if (error) {
        for (; bad; bad = bad->next) {
            host_hca_tx_put(hca, &hca->tx[bad->wr_id]);
            hca->stats.tx_full++;
        }
    }
    hca->chain_first = hca->chain_last = NULL;
    hca->chain_n = 0;
}

static void
host_hca_tx(struct host_hca *hca, struct host_tx *tx, size_t len,
            unsigned int id, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    if (!hca->started || len > TX_SIZE) {
        host_hca_tx_put(hca, tx);
        hca->stats.tx_errors++;
        return;
    }
    if (hca->chain_first
        && (hca->chain_id != id || hca->chain_n >= HOST_HCA_BATCH)) {
        host_hca_flush(hca);
    }

    tx->sge.length = len;
    tx->wr.next = NULL;
    tx->wr.wr.ud.ah = ah;
    tx->wr.wr.ud.remote_qpn = qpn;
    tx->wr.wr.ud.remote_qkey = qkey;
    if (hca->chain_last) {
        hca->chain_last->next = &tx->wr;
    } else {
        hca->chain_first = &tx->wr;
        hca->chain_id = id;
    }
    hca->chain_last = &tx->wr;
    hca->chain_n++;

    hca->stats.tx_packets++;
    hca->stats.tx_bytes += len - IPOIB_HEADER_LEN;
    hca->stats.tx_multicast += qpn == IB_QPN_MULTICAST;
}

void
host_hca_tx_unicast(struct host_hca *hca, struct host_tx *tx, size_t len,
                    unsigned int id, struct ibv_ah *ah, uint32_t qpn)
{
    host_hca_tx(hca, tx, len, id, ah, qpn, hca->qkey);
}

void
host_hca_tx_group(struct host_hca *hca, struct host_tx *tx, size_t len,
                  unsigned int id, const struct ipoib_mcast_group *group)
{
    struct ipoib_mcast_fast *fast = ipoib_mcast_fast(hca->mcast, group->slot);

    atomic_store_relaxed(&fast->used, time_now());
    host_hca_tx(hca, tx, len, id, group->ah, IB_QPN_MULTICAST, group->qkey);
}

/* Queue pairs. */

/* Gives all queue pairs the Q_Key of the broadcast group. */
static void
host_hca_set_qkey(struct host_hca *hca, uint32_t qkey)
{
    struct ibv_qp_attr attr = { .qkey = qkey };

    if (hca->qkey == qkey) {
        return;
    }
    hca->qkey = qkey;
    if (!hca->started) {
        return;
    }
    for (unsigned int i = 0; i < hca->n_ids; i++) {
        int error = hca->verbs->modify_qp(hca->qps[i], &attr, IBV_QP_QKEY);

        if (error) {
            VLOG_WARN_RL(&rl, "%s: cannot set Q_Key 0x%08"PRIx32" (one of "
                         "0x80000000 or more needs CAP_NET_RAW): %s",
                         hca->device, qkey, ovs_strerror(error));
        }
    }
}

/* Moves all queue pairs to RTS, or through RESET if they were there with
 * another index of the P_Key table. */
static void
host_hca_start_qps(struct host_hca *hca)
{
    struct ipoib_ud_params params = {
        .port = hca->port,
        .pkey_index = hca->pkey_index,
        .qkey = hca->qkey,
    };
    bool restart = hca->started;

    host_hca_flush(hca);
    hca->started = false;
    for (unsigned int i = 0; i < hca->n_ids; i++) {
        int error = (restart
                     ? ipoib_verbs_ud_restart(hca->verbs, hca->qps[i], &params)
                     : ipoib_verbs_ud_start(hca->verbs, hca->qps[i],
                                            &params));
        if (error) {
            VLOG_WARN_RL(&rl, "%s: cannot start queue pair 0x%06"PRIx32": %s",
                         hca->device, hca->qps[i]->qp_num,
                         ovs_strerror(error));
            return;
        }
    }
    hca->started = true;
    if (!hca->srq || !restart) {
        host_hca_post_all_recv(hca);
    }
    if (restart) {
        /* Sends that were under way are lost, and so are their completions. */
        struct ibv_wc wcs[HOST_HCA_BATCH];

        while (ibv_poll_cq(hca->send_cq, HOST_HCA_BATCH, wcs) > 0) {
            continue;
        }
        hca->n_tx_free = 0;
        for (unsigned int i = 0; i < N_TX; i++) {
            hca->tx_free[hca->n_tx_free++] = &hca->tx[i];
        }
    }
}

static int
host_hca_create_qp(struct host_hca *hca, unsigned int id, char **errp)
{
    struct ibv_qp_init_attr init = {
        .send_cq = hca->send_cq,
        .recv_cq = hca->recv_cq,
        .srq = hca->srq,
        .cap = {
            .max_send_wr = hca->n_ids > 8 ? HOST_HCA_BATCH : N_TX,
            .max_recv_wr = hca->srq ? 0 : N_RX,
            .max_send_sge = 1,
            .max_recv_sge = 1,
        },
        .qp_type = IBV_QPT_UD,
        .sq_sig_all = 1,
    };
    struct ibv_qp *qp;

    qp = hca->qps[id] = hca->verbs->create_qp(hca->pd, &init, id == 0);
    if (!qp) {
        int error = errno;

        *errp = xasprintf("--device=%s: cannot create queue pair %u of %u: %s",
                          hca->device, id + 1, hca->n_ids,
                          ovs_strerror(error));
        return error;
    }
    hca->min_qpn = MIN(hca->min_qpn, qp->qp_num);
    hca->max_qpn = MAX(hca->max_qpn, qp->qp_num);
    return 0;
}

static void
host_hca_init_tx(struct host_hca *hca)
{
    for (unsigned int i = 0; i < N_TX; i++) {
        struct host_tx *tx = &hca->tx[i];

        tx->data = &hca->tx_buf[(size_t) i * TX_SIZE];
        tx->slot = i;
        tx->sge.addr = (uintptr_t) tx->data;
        tx->sge.lkey = hca->tx_mr->lkey;
        tx->wr.wr_id = i;
        tx->wr.sg_list = &tx->sge;
        tx->wr.num_sge = 1;
        tx->wr.opcode = IBV_WR_SEND;
        tx->wr.send_flags = IBV_SEND_SIGNALED;
        hca->tx_free[hca->n_tx_free++] = tx;
    }
}

/* Makes the protection domain, and the buffers in it.  Returns false with
 * errno set if that cannot be. */
static bool
host_hca_register_buffers(struct host_hca *hca)
{
    const struct ipoib_verbs *verbs = hca->verbs;
    size_t rx_size = (size_t) N_RX * RX_SIZE;
    size_t tx_size = (size_t) N_TX * TX_SIZE;

    hca->pd = verbs->alloc_pd(hca->ctx);
    if (!hca->pd) {
        return false;
    }
    hca->rx_buf = xmalloc_pagealign(rx_size);
    hca->tx_buf = xmalloc_pagealign(tx_size);
    hca->rx_mr = verbs->reg_mr(hca->pd, hca->rx_buf, rx_size,
                               IBV_ACCESS_LOCAL_WRITE);
    if (hca->rx_mr) {
        hca->tx_mr = verbs->reg_mr(hca->pd, hca->tx_buf, tx_size,
                                   IBV_ACCESS_LOCAL_WRITE);
    }
    return hca->tx_mr != NULL;
}

/* Makes everything that the data path needs. */
static int
host_hca_create_queues(struct host_hca *hca, char **errp)
{
    const struct ipoib_verbs *verbs = hca->verbs;
    struct ibv_srq_init_attr srq_attr = {
        .attr = { .max_wr = N_RX, .max_sge = 1 },
    };
    struct ibv_device_attr attr;
    const char *what;

    memset(&attr, 0, sizeof attr);
    verbs->query_device(hca->ctx, &attr);
    if (hca->n_ids > 1 && attr.max_srq <= 0) {
        *errp = xasprintf("--stations=%u: device %s has no shared receive "
                          "queues", hca->n_ids, hca->device);
        return EOPNOTSUPP;
    }

    what = "register memory";
    if (!host_hca_register_buffers(hca)) {
        goto error;
    }
    what = "create completion queues";
    hca->channel = verbs->create_comp_channel(hca->ctx);
    if (!hca->channel) {
        goto error;
    }
    hca->recv_cq = verbs->create_cq(hca->ctx, N_RX, NULL, hca->channel, 0);
    hca->send_cq = verbs->create_cq(hca->ctx, N_TX, NULL, hca->channel, 0);
    if (!hca->recv_cq || !hca->send_cq) {
        goto error;
    }
    if (attr.max_srq > 0) {
        what = "create a shared receive queue";
        hca->srq = verbs->create_srq(hca->pd, &srq_attr);
        if (!hca->srq) {
            goto error;
        }
    }
    host_hca_init_tx(hca);

    hca->min_qpn = UINT32_MAX;
    for (unsigned int i = 0; i < hca->n_ids; i++) {
        int error = host_hca_create_qp(hca, i, errp);

        if (error) {
            return error;
        }
    }
    return 0;

error:;
    int error = errno;
    *errp = xasprintf("--device=%s: cannot %s: %s", hca->device, what,
                      ovs_strerror(error));
    return error;
}

/* Callbacks of the layers below. */

static void
host_hca_report_changed(struct host_hca *hca, bool readdressed)
{
    bool up = host_hca_is_up(hca, NULL);
    int mtu = host_hca_mtu(hca);

    if (up != hca->was_up || mtu != hca->was_mtu || readdressed) {
        hca->was_up = up;
        hca->was_mtu = mtu;
        hca->ops->changed(hca->aux, readdressed);
    }
}

static void
host_hca_mad_recv(void *hca_, const struct ib_sa_mad *mad, uint16_t slid)
{
    struct host_hca *hca = hca_;

    ipoib_sa_receive(hca->sa, mad, slid);
}

static void
host_hca_path_changed(void *hca_, struct ipoib_path *path)
{
    struct host_hca *hca = hca_;

    /* What is chained may use the AH that was retired. */
    host_hca_flush(hca);
    hca->ops->path_changed(hca->aux, path);
}

static void
host_hca_set_path_params(struct host_hca *hca)
{
    const struct ipoib_mcast_group *b = ipoib_mcast_broadcast(hca->mcast);
    struct ipoib_path_params params = {
        .sgid = hca->gid,
        .port = hca->port,
        .lid = hca->attr.lid,
        .lmc = hca->attr.lmc,
        .pkey = hca->pkey,
        .tclass = b ? b->tclass : 0,
        .needs_grh = hca->needs_grh,
        .port_mtu = hca->attr.active_mtu,
    };

    ipoib_path_table_set_params(hca->paths, &params);
}

static void
host_hca_group_changed(void *hca_, struct ipoib_mcast_group *group)
{
    struct host_hca *hca = hca_;

    host_hca_flush(hca);
    if (group == ipoib_mcast_broadcast(hca->mcast)) {
        host_hca_set_qkey(hca, group->qkey);
        host_hca_set_path_params(hca);
    }
    host_hca_report_changed(hca, false);
    hca->ops->group_changed(hca->aux, group);
}

static void
host_hca_group_removed(void *hca_, struct ipoib_mcast_group *group)
{
    struct host_hca *hca = hca_;

    host_hca_flush(hca);
    hca->ops->group_removed(hca->aux, group);
}

static int
host_hca_attach(void *hca_, const struct ib_gid *mgid, uint16_t mlid)
{
    struct host_hca *hca = hca_;
    union ibv_gid gid;

    memcpy(gid.raw, mgid->raw, sizeof gid.raw);
    return hca->verbs->attach_mcast(hca->qps[0], &gid, mlid);
}

static int
host_hca_detach(void *hca_, const struct ib_gid *mgid, uint16_t mlid)
{
    struct host_hca *hca = hca_;
    union ibv_gid gid;

    memcpy(gid.raw, mgid->raw, sizeof gid.raw);
    return hca->verbs->detach_mcast(hca->qps[0], &gid, mlid);
}

static const struct ipoib_mcast_ops host_hca_mcast_ops = {
    .changed = host_hca_group_changed,
    .removed = host_hca_group_removed,
    .attach = host_hca_attach,
    .detach = host_hca_detach,
};

/* The port. */

/* Looks the P_Key up in the port's table: the full member if there are both.
 * Returns its index, -1 if it is not there. */
static int
host_hca_find_pkey(const struct host_hca *hca)
{
    int limited = -1;

    for (int i = 0; i < hca->attr.pkey_tbl_len; i++) {
        ovs_be16 pkey_be;
        uint16_t pkey;

        if (hca->verbs->query_pkey(hca->ctx, hca->port, i, &pkey_be)) {
            break;
        }
        pkey = ntohs(pkey_be);
        if ((pkey ^ hca->pkey) & IB_PKEY_MASK) {
            continue;
        }
        if (pkey & IB_PKEY_FULL) {
            return i;
        } else if (limited < 0) {
            limited = i;
        }
    }
    return limited;
}

static void
host_hca_set_sa_dest(struct host_hca *hca)
{
    struct ipoib_mad_dest dest = {
        .lid = hca->attr.state == IBV_PORT_ACTIVE ? hca->attr.sm_lid : 0,
        .sl = hca->attr.sm_sl,
        .has_grh = hca->needs_grh,
        .dgid = ib_gid_make(ib_gid_prefix(&hca->gid), 0x0200000000000002),
    };

    if (!hca->mad) {
        hca->mad = ipoib_mad_qp_create(hca->verbs, hca->ctx, hca->pd,
                                       hca->port, host_hca_mad_recv, hca);
        if (!hca->mad) {
            VLOG_WARN_RL(&rl, "%s: cannot make the queue pair for the subnet "
                         "administrator: %s", hca->device,
                         ovs_strerror(errno));
            return;
        }
        ipoib_sa_set_transport(hca->sa, hca->mad);
    } else {
        hca->mad->class->update(hca->mad);
    }
    ipoib_sa_set_dest(hca->sa, &dest);
}

static void
host_hca_set_mcast_params(struct host_hca *hca)
{
    struct ipoib_mcast_params params = {
        .port_gid = hca->gid,
        .port = hca->port,
        .pkey = hca->pkey,
        .lid = hca->attr.lid,
        .port_mtu = hca->attr.active_mtu,
        .active = (hca->attr.state == IBV_PORT_ACTIVE && hca->started
                   && hca->pkey_index >= 0),
    };

    ipoib_mcast_set_params(hca->mcast, &params);
}

/* Reads the port's attributes and does what they ask for. */
static void
host_hca_update_port(struct host_hca *hca, bool reregister)
{
    struct ibv_port_attr old = hca->attr;
    struct ib_gid old_gid = hca->gid;
    union ibv_gid gid;
    bool readdressed;
    int pkey_index;

    if (hca->verbs->query_port(hca->ctx, hca->port, &hca->attr)) {
        hca->attr.state = IBV_PORT_DOWN;
    }
    if (!hca->verbs->query_gid(hca->ctx, hca->port, 0, &gid)) {
        memcpy(hca->gid.raw, gid.raw, sizeof hca->gid.raw);
    }
    hca->needs_grh = hca->verbs->port_needs_grh(hca->ctx, hca->port);
    readdressed = (!ib_gid_equals(&hca->gid, &old_gid)
                   || hca->attr.lid != old.lid);

    if (hca->attr.state != old.state || hca->attr.lid != old.lid) {
        VLOG_INFO("%s: port %d is %s, LID %d, SM LID %d", hca->device,
                  hca->port,
                  hca->attr.state == IBV_PORT_ACTIVE ? "active" : "not active",
                  hca->attr.lid, hca->attr.sm_lid);
    }

    if (hca->attr.state == IBV_PORT_ACTIVE) {
        pkey_index = host_hca_find_pkey(hca);
        if (pkey_index >= 0
            && (!hca->started || pkey_index != hca->pkey_index)) {
            hca->pkey_index = pkey_index;
            host_hca_start_qps(hca);
        }
        hca->pkey_index = pkey_index;
    }

    host_hca_set_sa_dest(hca);
    host_hca_set_path_params(hca);
    host_hca_set_mcast_params(hca);
    if (hca->attr.state == IBV_PORT_ACTIVE
        && (reregister || readdressed || old.state != IBV_PORT_ACTIVE
            || hca->attr.sm_lid != old.sm_lid)) {
        ipoib_mcast_rejoin_all(hca->mcast);
        ipoib_path_refresh_all(hca->paths);
    }
    host_hca_report_changed(hca, readdressed);
}

static void
host_hca_run_events(struct host_hca *hca)
{
    struct ibv_async_event event;
    bool port_changed = false;
    bool reregister = false;

    while (!hca->verbs->get_async_event(hca->ctx, &event)) {
        enum ibv_event_type type = event.event_type;

        if (type == IBV_EVENT_DEVICE_FATAL) {
            VLOG_ERR("%s: the device has failed", hca->device);
            hca->fatal = true;
        }
        reregister |= (type == IBV_EVENT_CLIENT_REREGISTER
                       || type == IBV_EVENT_SM_CHANGE);
        port_changed |= (reregister || hca->fatal
                         || type == IBV_EVENT_PORT_ACTIVE
                         || type == IBV_EVENT_PORT_ERR
                         || type == IBV_EVENT_LID_CHANGE
                         || type == IBV_EVENT_PKEY_CHANGE
                         || type == IBV_EVENT_GID_CHANGE);
        VLOG_DBG("%s: event %d", hca->device, type);
        hca->verbs->ack_async_event(&event);
    }
    if (port_changed) {
        host_hca_update_port(hca, reregister);
    }
}

/* Opening and closing. */

static int
host_hca_open_device(struct host_hca *hca, char **errp)
{
    char *error_s = NULL;
    int error;

    hca->verbs = ipoib_verbs_for_device(hca->device);
    hca->ctx = hca->verbs->open_device(hca->device, &error_s);
    if (!hca->ctx) {
        error = errno;
        *errp = (error_s
                 ? xasprintf("--device: %s", error_s)
                 : xasprintf("--device=%s: %s", hca->device,
                             ovs_strerror(error)));
        free(error_s);
        return error;
    }

    error = hca->verbs->query_port(hca->ctx, hca->port, &hca->attr);
    if (error) {
        *errp = xasprintf("--port=%d: device %s has no such port: %s",
                          hca->port, hca->device, ovs_strerror(error));
        return error;
    }
    if (hca->attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
        *errp = xasprintf("--device=%s: the link layer of port %d is "
                          "Ethernet (RoCE), not InfiniBand", hca->device,
                          hca->port);
        return EOPNOTSUPP;
    }
    return 0;
}

int
host_hca_open(const struct host_hca_config *config,
              const struct host_hca_ops *ops, void *aux,
              struct host_hca **hcap, char **errp)
{
    struct host_hca *hca = xzalloc(sizeof *hca);
    int error;

    *hcap = NULL;
    hca->device = xstrdup(config->device);
    hca->port = config->port;
    hca->pkey = config->pkey | IB_PKEY_FULL;
    hca->n_ids = config->n_ids;
    hca->qps = xcalloc(hca->n_ids, sizeof *hca->qps);
    hca->pkey_index = -1;
    hca->ops = ops;
    hca->aux = aux;

    error = host_hca_open_device(hca, errp);
    if (!error) {
        error = host_hca_create_queues(hca, errp);
    }
    if (error) {
        host_hca_close(hca);
        return error;
    }

    hca->sa = ipoib_sa_create();
    hca->reaper = ipoib_ah_reaper_create(hca->verbs);
    hca->paths = ipoib_path_table_create(hca->verbs, hca->pd, hca->sa,
                                         hca->reaper, host_hca_path_changed,
                                         hca);
    hca->mcast = ipoib_mcast_create(hca->verbs, hca->pd, hca->sa, hca->reaper,
                                    &host_hca_mcast_ops, hca);

    /* So that everything counts as changed. */
    memset(&hca->attr, 0, sizeof hca->attr);
    *hcap = hca;
    host_hca_update_port(hca, false);
    return 0;
}

/* Leaves all groups. */
static void
host_hca_leave(struct host_hca *hca)
{
    ipoib_mcast_leave_all(hca->mcast);
    ipoib_sa_run(hca->sa, time_msec());
    if (hca->mad) {
        hca->mad->class->run(hca->mad);
    }
}

static void
host_hca_close_queues(struct host_hca *hca)
{
    const struct ipoib_verbs *verbs = hca->verbs;

    for (unsigned int i = 0; i < hca->n_ids; i++) {
        if (hca->qps[i]) {
            verbs->destroy_qp(hca->qps[i]);
        }
    }
    if (hca->srq) {
        verbs->destroy_srq(hca->srq);
    }
    if (hca->recv_cq) {
        verbs->destroy_cq(hca->recv_cq);
    }
    if (hca->send_cq) {
        verbs->destroy_cq(hca->send_cq);
    }
    if (hca->channel) {
        verbs->destroy_comp_channel(hca->channel);
    }
    if (hca->rx_mr) {
        verbs->dereg_mr(hca->rx_mr);
    }
    if (hca->tx_mr) {
        verbs->dereg_mr(hca->tx_mr);
    }
    if (hca->pd) {
        verbs->dealloc_pd(hca->pd);
    }
    free_pagealign(hca->rx_buf);
    free_pagealign(hca->tx_buf);
}

void
host_hca_close(struct host_hca *hca)
{
    if (!hca) {
        return;
    }
    if (hca->mcast) {
        host_hca_flush(hca);
        host_hca_leave(hca);
        ipoib_mcast_destroy(hca->mcast);
        ipoib_path_table_destroy(hca->paths);
        ipoib_sa_set_transport(hca->sa, NULL);
        ipoib_sa_destroy(hca->sa);
        ipoib_ah_reaper_destroy(hca->reaper);
        if (hca->mad) {
            hca->mad->class->destroy(hca->mad);
        }
    }
    if (hca->ctx) {
        host_hca_close_queues(hca);
        hca->verbs->close_device(hca->ctx);
    }
    free(hca->qps);
    free(hca->device);
    free(hca);
}

/* Running. */

bool
host_hca_run(struct host_hca *hca, long long int now)
{
    struct ibv_cq *cq;
    void *cq_context;
    int n = 0;

    if (hca->fatal) {
        return false;
    }
    host_hca_run_events(hca);
    while (!hca->verbs->get_cq_event(hca->channel, &cq, &cq_context)) {
        hca->verbs->ack_cq_events(cq, 1);
    }

    host_hca_poll_send(hca);
    for (int i = 0; i < N_ROUNDS; i++) {
        n = host_hca_poll_recv(hca);
        if (n < HOST_HCA_BATCH) {
            break;
        }
    }

    if (hca->mad) {
        hca->mad->class->run(hca->mad);
    }
    ipoib_sa_run(hca->sa, now);
    ipoib_mcast_run(hca->mcast, now);
    ipoib_path_table_run(hca->paths, now);
    ipoib_ah_reaper_run(hca->reaper, now);
    host_hca_flush(hca);
    return n >= HOST_HCA_BATCH;
}

void
host_hca_wait(struct host_hca *hca)
{
    if (hca->fatal) {
        return;                 /* Its file descriptors are always ready. */
    }
    poll_fd_wait(hca->ctx->async_fd, POLLIN);
    poll_fd_wait(hca->channel->fd, POLLIN);

    /* What came before the notification was asked for gives none. */
    ibv_req_notify_cq(hca->recv_cq, 0);
    if (host_hca_poll_recv(hca)) {
        poll_immediate_wake();
    }
    if (!hca->n_tx_free) {
        ibv_req_notify_cq(hca->send_cq, 0);
        host_hca_poll_send(hca);
        if (hca->n_tx_free) {
            poll_immediate_wake();
        }
    }

    if (hca->mad) {
        hca->mad->class->wait(hca->mad);
    }
    ipoib_sa_wait(hca->sa);
    ipoib_mcast_wait(hca->mcast);
    ipoib_path_table_wait(hca->paths);
    ipoib_ah_reaper_wait(hca->reaper);
}
