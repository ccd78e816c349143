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
#include "ipoib-compat.h"
#include "dp-packet.h"
#include "ovstest.h"
#include "util.h"

/* A recycled packet keeps its base, and nothing else. */
static void
test_pkt_renew(void)
{
    struct dp_packet *pkt = dp_packet_new_with_headroom(128, 32);
    struct ipoib_pkt_fresh fresh;
    char *data = dp_packet_data(pkt);

    ipoib_pkt_fresh_init(&fresh, pkt);
    dp_packet_put_zeros(pkt, 64);
    dp_packet_pull(pkt, 10);
    dp_packet_set_l2_5(pkt, dp_packet_data(pkt));
    dp_packet_set_l3(pkt, (char *) dp_packet_data(pkt) + 14);
    dp_packet_set_l4(pkt, (char *) dp_packet_data(pkt) + 34);
    dp_packet_set_l2_pad_size(pkt, 3);
    pkt->packet_type = htonl(PT_IPV4);
    pkt->cutlen = 20;
    dp_packet_set_rss_hash(pkt, 0x1234);
    dp_packet_set_flow_mark(pkt, 5);
    ipoib_pkt_set_rx_csum_good(pkt, true);

    ipoib_pkt_renew(pkt, &fresh);
    dp_packet_set_size(pkt, 64);
    ovs_assert(pkt->source == DPBUF_MALLOC);
    ovs_assert(dp_packet_data(pkt) == data);
    ovs_assert(dp_packet_size(pkt) == 64);
    ovs_assert(dp_packet_headroom(pkt) == 32);
    ovs_assert(dp_packet_tailroom(pkt) == 64);
    ovs_assert(!dp_packet_l2_5(pkt));
    ovs_assert(!dp_packet_l3(pkt));
    ovs_assert(!dp_packet_l4(pkt));
    ovs_assert(!dp_packet_l2_pad_size(pkt));
    ovs_assert(pkt->packet_type == htonl(PT_ETH));
    ovs_assert(!dp_packet_get_cutlen(pkt));
    ovs_assert(!dp_packet_rss_valid(pkt));
    ovs_assert(!dp_packet_ip_checksum_valid(pkt));
    ovs_assert(!dp_packet_l4_checksum_valid(pkt));
    ovs_assert(!ipoib_pkt_is_tso(pkt));
    dp_packet_delete(pkt);
}

static void
test_csum_good(void)
{
    struct dp_packet *pkt = dp_packet_new(0);

    ipoib_pkt_set_rx_csum_good(pkt, false);
    ovs_assert(dp_packet_ip_checksum_valid(pkt));
    ovs_assert(!dp_packet_l4_checksum_valid(pkt));
    ipoib_pkt_set_rx_csum_good(pkt, true);
    ovs_assert(dp_packet_l4_checksum_valid(pkt));
    dp_packet_delete(pkt);
}

/* Each packet is in one slice, in order, and no slice is empty or too long. */
static void
test_batch_slices(void)
{
    for (size_t total = 0; total <= NETDEV_MAX_BURST; total++) {
        struct dp_packet *packets[NETDEV_MAX_BURST];
        struct dp_packet_batch batch;
        struct dp_packet **slice;
        size_t seen = 0;
        size_t n;

        ipoib_batch_init(&batch);
        for (size_t i = 0; i < total; i++) {
            ovs_assert(ipoib_batch_room(&batch) == NETDEV_MAX_BURST - i);
            packets[i] = dp_packet_new(0);
            ipoib_batch_push(&batch, packets[i]);
        }
        IPOIB_BATCH_SLICES (slice, n, &batch) {
            ovs_assert(n > 0 && n <= NETDEV_MAX_BURST);
            for (size_t i = 0; i < n; i++) {
                ovs_assert(slice[i] == packets[seen + i]);
            }
            seen += n;
        }
        ovs_assert(seen == total);
        dp_packet_delete_batch(&batch, true);
        ipoib_batch_destroy(&batch);
    }
}

static void
test_compose_ns(void)
{
    struct eth_addr src = ETH_ADDR_C(02,00,00,00,00,01);
    struct in6_addr ip = { .s6_addr = { 0xfe, 0x80, [15] = 1 } };
    struct in6_addr target = { .s6_addr = { 0xfe, 0x80, [15] = 2 } };
    struct dp_packet *pkt = dp_packet_new(0);

    ipoib_compose_ns(pkt, src, &ip, &target);
    ovs_assert(eth_addr_is_multicast(
                   ((struct eth_header *) dp_packet_data(pkt))->eth_dst));
    ovs_assert(dp_packet_size(pkt) == ETH_HEADER_LEN + IPV6_HEADER_LEN + 32);
    dp_packet_delete(pkt);
}

static void
test_ipoib_compat_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    test_pkt_renew();
    test_csum_good();
    test_batch_slices();
    test_compose_ns();
}

OVSTEST_REGISTER("test-ipoib-compat", test_ipoib_compat_main);
