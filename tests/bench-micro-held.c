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

#include <stdlib.h>
#include <string.h>

#include "ipoib-compat.h"
#include "ipoib-pool.h"
#include "ipoib-ring-private.h"
#include "ipoib-rx.h"
#include "util.h"

/* Buffers that another port holds.
 *
 * Many of DPDK's drivers free what they have sent when the transmit ring needs
 * the room, so that it holds about as many packets as it has descriptors, with
 * traffic or without.  Here is such a ring: a packet is deleted when so many
 * others have come after it.  The pool and the receive queue are those of a
 * port with one queue.
 *
 * Where the ring holds more than the pool can spare, packets are copied, until
 * the pool has grown.  None may be lost, and the queue must be full again as
 * soon as the ring is empty. */

#define N_IN_OVS 64             /* Buffers that are not posted. */
#define IP_LEN 2044
#define N_HELD 256              /* Packets of a stretch. */
#define MAX_RING 8192           /* A power of 2. */

struct held {
    struct bench_world *world;
    struct ipoib_pool *pool;
    struct ipoib_rxq *rxq;
    struct dp_packet_batch batch;
    struct bench_random random;
    size_t n_bufs;              /* At first. */
    bool grows;
    uint32_t neighs[N_HELD];    /* Sources. */

    struct dp_packet *ring[MAX_RING];
    size_t n_ring;              /* So many stay there. */
    size_t head, tail;
    size_t n_copied;
};

/* 'n' is options:n_rxq_desc. */
static struct held *
held_create(size_t n, bool grows)
{
    struct held *held = xzalloc(sizeof *held);
    struct ipoib_rxq_params params = {
        .n_desc = n - N_IN_OVS,
        .use_srq = true,
    };

    held->world = bench_world_get(1000);
    held->pool = ipoib_pool_create(&bench_verbs, &held->world->device->pd,
                                   n, 2048, -1);
    ovs_assert(held->pool);
    params.pd = &held->world->device->pd;
    params.pool = held->pool;
    ovs_assert(!ipoib_rxq_create(&held->world->gw->shared, &params,
                                 &held->rxq));
    ovs_assert(!ipoib_rxq_refill(held->rxq));
    ipoib_batch_init(&held->batch);
    held->n_bufs = n;
    held->grows = grows;
    held->random = (struct bench_random) BENCH_RANDOM_INITIALIZER;
    return held;
}

static void
held_let_go(struct held *held, size_t n)
{
    while (held->head - held->tail > n) {
        dp_packet_delete(held->ring[held->tail++ % MAX_RING]);
    }
}

static void
held_destroy(struct held *held)
{
    held_let_go(held, 0);
    bench_discard(held->rxq->to_control);
    ipoib_rxq_destroy(held->rxq);
    ipoib_pool_detach(held->pool);
    ipoib_batch_destroy(&held->batch);
    free(held);
}

/* There is a buffer for each packet of the wire. */
static void
held_prepare(void *held_)
{
    struct held *held = held_;
    struct bench_cq *cq = CONTAINER_OF(held->rxq->cq, struct bench_cq, ibv);

    for (size_t i = 0; i < N_HELD; i++) {
        uint32_t neigh = bench_random_below(&held->random, held->world->n);
        uint8_t *data = bench_device_receive(cq, gw_neigh_lid(neigh),
                                             0x2000 + neigh, BENCH_HOST_QPN,
                                             44 + IP_LEN);

        ovs_assert(data);
        held->neighs[i] = neigh;
        bench_write_ipoib(data + 40, neigh, 0, IP_LEN);
    }
}

static void
held_run(void *held_)
{
    struct held *held = held_;

    for (size_t i = 0; i < N_HELD / BENCH_BURST; i++) {
        struct dp_packet *packet;

        dp_packet_batch_init(&held->batch);
        ipoib_rx_batch(held->rxq, &held->batch);
        DP_PACKET_BATCH_FOR_EACH (j, packet, &held->batch) {
            held->ring[held->head++ % MAX_RING] = packet;
        }
        held_let_go(held, held->n_ring);
    }
}

/* All came: those that the ring still has are the right ones. */
static void
held_finish(void *held_)
{
    struct held *held = held_;
    size_t n = MIN(N_HELD, held->head - held->tail);

    ovs_assert(held->head
               == ipoib_counter_read(&held->rxq->stats.packets));
    for (size_t i = 0; i < n; i++) {
        const struct dp_packet *packet
            = held->ring[(held->head - n + i) % MAX_RING];
        const struct eth_header *eth = dp_packet_data(packet);
        uint32_t neigh = held->neighs[N_HELD - n + i];

        ovs_assert(eth_addr_equals(eth->eth_src, held->world->macs[neigh]));
        ovs_assert(dp_packet_size(packet) == ETH_HEADER_LEN + IP_LEN);
        held->n_copied += packet->source == DPBUF_MALLOC;
    }
    bench_discard(held->rxq->to_control);
}

static struct ipoib_pool_stats
stats_of(const struct held *held)
{
    struct ipoib_pool_stats stats;

    ipoib_pool_get_stats(held->pool, &stats);
    return stats;
}

static void
print_held(const struct held *held, const char *label,
           const struct bench_workload *w, double value, const char *unit)
{
    char *full = xasprintf("%s, %"PRIuSIZE" buffers%s", label, held->n_bufs,
                           held->grows ? ", growing" : "");

    bench_print_point("held-by-ring", full, w->x, value, unit);
    free(full);
}

static uint64_t
no_buffer(const struct held *held)
{
    return ipoib_counter_read(&held->rxq->stats.no_buffer);
}

/* Until the ring is full, and the control thread has given the pool what it
 * lacks. */
static void
held_settle(struct held *held, struct bench_workload *w)
{
    uint64_t before;

    do {
        before = no_buffer(held);
        bench_steady(w, MAX_RING / BENCH_WINDOW, 0);
    } while (held->grows && no_buffer(held) != before
             && !ipoib_pool_grow(held->pool));
}

/* With a ring of 'n_ring'.  That packets are copied is told by a counter. */
static void
measure_held(struct held *held, size_t n_ring, size_t n_windows)
{
    struct bench_workload w = {
        .x = n_ring,
        .n_stretches = BENCH_WINDOW / N_HELD,
        .prepare = held_prepare,
        .run = held_run,
        .finish = held_finish,
        .aux = held,
    };
    double n = n_windows * w.n_stretches * MIN(N_HELD, n_ring);
    bool always = !strcmp(stats_of(held).kind, "copy");
    uint64_t before;

    held->n_ring = n_ring;
    held_settle(held, &w);
    held->n_copied = 0;
    before = no_buffer(held);
    bench_steady(&w, 0, n_windows);
    ovs_assert(always || !held->n_copied == (no_buffer(held) == before));
    ovs_assert(always || !held->grows || !held->n_copied);
    if (w.n_samples) {
        print_held(held, "receive", &w,
                   bench_quantile(w.samples, w.n_samples, 0.5), "ns");
    }
    print_held(held, "copied", &w, 100 * held->n_copied / n, "%");
    bench_workload_destroy(&w);

    held_let_go(held, 0);
    held->n_ring = 0;
    held_prepare(held);
    held_run(held);
    held_finish(held);
    ovs_assert(held->rxq->n_desc - held->rxq->n_posted < IPOIB_RX_CHAIN);
}

void
bench_held(enum bench_effort effort)
{
    static const struct {
        size_t n;
        bool grows;
    } bufs[] = { { 1024, false }, { 4096, false }, { 1024, true } };
    static const size_t rings[] = { 32, 256, 512, 1024, 2048, 4096 };

    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++) {
        struct held *held = held_create(bufs[i].n, bufs[i].grows);

        for (size_t j = 0; j < ARRAY_SIZE(rings); j++) {
            measure_held(held, rings[j], bench_choose(effort, 2, 100, 1000));
        }
        held_destroy(held);
    }
}
