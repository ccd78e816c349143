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
#include "ipoib-rx-offload.h"

#include <netinet/in.h>
#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-mtu.h"
#include "ipoib-ring.h"
#include "packets.h"

void
ipoib_rx_mark_good(struct ipoib_rxq *rxq, const struct ibv_wc wc[],
                   struct dp_packet *packets[], size_t n)
{
    uint64_t n_good = 0;

    for (size_t i = 0; i < n; i++) {
        const struct eth_header *eth;
        const struct ip_header *nh;

        if (!packets[i] || !(wc[i].wc_flags & IBV_WC_IP_CSUM_OK)) {
            continue;
        }
        eth = dp_packet_data(packets[i]);
        nh = (const void *) (eth + 1);
        if (eth->eth_type == htons(ETH_TYPE_IP)) {
            bool l4 = ((nh->ip_proto == IPPROTO_TCP
                        || nh->ip_proto == IPPROTO_UDP)
                       && !IP_IS_FRAGMENT(nh->ip_frag_off));

            ipoib_pkt_set_rx_csum_good(packets[i], l4);
            n_good++;
        }
    }
    ipoib_count(&rxq->stats.offload_csum, n_good);
}

void
ipoib_rx_clamp(struct ipoib_rxq *rxq, struct dp_packet_batch *batch,
               uint32_t mtu)
{
    struct dp_packet *packet;

    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        struct eth_header *eth = dp_packet_data(packet);
        uint16_t type = ntohs(eth->eth_type);
        const uint8_t *ip = (const uint8_t *) (eth + 1);
        size_t ip_len = (type == ETH_TYPE_IP ? (ip[2] << 8) | ip[3]
                         : IPV6_HEADER_LEN + ((ip[4] << 8) | ip[5]));

        if (ipoib_mtu_clamp_mss(type, eth + 1, ip_len, mtu)) {
            ipoib_count(&rxq->stats.mss_clamped, 1);
        }
    }
}
