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

#ifndef IPOIB_CLASSIFY_H
#define IPOIB_CLASSIFY_H 1

/* Tells the frames that go to neighbours as they are, nearly all, from those
 * that somebody has to look into. */

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-neigh.h"
#include "ipoib-packet.h"
#include "packets.h"

uint64_t ipoib_classify_any(const struct dp_packet *, const uint8_t *eth,
                            size_t *ip_lenp);

/* If 'packet', whose data is at 'eth', is a unicast frame with an IP packet
 * that needs no translation, returns the key of its destination
 * (ipoib_frame_mac()) and stores the length of the IP packet in
 * '*ip_lenp'.  Otherwise returns IPOIB_NEIGH_NO_KEY, and the length is 0.
 *
 * This is ipoib_classify_any(), and short for IPv4 without options. */
static inline ALWAYS_INLINE uint64_t
ipoib_classify(const struct dp_packet *packet, const uint8_t *eth,
               size_t *ip_lenp)
{
    const uint8_t *ip = eth + ETH_HEADER_LEN;
    uint32_t size = dp_packet_size(packet);
    uint32_t ip_len;
    ovs_be16 type;

    if (OVS_LIKELY(size >= ETH_HEADER_LEN + IP_HEADER_LEN)) {
        memcpy(&type, eth + 2 * ETH_ADDR_LEN, sizeof type);
        ip_len = (ip[2] << 8) | ip[3];
        if (OVS_LIKELY(type == htons(ETH_TYPE_IP))
            && OVS_LIKELY(ip[0] == IP_IHL_VER(5, 4))
            && OVS_LIKELY(ip_len >= IP_HEADER_LEN)
            && OVS_LIKELY(ip_len <= size - ETH_HEADER_LEN)
            && OVS_LIKELY(!(eth[0] & 1))) {
            *ip_lenp = ip_len;
            return ipoib_get_frame_mac(eth);
        }
    }
    return ipoib_classify_any(packet, eth, ip_lenp);
}

#endif /* ipoib-classify.h */
