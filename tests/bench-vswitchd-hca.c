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
#include "bench-vswitchd.h"

#include <errno.h>

#include "dp-packet.h"
#include "ipoib-dev.h"
#include "ipoib-pool.h"
#include "ipoib-soft-private.h"
#include "openvswitch/shash.h"
#include "packets.h"
#include "random.h"
#include "util.h"

/* A device without a fabric under the queues of an ipoib port.
 *
 * The port is opened on "soft:loop?source&sink", where it learns neighbours
 * and hosts by its own control code.  Then its queues are taken:
 * ibv_post_send(), ibv_poll_cq() and ibv_post_srq_recv() go to the functions
 * below, and all else stays where it was.  They do what a device's library
 * does, and what the device itself does by DMA only as far as somebody has to
 * do it:
 *
 *   send      writes a descriptor of the usual form (control, address vector,
 *             and a pointer or the data itself) to a ring, and one word for
 *             all of them; is done at once
 *   receive   writes the headers of a packet of the next flow to the oldest
 *             buffer, and the completion
 */

#define BLOCK 64                /* Descriptors are of so many bytes, or more
                                 * of these. */
#define N_BLOCKS 1024
#define MAX_INLINE 1024
#define N_POSTED 4096
#define N_DONE 4096

#define N_HOSTS 16
#define HOST_IP 0xc6120001      /* 198.18.0.1 and up, */
#define HOST_MAC UINT64_C(0x020000001000) /* and their MACs. */

struct null_queue {
    /* Sends. */
    uint8_t *blocks;
    uint32_t block;             /* The next one. */
    atomic_uint32_t doorbell;
    uint64_t done[N_DONE];      /* wr_id. */
    uint32_t done_head, done_tail;

    /* Receives. */
    bool receives;
    struct null_port *port;
    struct { uint64_t wr_id, addr; } posted[N_POSTED];
    uint32_t posted_head, posted_tail;

    struct null_queue *next;    /* In 'queues' of the port. */
};

struct null_port {
    struct null_queue *queues;  /* They live as long as the process. */
    struct ibv_context *ctx;
    uint16_t pkey_index;
    struct bench_pace pace;
    struct bench_rx_flow *flows;
    size_t n, next;
    struct {
        struct ipoib_header ipoib;
        uint8_t ip[BENCH_HEADERS_LEN];
    } headers;
    uint32_t csum;
    uint32_t len;               /* Of packets, with the GRH's space. */
};
BUILD_ASSERT_DECL(sizeof(((struct null_port *) 0)->headers) == 32);

/* Those that were aimed at, by name.  Main thread. */
static struct shash ports = SHASH_INITIALIZER(&ports);

static struct ibv_context_ops soft_ops;

struct ipoib_pool *bench_pool;
uint8_t bench_pool_tag;

/* Send. */

static inline void
null_send(struct null_queue *q, const struct ibv_send_wr *wr)
{
    const struct soft_ah *ah = CONTAINER_OF(wr->wr.ud.ah, struct soft_ah, ah);
    const uint8_t *data = (const uint8_t *) (uintptr_t) wr->sg_list->addr;
    uint32_t block = q->block, len = wr->sg_list->length;
    uint8_t *d = q->blocks + block * BLOCK;
    uint32_t ctrl[4] = { block << 8, wr->send_flags, wr->opcode, len };
    uint32_t dst[2] = { wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey };

    BUILD_ASSERT_DECL(sizeof ah->attr <= 40);
    memcpy(d, ctrl, sizeof ctrl);
    memcpy(d + 16, dst, sizeof dst);
    memcpy(d + 24, &ah->attr, sizeof ah->attr);
    d += BLOCK;
    if (wr->send_flags & IBV_SEND_INLINE) {
        /* What lies behind the data is read, too. */
        for (uint32_t i = 0; i < len; i += 16) {
            memcpy(d + i, data + i, 16);
        }
        block += 1 + DIV_ROUND_UP(len, BLOCK);
    } else {
        memcpy(d, wr->sg_list, sizeof *wr->sg_list);
        block += 2;
    }
    q->block = block < N_BLOCKS ? block : 0;
    if (wr->send_flags & IBV_SEND_SIGNALED) {
        q->done[q->done_head++ % N_DONE] = wr->wr_id;
    }
}

static int
bench_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
                struct ibv_send_wr **bad)
{
    struct null_queue *q = qp->qp_context;
    uint64_t begin = bench_apart_begin();

    if (OVS_UNLIKELY(!q)) {
        return soft_ops.post_send(qp, wr, bad);
    }
    if (OVS_UNLIKELY(bench_hist)) {
        uint64_t now = bench_now();

        for (const struct ibv_send_wr *w = wr; w; w = w->next) {
            const uint8_t *p = (const uint8_t *) (uintptr_t) w->sg_list->addr;

            bench_arrived(p + IPOIB_HEADER_LEN + BENCH_HEADERS_LEN, now);
        }
    }
    for (; wr; wr = wr->next) {
        null_send(q, wr);
    }
    atomic_store_explicit(&q->doorbell, q->block, memory_order_release);
    bench_apart_end(begin);
    return 0;
}

static int
null_sent(struct null_queue *q, int max, struct ibv_wc wc[])
{
    int n;

    for (n = 0; n < max && q->done_tail != q->done_head; n++) {
        wc[n] = (struct ibv_wc) {
            .wr_id = q->done[q->done_tail++ % N_DONE],
            .status = IBV_WC_SUCCESS, .opcode = IBV_WC_SEND,
        };
    }
    return n;
}

/* Receive. */

static void
null_post(struct null_queue *q, uint64_t wr_id, uint64_t addr)
{
    uint32_t i = q->posted_head++ % N_POSTED;

    q->posted[i].wr_id = wr_id;
    q->posted[i].addr = addr;
}

static int
bench_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                    struct ibv_recv_wr **bad)
{
    struct null_queue *q = srq->srq_context;
    uint64_t begin = bench_apart_begin();

    if (OVS_UNLIKELY(!q)) {
        return soft_ops.post_srq_recv(srq, wr, bad);
    }
    for (; wr; wr = wr->next) {
        null_post(q, wr->wr_id, wr->sg_list->addr);
    }
    atomic_store_explicit(&q->doorbell, q->posted_head, memory_order_release);
    bench_apart_end(begin);
    return 0;
}

static inline void
null_packet(struct null_port *port, const struct bench_rx_flow *f,
            uint64_t due, uint8_t *data, struct ibv_wc *wc)
{
    ovs_be16 csum = bench_ip_csum(port->csum, f->ip_src, f->ip_dst);
    uint8_t *ip = data + IB_GRH_LEN + IPOIB_HEADER_LEN;

    memcpy(data + IB_GRH_LEN, &port->headers, sizeof port->headers);
    memcpy(ip + 10, &csum, sizeof csum);
    memcpy(ip + 12, &f->ip_src, sizeof f->ip_src);
    memcpy(ip + 16, &f->ip_dst, sizeof f->ip_dst);
    memcpy(ip + BENCH_HEADERS_LEN, &due, sizeof due);
    wc->status = IBV_WC_SUCCESS;
    wc->opcode = IBV_WC_RECV;
    wc->vendor_err = 0;
    wc->byte_len = port->len;
    wc->qp_num = f->dst_qpn;
    wc->src_qp = f->src_qpn;
    wc->wc_flags = 0;
    wc->pkey_index = port->pkey_index;
    wc->slid = f->slid;
    wc->sl = 0;
    wc->dlid_path_bits = 0;
}

static int
null_received(struct null_queue *q, int max, struct ibv_wc wc[])
{
    struct null_port *port = q->port;
    size_t next = port->next;
    uint64_t due;
    size_t n;

    n = bench_pace_due(&port->pace, MIN(max, q->posted_head - q->posted_tail),
                       &due);
    for (size_t i = 0; i < n; i++) {
        uint32_t p = q->posted_tail++ % N_POSTED;

        wc[i].wr_id = q->posted[p].wr_id;
        null_packet(port, &port->flows[next], due,
                    (uint8_t *) (uintptr_t) q->posted[p].addr, &wc[i]);
        due += port->pace.interval;
        if (++next == port->n) {
            next = 0;
        }
    }
    port->next = next;
    return n;
}

static int
bench_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc wc[])
{
    struct null_queue *q = cq->cq_context;
    uint64_t begin = bench_apart_begin();
    int n;

    if (OVS_UNLIKELY(!q)) {
        return soft_ops.poll_cq(cq, max, wc);
    }
    n = q->receives ? null_received(q, max, wc) : null_sent(q, max, wc);
    bench_apart_end(begin);
    return n;
}

/* Neighbours and hosts. */

struct aim {
    const struct ipoib_partition *part;
    bool ready_only;            /* Only neighbours that have a path. */
    struct bench_flow *flows;
    struct bench_rx_flow *rx_flows;
    size_t n, allocated, ready;
    uint32_t qpns[N_HOSTS];     /* Of the hosts that are known. */
    size_t hosts[N_HOSTS];      /* Their numbers. */
    size_t n_hosts;
};

static struct eth_addr
host_mac(size_t i)
{
    struct eth_addr mac;

    eth_addr_from_uint64(HOST_MAC + i, &mac);
    return mac;
}

static void
aim_host(struct ipoib_host *host, void *aim_)
{
    uint64_t i = eth_addr_to_uint64(host->mac) - HOST_MAC;
    struct aim *aim = aim_;

    if (i < N_HOSTS && host->qpn && host->n_ips) {
        aim->hosts[aim->n_hosts] = i;
        aim->qpns[aim->n_hosts++] = host->qpn;
    }
}

static void
aim_neigh(struct ipoib_neigh *neigh, void *aim_)
{
    struct aim *aim = aim_;
    size_t i = aim->n, host = i / 4 % N_HOSTS;
    struct ibv_ah *ah;

    atomic_read_relaxed(&ipoib_neigh_fast(aim->part->shared.neighs,
                                          neigh->slot)->ah, &ah);
    if (!ipoib_neigh_n_ips(neigh) || (aim->ready_only && !ah)) {
        return;
    }
    if (i >= aim->allocated) {
        aim->flows = x2nrealloc(aim->flows, &aim->allocated,
                                sizeof *aim->flows);
        aim->rx_flows = xrealloc(aim->rx_flows,
                                 aim->allocated * sizeof *aim->rx_flows);
    }
    aim->n++;
    aim->ready += ah != NULL;
    aim->flows[i] = (struct bench_flow) {
        .dst = neigh->mac, .src = host_mac(host),
        .ip_dst = in6_addr_get_mapped_ipv4(ipoib_neigh_ip(neigh, 0)),
        .ip_src = htonl(HOST_IP + host), .port = htons(1024 + host),
    };
    host = i / 4 % MAX(aim->n_hosts, 1);
    aim->rx_flows[i] = (struct bench_rx_flow) {
        .ip_src = aim->flows[i].ip_dst,
        .ip_dst = htonl(HOST_IP + aim->hosts[host]),
        .dst_qpn = aim->qpns[host],
        .src_qpn = ipoib_addr_qpn(&neigh->addr), .slid = neigh->lid,
    };
}

/* Neighbours come in no order, so that none of the tables is gone through in
 * that of its memory. */
static void
aim_shuffle(struct aim *aim)
{
    random_set_seed(1);
    for (size_t i = aim->n; i > 1; i--) {
        size_t j = random_uint32() % i;
        struct bench_rx_flow rx_flow = aim->rx_flows[j];
        struct bench_flow flow = aim->flows[j];

        aim->flows[j] = aim->flows[i - 1];
        aim->flows[i - 1] = flow;
        aim->rx_flows[j] = aim->rx_flows[i - 1];
        aim->rx_flows[i - 1] = rx_flow;
    }
}

static void
aim_dev(struct ipoib_dev *dev, void *aim_)
{
    struct aim *aim = aim_;
    size_t pos = 0;

    aim->part = dev->part;
    while (ipoib_host_walk(dev->part->shared.hosts, &pos, SIZE_MAX, aim_host,
                           aim)) {
        continue;
    }
    pos = 0;
    while (ipoib_neigh_walk(dev->part->shared.neighs, &pos, SIZE_MAX,
                            aim_neigh, aim)) {
        continue;
    }
}

/* The device makes packets of 'flows', which it takes, unless it does so
 * already. */
static void
aim_device(const char *name, struct bench_rx_flow *flows, size_t n)
{
    struct null_port *port = shash_find_data(&ports, name);

    if (!port) {
        port = xzalloc_cacheline(sizeof *port);
        shash_add(&ports, name, port);
    }
    if (port->ctx) {
        free(flows);
    } else {
        free(port->flows);
        port->flows = flows;
        port->n = n;
    }
}

char *
bench_hca_aim(const char *name, const char *source, bool ready_only,
              size_t *n, size_t *ready, size_t *n_hosts)
{
    struct aim aim = { .ready_only = ready_only };
    char *error;

    if (!ipoib_dev_for_each(name, aim_dev, &aim)) {
        return xasprintf("%s: no ipoib port", name);
    }
    aim_shuffle(&aim);
    error = bench_netdev_set_flows(source, aim.flows, aim.n);
    free(aim.flows);
    aim_device(name, aim.rx_flows, aim.n_hosts ? aim.n : 0);
    *n = aim.n;
    *ready = aim.ready;
    *n_hosts = aim.n_hosts;
    return error;
}

/* Taking the queues. */

static struct null_queue *
null_queue_create(struct null_port *port, bool receives)
{
    struct null_queue *q = xzalloc_cacheline(sizeof *q);

    q->port = port;
    q->next = port->queues;
    port->queues = q;
    q->receives = receives;
    if (!receives) {
        q->blocks = xmalloc_pagealign(N_BLOCKS * BLOCK + BLOCK + MAX_INLINE);
        memset(q->blocks, 0, N_BLOCKS * BLOCK);
    }
    return q;
}

static void
take_rxq(struct null_port *port, struct ipoib_rxq *rxq)
{
    struct null_queue *q = null_queue_create(port, true);
    struct soft_srq *srq = soft_srq_cast(rxq->srq);

    ovs_mutex_lock(&srq->mutex);
    for (; srq->rq.n; soft_rq_pop(&srq->rq)) {
        const struct soft_rwqe *e = soft_rq_peek(&srq->rq);

        null_post(q, e->wr_id, e->sge[0].addr);
    }
    ovs_mutex_unlock(&srq->mutex);
    rxq->srq->srq_context = q;
    rxq->cq->cq_context = q;
}

static void
take_dev(struct ipoib_dev *dev, void *port_)
{
    const struct ipoib_partition *part = dev->part;
    struct ibv_context_ops *ops = &dev->hca->ctx->ops;
    struct null_port *port = port_;

    if (ops->post_send != bench_post_send) {
        soft_ops = *ops;
        ops->post_send = bench_post_send;
        ops->poll_cq = bench_poll_cq;
        ops->post_srq_recv = bench_post_srq_recv;
    }
    port->ctx = dev->hca->ctx;
    port->pkey_index = part->ud.pkey_index;
    for (size_t i = 0; i < part->n_txq; i++) {
        struct null_queue *q = null_queue_create(port, false);

        part->txqs[i]->qp->qp_context = q;
        part->txqs[i]->cq->cq_context = q;
    }
    for (size_t i = 0; i < part->n_rxq; i++) {
        take_rxq(port, part->rxqs[i]);
    }
}

static void
is_soft(struct ipoib_dev *dev, void *ok_)
{
    bool *ok = ok_;

    *ok = dev->hca->verbs == &ipoib_verbs_soft && dev->part->n_rxq == 1
          && dev->part->rxqs[0]->srq;
}

/* No PMD thread uses the port's queues. */
char *
bench_hca_take(const char *name)
{
    struct null_port *port = shash_find_data(&ports, name);
    bool ok = false;

    if (!port || !port->n) {
        return xasprintf("%s: hosts and neighbours are not known", name);
    } else if (port->ctx) {
        return xasprintf("%s: was taken", name);
    }
    ipoib_dev_for_each(name, is_soft, &ok);
    if (!ok) {
        return xasprintf("%s: not of a software HCA, or not of one queue",
                         name);
    }
    bench_hca_set_load(port, &(struct bench_load) { .size = 64 });
    ipoib_dev_for_each(name, take_dev, port);
    return NULL;
}

struct null_port *
bench_hca_find(const char *name)
{
    return shash_find_data(&ports, name);
}

void
bench_hca_set_load(struct null_port *port, const struct bench_load *load)
{
    port->headers.ipoib.type = htons(ETH_TYPE_IP);
    bench_ip_init(port->headers.ip, load->size, &port->csum);
    port->len = IB_GRH_LEN + IPOIB_HEADER_LEN + load->size;
    port->pace.interval = load->interval;
    port->pace.next = 0;
}

uint64_t
bench_hca_dropped(const struct null_port *port)
{
    return port->pace.dropped;
}

/* Memory for the generators. */

static void
make_pool(struct ipoib_dev *dev, void *pool)
{
    *(struct ipoib_pool **) pool
        = ipoib_pool_create(dev->hca->verbs, dev->hca->pd, 8192, 4096,
                            dev->hca->numa_id);
}

char *
bench_hca_make_pool(const char *name)
{
    struct ipoib_pool *pool = NULL;

    if (bench_pool) {
        return xstrdup("there is a pool");
    }
    ipoib_dev_for_each(name, make_pool, &pool);
    if (!pool) {
        return xasprintf("%s: no pool on this port", name);
    }
    bench_pool_tag = ipoib_pool_tag_alloc(pool);
    bench_pool = pool;
    return NULL;
}
