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
#include "bench-micro.h"

#include <string.h>

#include "ipoib-compat.h"
#include "ipoib-neigh.h"
#include "ipoib-pool.h"
#include "ipoib-rx.h"
#include "ipoib-tx.h"
#include "ovs-rcu.h"
#include "util.h"

/* Tables. */

/* Neighbours are on so many LIDs at most; those of a LID share an AH, as they
 * do with a port. */
#define MAX_AHS 10000

static void
add_neigh(struct bench_world *world, size_t i)
{
    struct ipoib_neigh_table *neighs = world->gw->shared.neighs;
    struct in6_addr ip = in6_addr_mapped_ipv4(gw_neigh_ip4(i));
    struct ipoib_addr addr = gw_neigh_addr(i);
    struct ipoib_neigh *neigh;
    unsigned int changes;

    neigh = ipoib_neigh_learn(neighs, &addr, &ip, gw_neigh_lid(i),
                              BENCH_NOW * 1000LL, &changes);
    ovs_assert(neigh && changes == (IPOIB_NEIGH_NEW | IPOIB_NEIGH_NEW_IP));
    ipoib_neigh_set_ah(neighs, neigh, world->ahs[i % world->n_ahs],
                       BENCH_MTU);
    world->macs[i] = neigh->mac;
}

static struct bench_world *
world_create(size_t n)
{
    struct bench_world *world = xzalloc(sizeof *world);
    struct ipoib_shared *shared;

    world->n = n;
    world->device = bench_device_open();
    world->gw = gw_open(64, 32);
    shared = &world->gw->shared;
    shared->verbs = &bench_verbs;
    atomic_store_relaxed(&shared->mtu, BENCH_MTU);
    atomic_store_relaxed(&shared->group_mtu, BENCH_MTU);
    atomic_store_relaxed(&shared->now, BENCH_NOW);
    for (size_t i = 0; i < BENCH_N_HOSTS; i++) {
        gw_add_host(world->gw, i, BENCH_HOST_QPN + i, false);
    }

    world->n_ahs = MIN(n, MAX_AHS);
    world->ahs = xcalloc(world->n_ahs, sizeof *world->ahs);
    for (size_t i = 0; i < world->n_ahs; i++) {
        world->ahs[i] = bench_ah_create(&world->device->pd, gw_neigh_lid(i));
    }
    world->macs = xmalloc(n * sizeof *world->macs);
    memset(world->macs, 0xff, n * sizeof *world->macs); /* Take the memory. */
    ovsrcu_quiesce();
    world->memory = bench_memory();
    for (size_t i = 0; i < n; i++) {
        add_neigh(world, i);
        if (i % 1024 == 0) {
            ovsrcu_quiesce();   /* Frees what the tables have outgrown. */
        }
    }
    ovsrcu_quiesce();
    world->memory = bench_memory() - world->memory;
    return world;
}

static void
world_destroy(struct bench_world *world)
{
    world->gw->shared.verbs = &null_verbs;
    gw_close(world->gw);
    for (size_t i = 0; i < world->n_ahs; i++) {
        free(CONTAINER_OF(world->ahs[i], struct bench_ah, ibv));
    }
    free(world->ahs);
    free(world->macs);
    bench_device_close(world->device);
    free(world);
    ovsrcu_quiesce();
}

/* Worlds are used again, since a large one takes its time to make. */
static struct bench_world *worlds[8];

struct bench_world *
bench_world_get(size_t n)
{
    size_t i = 0;

    while (i < ARRAY_SIZE(worlds) && worlds[i] && worlds[i]->n != n) {
        i++;
    }
    ovs_assert(i < ARRAY_SIZE(worlds));
    if (!worlds[i]) {
        worlds[i] = world_create(n);
    }
    return worlds[i];
}

void
bench_worlds_destroy(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(worlds) && worlds[i]; i++) {
        world_destroy(worlds[i]);
        worlds[i] = NULL;
    }
}

void
bench_discard(struct ipoib_msgq *q)
{
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(q, &msg)) {
        dp_packet_delete(msg.packet);
    }
}

/* Packets. */

static unsigned int
host_of(size_t i)
{
    return i / 4 % BENCH_N_HOSTS;
}

static void
write_ip4(uint8_t *p, ovs_be32 src, ovs_be32 dst, size_t len)
{
    uint8_t header[IP_HEADER_LEN + UDP_HEADER_LEN] = {
        IP_IHL_VER(5, 4), [2] = len >> 8, [3] = len, [8] = 64, IPPROTO_UDP,
    };

    memcpy(&header[12], &src, sizeof src);
    memcpy(&header[16], &dst, sizeof dst);
    memcpy(p, header, sizeof header);
}

void
bench_write_frame(uint8_t *eth, struct eth_addr dst, uint32_t neigh, size_t i,
                  size_t ip_len)
{
    struct eth_addr src = gw_host_mac(host_of(i));
    ovs_be16 type = htons(ETH_TYPE_IP);

    memcpy(eth, &dst, sizeof dst);
    memcpy(eth + 6, &src, sizeof src);
    memcpy(eth + 12, &type, sizeof type);
    write_ip4(eth + ETH_HEADER_LEN, gw_host_ip4(host_of(i)),
              gw_neigh_ip4(neigh), ip_len);
}

void
bench_write_ipoib(uint8_t *ipoib, uint32_t neigh, size_t i, size_t ip_len)
{
    uint8_t header[IPOIB_HEADER_LEN] = { ETH_TYPE_IP >> 8 };

    memcpy(ipoib, header, sizeof header);
    write_ip4(ipoib + IPOIB_HEADER_LEN, gw_neigh_ip4(neigh),
              gw_host_ip4(host_of(i)), ip_len);
}

/* IB's MTU of a pool for IP packets of 'ip_len' bytes. */
static size_t
pool_mtu(size_t ip_len)
{
    return ip_len + IPOIB_HEADER_LEN <= 2048 ? 2048 : 4096;
}

/* Transmit. */

struct ipoib_txq *
bench_txq_create(struct bench_world *world)
{
    struct ipoib_txq_params params = {
        .pd = &world->device->pd,
        .n_desc = BENCH_SEND_DESC,
        .mtu = 4096,
    };
    struct ipoib_txq *txq;

    ovs_assert(!ipoib_txq_create(&world->gw->shared, &params, &txq));
    return txq;
}

/* Has OVS not release 'packet', if there is a way to.  Returns false if there
 * is none.  A build without DPDK does nothing to release a packet of DPDK's;
 * in others there are packets of AF_XDP without a pool. */
static bool
set_keep(struct bench_tx *tx, struct dp_packet *packet)
{
#ifndef DPDK_NETDEV
    tx->source = packet->source;
    packet->source = DPBUF_DPDK;
    return true;
#else
#ifdef HAVE_AF_XDP
    if (packet->source == DPBUF_AFXDP) {
        struct dp_packet_afxdp *xpacket
            = CONTAINER_OF(packet, struct dp_packet_afxdp, packet);

        tx->umem = xpacket->mpool;
        xpacket->mpool = NULL;
        return true;
    }
#endif
    return false;
#endif
}

static void
unset_keep(const struct bench_tx *tx, struct dp_packet *packet)
{
#ifndef DPDK_NETDEV
    packet->source = tx->source;
#elif defined(HAVE_AF_XDP)
    CONTAINER_OF(packet, struct dp_packet_afxdp, packet)->mpool = tx->umem;
#endif
}

/* Frames begin where a cache line does, as those that come from NICs. */
static void
take_packet(struct bench_tx *tx, size_t i)
{
    struct ipoib_buf buf;

    ovs_assert(ipoib_pool_get(tx->pool, &buf, 1) == 1);
    tx->packets[i] = ipoib_pool_to_packet(tx->pool, buf.id, 0,
                                          ETH_HEADER_LEN + tx->ip_len);
    tx->data[i] = dp_packet_data(tx->packets[i]);
}

struct bench_tx *
bench_tx_create(struct bench_world *world, size_t n, size_t ip_len, bool keep)
{
    struct bench_tx *tx = xzalloc(sizeof *tx);

    tx->world = world;
    tx->txq = bench_txq_create(world);
    tx->n = n;
    tx->ip_len = ip_len;
    /* Some packets are held until they have been sent. */
    tx->pool = ipoib_pool_create(&bench_verbs, &world->device->pd,
                                 n + BENCH_WINDOW, pool_mtu(ip_len), -1);
    ovs_assert(tx->pool);
    tx->packets = xcalloc(n, sizeof *tx->packets);
    tx->data = xcalloc(n, sizeof *tx->data);
    tx->neighs = xcalloc(n, sizeof *tx->neighs);
    tx->random = (struct bench_random) BENCH_RANDOM_INITIALIZER;
    for (size_t i = 0; keep && i < n; i++) {
        take_packet(tx, i);
        if (!set_keep(tx, tx->packets[i])) {
            dp_packet_delete(tx->packets[i]);
            tx->packets[i] = NULL;
            keep = false;
        }
    }
    tx->keep = keep;
    for (size_t i = 0; i < BENCH_N_BURSTS; i++) {
        ipoib_batch_init(&tx->batches[i]);
    }
    return tx;
}

void
bench_tx_destroy(struct bench_tx *tx)
{
    bool all = tx->keep;

    bench_discard(tx->txq->to_control);
    ipoib_txq_destroy(tx->txq);
    for (size_t i = all ? 0 : tx->sent; i < (all ? tx->n : tx->prepared);
         i++) {
        struct dp_packet *packet = tx->packets[i & (tx->n - 1)];

        if (all) {
            unset_keep(tx, packet);
        }
        dp_packet_delete(packet);
    }
    ipoib_pool_detach(tx->pool);
    free(tx->packets);
    free(tx->data);
    free(tx->neighs);
    for (size_t i = 0; i < BENCH_N_BURSTS; i++) {
        ipoib_batch_destroy(&tx->batches[i]);
    }
    free(tx);
}

/* Writes the frames that will be sent half of the buffers later, and makes the
 * batches of the next stretch. */
static void
tx_prepare(void *tx_)
{
    struct bench_tx *tx = tx_;
    size_t ahead = tx->sent + tx->n / 2;

    for (; tx->prepared < ahead; tx->prepared++) {
        size_t i = tx->prepared & (tx->n - 1);
        uint32_t neigh = bench_random_below(&tx->random, tx->world->n);

        if (!tx->keep) {
            take_packet(tx, i);
        }
        tx->neighs[i] = neigh;
        dp_packet_set_data(tx->packets[i], tx->data[i]);
        dp_packet_set_size(tx->packets[i], ETH_HEADER_LEN + tx->ip_len);
        bench_write_frame(tx->data[i], tx->world->macs[neigh], neigh,
                          tx->prepared, tx->ip_len);
    }
    for (size_t i = 0; i < bench_stretch(tx->n) / BENCH_BURST; i++) {
        size_t first = (tx->sent + i * BENCH_BURST) & (tx->n - 1);

        dp_packet_batch_init(&tx->batches[i]);
        for (size_t j = first; j < first + BENCH_BURST; j++) {
            ipoib_batch_push(&tx->batches[i], tx->packets[j]);
        }
    }
}

static void
tx_run(void *tx_)
{
    struct bench_tx *tx = tx_;

    for (size_t i = 0; i < bench_stretch(tx->n) / BENCH_BURST; i++) {
        ipoib_tx_batch(tx->txq, &tx->batches[i]);
    }
}

/* All that was sent is in the queue, the last WQEs for the right ones. */
static void
tx_finish(void *tx_)
{
    struct bench_tx *tx = tx_;
    const struct bench_qp *qp = CONTAINER_OF(tx->txq->qp, struct bench_qp,
                                             ibv);
    size_t n_sent = bench_stretch(tx->n);

    tx->sent += n_sent;
    ovs_assert(ipoib_counter_read(&tx->txq->stats.packets) == tx->sent);
    ovs_assert(qp->head == (uint32_t) tx->sent);
    for (size_t i = tx->sent - MIN(n_sent, BENCH_SEND_DESC); i < tx->sent;
         i++) {
        const struct bench_wqe *wqe = &qp->sq[i & qp->mask];
        bool is_inline = ntohl(wqe->data.length) & BENCH_INLINE;
        uint32_t neigh = tx->neighs[i & (tx->n - 1)];

        ovs_assert(ntohl(wqe->av.dqpn) == ((0x2000 + neigh) | BENCH_AV_EXT));
        ovs_assert((ntohl(wqe->data.length) & ~BENCH_INLINE)
                   == tx->ip_len + IPOIB_HEADER_LEN);
        ovs_assert(!is_inline || (wqe->in.bytes[0] == 8
                                  && !wqe->in.bytes[1] && !wqe->in.bytes[2]
                                  && wqe->in.bytes[4] == 0x45));
    }
    bench_discard(tx->txq->to_control);
}

struct bench_workload
bench_tx_workload(struct bench_tx *tx)
{
    return (struct bench_workload) {
        .label = "transmit",
        .x = tx->world->n,
        .n_warm = BENCH_WARM,
        .n_stretches = BENCH_WINDOW / bench_stretch(tx->n),
        .prepare = tx_prepare,
        .run = tx_run,
        .finish = tx_finish,
        .aux = tx,
    };
}

/* Receive. */

struct bench_rx *
bench_rx_create(struct bench_world *world, struct ipoib_pool *pool, size_t n,
                size_t ip_len)
{
    struct bench_rx *rx = xzalloc(sizeof *rx);
    struct ipoib_rxq_params params = {
        .pd = &world->device->pd,
        .n_desc = n / 2,
        .use_srq = true,
    };

    rx->world = world;
    rx->n = n;
    rx->ip_len = ip_len;
    rx->own_pool = !pool;
    /* No more than 'n' are in use; the rest is for what threads keep. */
    rx->pool = pool ? pool : ipoib_pool_create(&bench_verbs,
                                               &world->device->pd, n + 1024,
                                               pool_mtu(ip_len), -1);
    ovs_assert(rx->pool);
    params.pool = rx->pool;
    ovs_assert(!ipoib_rxq_create(&world->gw->shared, &params, &rx->rxq));
    rx->fifo = xcalloc(n, sizeof *rx->fifo);
    rx->neighs = xcalloc(n, sizeof *rx->neighs);
    rx->random = (struct bench_random) BENCH_RANDOM_INITIALIZER;
    for (size_t i = 0; i < BENCH_N_BURSTS; i++) {
        ipoib_batch_init(&rx->batches[i]);
    }
    return rx;
}

/* Deletes packets until no more than 'n' are left. */
static void
rx_delete(struct bench_rx *rx, size_t n)
{
    while (rx->head - rx->tail > n) {
        dp_packet_delete(rx->fifo[rx->tail++ & (rx->n - 1)]);
    }
}

void
bench_rx_destroy(struct bench_rx *rx)
{
    ovs_assert(!ipoib_counter_read(&rx->rxq->stats.no_buffer));
    rx_delete(rx, 0);
    bench_discard(rx->rxq->to_control);
    ipoib_rxq_destroy(rx->rxq);
    if (rx->own_pool) {
        ipoib_pool_detach(rx->pool);
    }
    free(rx->fifo);
    free(rx->neighs);
    for (size_t i = 0; i < BENCH_N_BURSTS; i++) {
        ipoib_batch_destroy(&rx->batches[i]);
    }
    free(rx);
}

/* The wire fills what is posted. */
void
bench_rx_prepare(void *rx_)
{
    struct bench_rx *rx = rx_;
    struct bench_cq *cq = CONTAINER_OF(rx->rxq->cq, struct bench_cq, ibv);

    for (;; rx->received++) {
        uint32_t neigh = bench_random_below(&rx->random, rx->world->n);
        size_t i = rx->received;
        uint8_t *data = bench_device_receive(
            cq, gw_neigh_lid(neigh), 0x2000 + neigh,
            BENCH_HOST_QPN + host_of(i), 44 + rx->ip_len);

        if (!data) {
            break;
        }
        rx->neighs[i & (rx->n - 1)] = neigh;
        bench_write_ipoib(data + 40, neigh, i, rx->ip_len);
    }
    for (size_t i = 0; i < BENCH_N_BURSTS; i++) {
        dp_packet_batch_init(&rx->batches[i]);
    }
}

static void
rx_run(void *rx_)
{
    struct bench_rx *rx = rx_;

    for (size_t i = 0; i < bench_stretch(rx->n) / BENCH_BURST; i++) {
        ipoib_rx_batch(rx->rxq, &rx->batches[i]);
    }
}

/* All came, and were from the right ones. */
static void
rx_finish(void *rx_)
{
    struct bench_rx *rx = rx_;

    for (size_t i = 0; i < bench_stretch(rx->n) / BENCH_BURST; i++) {
        struct dp_packet *packet;

        ovs_assert(dp_packet_batch_size(&rx->batches[i]) == BENCH_BURST);
        DP_PACKET_BATCH_FOR_EACH (j, packet, &rx->batches[i]) {
            const struct eth_header *eth = dp_packet_data(packet);
            size_t k = rx->delivered++;
            uint32_t neigh = rx->neighs[k & (rx->n - 1)];

            ovs_assert(eth_addr_equals(eth->eth_src, rx->world->macs[neigh]));
            ovs_assert(eth_addr_equals(eth->eth_dst,
                                       gw_host_mac(host_of(k))));
            ovs_assert(dp_packet_size(packet)
                       == ETH_HEADER_LEN + rx->ip_len);
            rx->fifo[rx->head++ & (rx->n - 1)] = packet;
        }
    }
    ovs_assert(ipoib_counter_read(&rx->rxq->stats.packets)
               == rx->delivered);
    rx_delete(rx, rx->n / 2 - bench_stretch(rx->n));
    bench_discard(rx->rxq->to_control);
}

struct bench_workload
bench_rx_workload(struct bench_rx *rx)
{
    return (struct bench_workload) {
        .label = "receive",
        .x = rx->world->n,
        .n_warm = BENCH_WARM,
        .n_stretches = BENCH_WINDOW / bench_stretch(rx->n),
        .prepare = bench_rx_prepare,
        .run = rx_run,
        .finish = rx_finish,
        .aux = rx,
    };
}
