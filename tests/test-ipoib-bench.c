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
#include "ipoib-rx.h"
#include "ipoib-tx.h"

#include <stdlib.h>

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-test-gateway.h"
#include "ovstest.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

/* Load for the data path, without a fabric: what is received comes ready from
 * a null device, and what is sent ends there.  tests/ipoib-callgrind counts
 * the instructions. */

#define N_HOSTS 16
#define HOST_QPN 0x100000
#define IP_LEN 46               /* Frames of 60 bytes, 64 with the FCS. */

static struct gw *
open_gateway(size_t n_neighs)
{
    struct gw *gw;

    random_set_seed(1);         /* The same tables each time. */
    gw = gw_open(4096, 1024);
    for (size_t i = 0; i < n_neighs; i++) {
        gw_add_neigh(gw, i);
    }
    for (size_t i = 0; i < N_HOSTS; i++) {
        gw_add_host(gw, i, HOST_QPN + i, false);
    }
    gw->hca->sink = true;
    return gw;
}

static void
discard_messages(struct ipoib_msgq *q)
{
    struct ipoib_msg msg;

    while (ipoib_msgq_pop(q, &msg)) {
        dp_packet_delete(msg.packet);
    }
}

static void
bench_tx(size_t n_neighs, size_t n_packets)
{
    struct gw *gw = open_gateway(n_neighs);
    struct eth_addr *standins = xcalloc(n_neighs, sizeof *standins);
    struct dp_packet_batch batch;
    size_t next = 0;

    for (size_t i = 0; i < n_neighs; i++) {
        struct ipoib_addr addr = gw_neigh_addr(i);

        standins[i] = ipoib_neigh_find(gw->shared.neighs, &addr)->mac;
    }
    for (size_t n = 0; n < n_packets; n += NETDEV_MAX_BURST) {
        ipoib_batch_init(&batch);
        for (size_t i = 0; i < NETDEV_MAX_BURST; i++) {
            struct dp_packet *packet = dp_packet_new(60);
            uint8_t *eth = dp_packet_put_zeros(packet, 60);
            struct eth_addr src = gw_host_mac(i / 4);

            gw_ip4(eth + 14, gw_host_ip4(i / 4), gw_neigh_ip4(next), IP_LEN);
            memcpy(eth, &standins[next], 6);
            memcpy(eth + 6, &src, 6);
            eth[12] = 8;
            ipoib_batch_push(&batch, packet);
            next = next + 1 < n_neighs ? next + 1 : 0;
        }
        ipoib_tx_batch(gw->txq, &batch);
        ipoib_batch_destroy(&batch);
        discard_messages(gw->txq->to_control);
    }
    ovs_assert(ipoib_counter_read(&gw->txq->stats.packets) >= n_packets);
    free(standins);
    gw_close(gw);
}

static void
bench_rx(size_t n_neighs, size_t n_packets)
{
    struct gw *gw = open_gateway(n_neighs);
    struct dp_packet_batch batch;

    gw->hca->n_source = n_neighs;
    gw->hca->source = xcalloc(n_neighs, sizeof *gw->hca->source);
    for (size_t i = 0; i < n_neighs; i++) {
        struct null_packet *packet = &gw->hca->source[i];

        gw_fill(packet, i, HOST_QPN + i % N_HOSTS, ETH_TYPE_IP, IP_LEN);
        gw_ip4(gw_payload(packet), gw_neigh_ip4(i),
               gw_host_ip4(i % N_HOSTS), IP_LEN);
    }
    for (size_t n = 0; n < n_packets; n += NETDEV_MAX_BURST) {
        ipoib_batch_init(&batch);
        ipoib_rx_batch(gw->rxq, &batch);
        dp_packet_delete_batch(&batch, true);
        ipoib_batch_destroy(&batch);
        discard_messages(gw->rxq->to_control);
    }
    ovs_assert(ipoib_counter_read(&gw->rxq->stats.packets) >= n_packets);
    free(gw->hca->source);
    gw_close(gw);
}

static void
test_ipoib_bench_main(int argc, char *argv[])
{
    if (argc != 4) {
        ovs_fatal(0, "usage: %s tx|rx NEIGHBOURS PACKETS", argv[0]);
    }

    size_t n_neighs = strtoul(argv[2], NULL, 0);
    size_t n_packets = strtoul(argv[3], NULL, 0);
    if (!n_neighs || !n_packets) {
        ovs_fatal(0, "NEIGHBOURS and PACKETS must not be 0");
    }
    (strcmp(argv[1], "tx") ? bench_rx : bench_tx)(n_neighs, n_packets);
}

OVSTEST_REGISTER("test-ipoib-bench", test_ipoib_bench_main);
