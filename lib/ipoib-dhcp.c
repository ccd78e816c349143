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
#include "ipoib-dhcp.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "csum.h"
#include "packets.h"

/* The fixed part of a DHCP message, RFC 2131, section 2. */
#define DHCP_LEN 236
#define DHCP_OFS_OP 0
#define DHCP_OFS_FLAGS 10
#define DHCP_OFS_CIADDR 12
#define DHCP_OFS_GIADDR 24

#define DHCP_OP_REQUEST 1
#define DHCP_FLAG_BROADCAST 0x80        /* In the first byte of the flags. */
#define DHCP_PORT_SERVER 67

static bool
is_zero32(const uint8_t *p)
{
    return !(p[0] | p[1] | p[2] | p[3]);
}

/* The DHCP message, to a server, in the IPv4 packet of 'len' bytes at 'ip', or
 * NULL.  '*udp' becomes its UDP header. */
static uint8_t *
find_dhcp(uint8_t *ip, size_t len, uint8_t **udp)
{
    size_t hlen = (ip[0] & 0xf) * 4, total = (ip[2] << 8) | ip[3];
    size_t udp_len;

    if (ip[0] >> 4 != 4 || hlen < IP_HEADER_LEN
        || total > len || total < hlen + UDP_HEADER_LEN + DHCP_LEN
        || ip[9] != IPPROTO_UDP
        || (ip[6] & 0x3f) | ip[7]) {            /* A fragment. */
        return NULL;
    }
    *udp = ip + hlen;
    udp_len = ((*udp)[4] << 8) | (*udp)[5];
    return (((*udp)[2] << 8) | (*udp)[3]) == DHCP_PORT_SERVER
           && udp_len >= UDP_HEADER_LEN + DHCP_LEN && udp_len <= total - hlen
           ? *udp + UDP_HEADER_LEN : NULL;
}

bool
ipoib_dhcp_set_broadcast(void *ip, size_t len)
{
    uint8_t *udp, *dhcp = len >= IP_HEADER_LEN ? find_dhcp(ip, len, &udp)
                                               : NULL;
    ovs_be16 old, new, csum;
    uint8_t *flags;

    if (!dhcp || dhcp[DHCP_OFS_OP] != DHCP_OP_REQUEST
        || !is_zero32(dhcp + DHCP_OFS_CIADDR)
        || !is_zero32(dhcp + DHCP_OFS_GIADDR)
        || dhcp[DHCP_OFS_FLAGS] & DHCP_FLAG_BROADCAST) {
        return false;
    }
    flags = dhcp + DHCP_OFS_FLAGS;
    memcpy(&old, flags, sizeof old);
    flags[0] |= DHCP_FLAG_BROADCAST;
    memcpy(&new, flags, sizeof new);
    memcpy(&csum, udp + 6, sizeof csum);
    if (csum) {                 /* The sender made one. */
        csum = recalc_csum16(csum, old, new);
        if (!csum) {
            csum = OVS_BE16_MAX;
        }
        memcpy(udp + 6, &csum, sizeof csum);
    }
    return true;
}
