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

/* If 'packet', whose data is at 'eth', is a unicast frame with an IP packet
 * that needs no translation, returns the key of its destination
 * (ipoib_frame_mac()) and stores the length of the IP packet in '*ip_lenp'.
 * Otherwise returns IPOIB_NEIGH_NO_KEY, and the length is 0. */
uint64_t ipoib_classify_any(const struct dp_packet *, const uint8_t *eth,
                            size_t *ip_lenp);

/* The same for IPv4 without options alone: what it does not take is for
 * ipoib_classify_any(); but it takes multicast frames as well, whose key is
 * nobody's. */
static inline ALWAYS_INLINE uint64_t
ipoib_classify_plain(const struct dp_packet *packet, const uint8_t *eth,
                     size_t *ip_lenp)
{
    /* Of IP, as far as it has a header; if not even that, very much. */
    uint32_t payload = dp_packet_size(packet) - ETH_HEADER_LEN
                       - IP_HEADER_LEN;
    const uint8_t *ip = eth + ETH_HEADER_LEN;
    uint32_t ip_len;
    ovs_be16 type;

    if (OVS_UNLIKELY(payload > UINT16_MAX)) {
        return IPOIB_NEIGH_NO_KEY;
    }
    memcpy(&type, eth + 2 * ETH_ADDR_LEN, sizeof type);
    if (OVS_UNLIKELY(type != htons(ETH_TYPE_IP))) {
        return IPOIB_NEIGH_NO_KEY;
    }
    if (OVS_UNLIKELY(ip[0] != IP_IHL_VER(5, 4))) {
        return IPOIB_NEIGH_NO_KEY;
    }
    ip_len = (ip[2] << 8) | ip[3];
    if (OVS_UNLIKELY(ip_len - IP_HEADER_LEN > payload)) {
        return IPOIB_NEIGH_NO_KEY;
    }
    *ip_lenp = ip_len;
    return ipoib_get_frame_mac(eth);
}

#endif /* ipoib-classify.h */
