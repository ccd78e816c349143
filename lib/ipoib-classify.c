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
#include "ipoib-classify.h"

/* True if the IPv6 packet at 'ip', which has other than TCP and UDP right
 * behind its header, is to be sent as it is. */
static bool
ipv6_is_plain(const uint8_t *ip, size_t len)
{
    size_t ip_len, l4_ofs;

    switch (ipoib_packet_check_ip(ETH_TYPE_IPV6, ip, len, &ip_len, &l4_ofs)) {
    case IPOIB_IP_BAD:
    case IPOIB_IP_ND:
        return false;

    case IPOIB_IP_DATA:
    case IPOIB_IP_IGMP:
    case IPOIB_IP_MLD:
    case IPOIB_IP_PIM:
    case IPOIB_IP_DHCP:
    default:
        return true;
    }
}

uint64_t
ipoib_classify_any(const struct dp_packet *packet, const uint8_t *eth,
                   size_t *ip_lenp)
{
    const uint8_t *ip = eth + ETH_HEADER_LEN;
    uint32_t size = dp_packet_size(packet);
    uint32_t len = size - ETH_HEADER_LEN;
    uint32_t ip_len;
    ovs_be16 type;

    *ip_lenp = 0;
    if (size < ETH_HEADER_LEN + IP_HEADER_LEN || eth[0] & 1) {
        return IPOIB_NEIGH_NO_KEY;
    }
    memcpy(&type, eth + 2 * ETH_ADDR_LEN, sizeof type);
    if (type == htons(ETH_TYPE_IP)) {
        uint32_t hlen = (ip[0] & 0xf) * 4;

        ip_len = (ip[2] << 8) | ip[3];
        if (ip[0] >> 4 != 4 || hlen < IP_HEADER_LEN || ip_len < hlen
            || ip_len > len) {
            return IPOIB_NEIGH_NO_KEY;
        }
    } else if (type == htons(ETH_TYPE_IPV6)) {
        ip_len = IPV6_HEADER_LEN + ((ip[4] << 8) | ip[5]);
        if (ip[0] >> 4 != 6 || ip_len > len
            || (ip[6] != IPPROTO_TCP && ip[6] != IPPROTO_UDP
                && !ipv6_is_plain(ip, len))) {
            return IPOIB_NEIGH_NO_KEY;
        }
    } else {
        return IPOIB_NEIGH_NO_KEY;
    }
    *ip_lenp = ip_len;
    return ipoib_get_frame_mac(eth);
}
