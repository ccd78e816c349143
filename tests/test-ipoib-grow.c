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
#include "ipoib-partition.h"

#include "csum.h"
#include "dp-packet.h"
#include "ipoib-dev.h"
#include "ipoib-pool.h"
#include "ipoib-rx.h"
#include "ipoib-tx.h"
#include "netdev.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "packets.h"
#include "test-ipoib-fake.h"
#include "timeval.h"
#include "util.h"

/* A port whose packets another port's transmit ring holds: whole ports, with
 * their control thread, on a subnet of their own.  This thread is the PMD. */

#define N_BUFS 128              /* Of the receiving port, at first, */
#define N_HELD 300              /* of which the ring holds so many. */
#define N_GROWN 512             /* What is enough for that. */
#define MAX_HELD 3000           /* For that there cannot be enough. */
#define IP_LEN 84

static struct ipoib_dev *from, *to;
static struct dp_packet *ring[MAX_HELD];
static size_t n_held = N_HELD;
static size_t n_received;
static size_t n_copied;         /* Of them. */

static void
no_change(void *aux OVS_UNUSED)
{
}

static const struct ipoib_partition_ops ops = { .changed = no_change };

static struct ipoib_dev *
open_port(const char *name, const char *device)
{
    struct ipoib_dev_options options = {
        .device = xstrdup(device),
        .port = 1,
        .pkey = 0xffff,
        .config = {
            .n_rxq = 1, .n_txq = 1, .n_rxq_desc = N_BUFS, .n_txq_desc = 256,
            .max_host_qps = 64, .max_neighbours = 1024, .max_groups = 64,
            .max_host_groups = 16,
        },
    };
    struct ipoib_dev *dev;
    char *err = NULL;

    if (ipoib_dev_open(name, &options, &ops, NULL, &dev, &err)) {
        ovs_fatal(0, "%s", err);
    }
    ovs_assert(!ipoib_dev_configure(dev, &options.config));
    free(options.device);
    return dev;
}

static struct ipoib_pool_stats
pool_stats(void)
{
    struct ipoib_pool_stats stats;

    ovs_mutex_lock(&to->hca->mutex);
    ipoib_pool_get_stats(to->part->pool, &stats);
    ovs_mutex_unlock(&to->hca->mutex);
    return stats;
}

static uint64_t
no_buffer(void)
{
    return ipoib_counter_read(&to->part->rxqs[0]->stats.no_buffer);
}

static void
poll(struct ipoib_dev *dev)
{
    struct dp_packet_batch batch;
    struct dp_packet *packet;

    dp_packet_batch_init(&batch);
    if (ipoib_rx_batch(dev->part->rxqs[0], &batch)) {
        return;
    }
    if (dev == from) {
        dp_packet_delete_batch(&batch, true);
        return;
    }
    DP_PACKET_BATCH_FOR_EACH (i, packet, &batch) {
        struct dp_packet **place = &ring[n_received++ % n_held];

        dp_packet_delete(*place);
        *place = packet;
        /* What the control thread sends to hosts is no copy. */
        n_copied += (packet->source == DPBUF_MALLOC
                     && dp_packet_size(packet) == ETH_HEADER_LEN + IP_LEN);
    }
}

/* What both ports have to do, for 'ms'. */
static void
pass(int ms)
{
    long long int end = time_msec() + ms;

    while (time_msec() < end) {
        poll(from);
        poll(to);
        ovsrcu_quiesce();
        xnanosleep(1000 * 1000);
    }
}

/* A broadcast to all of the fabric. */
static void
send_broadcast(void)
{
    const struct eth_addr mac = { .ea = { 0x52, 0x54, 0, 0, 0, 1 } };
    struct dp_packet *packet = dp_packet_new(128);
    struct dp_packet_batch batch;
    struct ip_header *ip;

    ip = eth_compose(packet, eth_addr_broadcast, mac, ETH_TYPE_IP,
                     IP_LEN);
    memset(ip, 0, IP_LEN);
    ip->ip_ihl_ver = IP_IHL_VER(5, 4);
    ip->ip_tot_len = htons(IP_LEN);
    ip->ip_ttl = 64;
    ip->ip_proto = 253;         /* For experiments. */
    put_16aligned_be32(&ip->ip_src, htonl(0x0a000001));
    put_16aligned_be32(&ip->ip_dst, htonl(0xffffffff));
    ip->ip_csum = csum(ip, sizeof *ip);
    dp_packet_batch_init_packet(&batch, packet);
    ipoib_tx_batch(from->part->txqs[0], &batch);
}

/* Traffic until the pool has 'n_bufs' buffers, or for 'ms'; longer if this
 * thread does not get its time. */
static void
traffic(size_t n_bufs, int ms)
{
    while (pool_stats().n_bufs < n_bufs && ms-- > 0) {
        for (int i = 0; i < 8; i++) {
            send_broadcast();
        }
        pass(1);
    }
}

/* Packets are copied, so that nobody holds buffers. */
static void
test_copies(void)
{
    traffic(N_GROWN, 2000);
    ovs_assert(n_received > N_HELD);
    CHECK_INT(no_buffer(), 0);
    CHECK_INT(pool_stats().n_bufs, N_BUFS);
}

static void
test_grow(void)
{
    struct ipoib_pool_stats stats;
    uint64_t before;

    traffic(N_GROWN, 30000);
    stats = pool_stats();
    CHECK_INT(stats.n_bufs, N_GROWN);
    ovs_assert(n_copied && no_buffer());

    /* Now there are enough. */
    traffic(2 * N_GROWN, 500);  /* Copies go, of which the ring is full. */
    n_received %= n_held;
    n_copied = 0;
    before = no_buffer();
    traffic(2 * N_GROWN, 2500);
    ovs_assert(n_received > 2 * N_HELD);
    CHECK_INT(no_buffer(), before);
    CHECK_INT(n_copied, 0);
    CHECK_INT(pool_stats().n_bufs, N_GROWN);
    ovs_assert(pool_stats().n_packets >= N_HELD);

    /* It does not grow for ever: then packets are copied. */
    n_received %= n_held;
    n_held = MAX_HELD;
    traffic(N_BUFS * IPOIB_POOL_MAX_GROWTH, 30000);
    CHECK_INT(pool_stats().n_bufs, N_BUFS * IPOIB_POOL_MAX_GROWTH);
    before = no_buffer();
    n_copied = 0;
    traffic(SIZE_MAX, 3000);    /* Enough for another second's look. */
    ovs_assert(n_copied && no_buffer() > before);
    CHECK_INT(pool_stats().n_bufs, N_BUFS * IPOIB_POOL_MAX_GROWTH);
}

static void
test_ipoib_grow_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    from = open_port("from", "soft:loop:grow?guid=0x77");
    to = open_port("to", "soft:loop:grow?guid=0x78");
    for (int i = 0; !ipoib_dev_is_up(from) || !ipoib_dev_is_up(to); i++) {
        ovs_assert(i < 10000);
        pass(1);
    }
    CHECK_INT(pool_stats().n_bufs, N_BUFS);
    if (pool_stats().zero_copy) {
        test_grow();
    } else {
        test_copies();
    }

    /* Packets outlive the port. */
    ipoib_dev_close(to, NULL, NULL);
    ipoib_dev_close(from, NULL, NULL);
    for (size_t i = 0; i < MAX_HELD; i++) {
        dp_packet_delete(ring[i]);
    }
}

OVSTEST_REGISTER("test-ipoib-grow", test_ipoib_grow_main);
