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
#include "ipoib-control.h"

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-dev.h"
#include "ipoib-rx.h"
#include "ipoib-tx.h"
#include "netdev.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "test-ipoib-fake.h"
#include "timeval.h"
#include "util.h"

/* options:proxy=reply: a whole port, with its control thread, on a subnet of
 * its own.  This thread is the PMD. */

#define N 1000
#define ROUNDS 5                /* Few enough for the limits of a source. */
#define LIMIT 200000            /* In us; 5000 is what is wanted, of a machine
                                 * that does nothing else. */

static struct ipoib_dev *dev;
static struct ipoib_partition *part;
static struct ib_gid far_gid;   /* Of the port where the neighbours are. */

static struct eth_addr
host_mac(int i)
{
    return (struct eth_addr) { .ea = { 0x52, 0x54, 0, 0, i >> 8, i } };
}

static ovs_be32
host_ip(int i)
{
    return htonl(0x0a010000 + 1 + i);
}

static ovs_be32
neigh_ip(int i)
{
    return htonl(0x0a020000 + 1 + i);
}

static struct ipoib_addr
neigh_addr(int i)
{
    return ipoib_addr_make(0x10000 + i, &far_gid);
}

static uint64_t
now_us(void)
{
    struct timespec ts;

    xclock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * UINT64_C(1000000) + ts.tv_nsec / 1000;
}

/* Polls the port once, and counts the ARP replies. */
static int
poll_replies(void)
{
    struct dp_packet_batch batch;
    struct dp_packet *packet;
    int n = 0;

    dp_packet_batch_init(&batch);
    if (!ipoib_rx_batch(part->rxqs[0], &batch)) {
        DP_PACKET_BATCH_FOR_EACH (i, packet, &batch) {
            const struct eth_header *eth = dp_packet_data(packet);
            const struct arp_eth_header *arp
                = ipoib_arp_eth_parse(eth + 1, dp_packet_size(packet)
                                               - sizeof *eth);

            n += arp && arp->ar_op == htons(ARP_OP_REPLY);
        }
        dp_packet_delete_batch(&batch, true);
    }
    ovsrcu_quiesce();
    return n;
}

/* Sends the ARP requests of hosts 'from' to 'to' - 1, for as many neighbours;
 * with sender IP 0 if they are probes. */
static void
hosts_ask(int from, int to, bool probe)
{
    struct dp_packet_batch batch;

    dp_packet_batch_init(&batch);
    for (int i = from; i < to; i++) {
        dp_packet_batch_add(
            &batch,
            ipoib_compose_arp_eth(ARP_OP_REQUEST, false, host_mac(i),
                                  eth_addr_broadcast, host_mac(i),
                                  probe ? 0 : host_ip(i), eth_addr_zero,
                                  neigh_ip(i)));
        if (dp_packet_batch_is_full(&batch) || i + 1 == to) {
            ipoib_tx_batch(part->txqs[0], &batch);
            dp_packet_batch_init(&batch);
        }
    }
}

/* The neighbours 'from' to 'to' - 1 ask for as many hosts: what the data path
 * makes of that. */
static void
neighs_ask(int from, int to, bool probe)
{
    for (int i = from; i < to; i++) {
        struct ipoib_addr sha = neigh_addr(i);
        struct ipoib_msg msg = {
            .type = IPOIB_MSG_RX_ARP,
            .multicast = true,
            .has_grh = true,
            .sgid = far_gid,
            .mgid = part->shared.broadcast,
            .sqpn = 0x10000 + i,
            .packet = ipoib_compose_arp_ib(ARP_OP_REQUEST, false, &sha,
                                           probe ? 0 : neigh_ip(i), NULL,
                                           host_ip(i)),
        };

        ovs_assert(ipoib_msgq_push(part->rxqs[0]->to_control, &msg));
        ipoib_waker_wake(part->shared.waker);
    }
}

static uint64_t
n_sent(void)
{
    return ipoib_counter_read(&part->tx_stats.packets);
}

static uint64_t
n_broadcast(void)
{
    return ipoib_counter_read(&part->tx_stats.multicast);
}

/* Waits for 'n' replies on Ethernet, or packets to the fabric since it had
 * sent 'sent'. */
static void
await(int n, bool fabric, uint64_t sent)
{
    uint64_t deadline = now_us() + 10 * 1000 * 1000;
    int got = 0;

    while ((fabric ? (int) (n_sent() - sent) : got) < n) {
        got += poll_replies();
        if (now_us() > deadline) {
            ovs_fatal(0, "%d of %d answers (%s)",
                      fabric ? (int) (n_sent() - sent) : got, n,
                      fabric ? "fabric" : "Ethernet");
        }
    }
}

static void
linger(int ms)
{
    uint64_t end = now_us() + ms * 1000;

    while (now_us() < end) {
        ovs_assert(!poll_replies());
    }
}

static void
no_change(void *aux OVS_UNUSED)
{
}

static const struct ipoib_partition_ops ops = { .changed = no_change };

static struct ipoib_hca *
open_all(void)
{
    struct ipoib_dev_options options = {
        .device = xstrdup("soft:loop:px?guid=0x78"),
        .port = 1,
        .pkey = 0xffff,
        .config = {
            .n_rxq = 1, .n_txq = 1, .n_rxq_desc = 1024, .n_txq_desc = 1024,
            .max_host_qps = 4096, .max_neighbours = 65536,
            .max_groups = 1024, .max_host_groups = 256,
            .proxy_reply = true,
        },
    };
    struct ipoib_hca_port *port;
    struct ipoib_hca *far;
    char *err = NULL;

    if (ipoib_hca_ref("soft:loop:px?guid=0x77", &far, &err)
        || ipoib_dev_open("px", &options, &ops, NULL, &dev, &err)) {
        ovs_fatal(0, "%s", err);
    }
    ovs_mutex_lock(&far->mutex);
    ovs_assert(!ipoib_hca_port_ref(far, 1, &port));
    ovs_mutex_unlock(&far->mutex);
    far_gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 0x77);
    part = dev->part;
    ovs_assert(!ipoib_dev_configure(dev, &options.config));
    for (int i = 0; !ipoib_dev_is_up(dev); i++) {
        ovs_assert(i < 10000);
        poll_replies();
        xnanosleep(1000 * 1000);
    }
    free(options.device);
    return far;
}

/* All are known, and were heard now. */
static void
learn(int n)
{
    ovs_mutex_lock(&dev->hca->mutex);
    for (int i = 0; i < n; i++) {
        struct in6_addr host = in6_addr_mapped_ipv4(host_ip(i));
        struct in6_addr neigh = in6_addr_mapped_ipv4(neigh_ip(i));
        struct ipoib_addr addr = neigh_addr(i);

        ovs_assert(ipoib_control_learn_neigh(part, &addr, &neigh, 0,
                                             time_msec()));
        ovs_assert(ipoib_control_learn_host(part, host_mac(i), &host,
                                            time_msec()));
    }
    ovs_mutex_unlock(&dev->hca->mutex);
}

static void
test_ipoib_proxy_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    uint64_t best[2] = { UINT64_MAX, UINT64_MAX }, sent, start;

    open_all();
    linger(50);

    /* New hosts: from the ready pool at first. */
    learn(N);
    hosts_ask(N, N + 8, false);
    linger(50);
    ovs_mutex_lock(&dev->hca->mutex);
    for (int i = N; i < N + 8; i++) {
        struct in6_addr ip = in6_addr_mapped_ipv4(host_ip(i));
        struct ipoib_host *host = ipoib_host_find_ip(part->shared.hosts, &ip);

        ovs_assert(host && host->qpn && !host->shares_qp);
    }
    ovs_mutex_unlock(&dev->hca->mutex);

    /* A port that comes up announces hosts. */
    do {
        sent = n_broadcast();
        linger(200);
    } while (n_broadcast() != sent);
    for (int round = 0; round < ROUNDS; round++) {
        sent = n_broadcast();
        start = now_us();
        hosts_ask(0, N, false);
        await(N, false, 0);
        best[0] = MIN(best[0], now_us() - start);
        CHECK_INT(n_broadcast(), sent);     /* None on the fabric. */
        linger(100);
    }
    sent = n_sent();
    neighs_ask(0, 1, false);                /* Gets the path. */
    await(1, true, sent);
    for (int round = 0; round < ROUNDS; round++) {
        sent = n_sent();
        start = now_us();
        neighs_ask(0, N, false);
        await(N, true, sent);
        best[1] = MIN(best[1], now_us() - start);
        linger(100);
        CHECK_INT(n_sent(), sent + N);
    }
    printf("%d hosts that ask at once: %llu us\n"
           "%d neighbours that ask at once: %llu us\n",
           N, (unsigned long long int) best[0],
           N, (unsigned long long int) best[1]);
    fflush(stdout);             /* Also if it was too long. */
    ovs_assert(best[0] < LIMIT && best[1] < LIMIT);

    /* Who only tries an address gets no answer from us, whoever has it. */
    sent = n_broadcast();
    hosts_ask(5, 6, true);
    linger(100);
    CHECK_INT(n_broadcast(), sent + 1);
    sent = n_sent();
    neighs_ask(5, 6, true);
    linger(100);
    CHECK_INT(n_sent(), sent);
    ipoib_dev_close(dev, NULL, NULL);
}

OVSTEST_REGISTER("test-ipoib-proxy", test_ipoib_proxy_main);
