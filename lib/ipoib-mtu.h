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

#ifndef IPOIB_MTU_H
#define IPOIB_MTU_H 1

/* Packets that are too long for the side they go to, and what keeps senders
 * from making such packets: IPv4 fragmentation (RFC 791), ICMP and ICMPv6
 * errors for path MTU discovery (RFC 1191, 1812, 4443, 8201), the MTU option
 * of router advertisements (RFC 4861), the MSS option of TCP (RFC 9293).
 * Packets in, packets out: no I/O, and no state but the limit of errors.
 *
 * 'ip' is the IP packet of 'ip_len' bytes, aligned to 2, 'type' its EtherType
 * in host byte order; its version and lengths must have been found good. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/token-bucket.h"
#include "openvswitch/types.h"

struct dp_packet;

/* IPv6 needs links that take so much (RFC 8200, 5). */
#define IPOIB_MTU_IPV6_MIN 1280

/* What becomes of a packet that is longer than 'mtu'. */
enum ipoib_mtu_verdict {
    IPOIB_MTU_BAD,              /* Nothing: a header that cannot be. */
    IPOIB_MTU_DROP,             /* Nothing, and nobody is told: to a group, an
                                 * ICMP error, a fragment other than the
                                 * first, a source that is no station. */
    IPOIB_MTU_ERROR,            /* The sender is told. */
    IPOIB_MTU_FRAGMENT,         /* Cut: IPv4 without DF. */
};
enum ipoib_mtu_verdict ipoib_mtu_judge(uint16_t type, const void *ip,
                                       size_t ip_len, uint32_t mtu);

/* Cuts a packet for which the verdict is IPOIB_MTU_FRAGMENT.  'l2' ('l2_len'
 * bytes, at most 16 and even) goes in front of each fragment.  What they point
 * to must last as long as 'f'. */
struct ipoib_mtu_fragmenter {
    const uint8_t *ip, *l2;
    size_t l2_len, hlen;
    size_t len, ofs;            /* Payload: all, and that which was cut. */
    size_t step;                /* Of a fragment but the last. */
};
void ipoib_mtu_fragment(struct ipoib_mtu_fragmenter *f, const void *ip,
                        size_t ip_len, uint32_t mtu, const void *l2,
                        size_t l2_len);
/* The next fragment, the caller's; NULL at the end. */
struct dp_packet *ipoib_mtu_next_fragment(struct ipoib_mtu_fragmenter *f);

/* The IP packet that tells the sender of 'ip', for which the verdict is
 * IPOIB_MTU_ERROR, that it can send 'mtu' bytes: ICMP 3/4 or ICMPv6 2/0.  Its
 * source is the destination of 'ip': a bridge has no address of its own that
 * all stations could be sure to have a route to, and that they accept through
 * reverse path filters; the destination's is both, as they write to it. */
struct dp_packet *ipoib_mtu_compose_error(uint16_t type, const void *ip,
                                          size_t ip_len, uint32_t mtu);

/* A limit on errors, for each source address and for all together.  All zeros
 * at first. */
#define IPOIB_MTU_RATE_SOURCE 100   /* A second, and at once. */
#define IPOIB_MTU_RATE_ALL 1000
struct ipoib_mtu_limiter {
    uint32_t basis;             /* Which sources share a bucket; 0: not in use
                                 * yet. */
    struct token_bucket source[64];
    struct token_bucket all;
};
/* True if the sender of 'ip' may be sent another error. */
bool ipoib_mtu_limiter_admit(struct ipoib_mtu_limiter *, uint16_t type,
                             const void *ip);

/* If 'ip' is a TCP SYN whose MSS option is more than what fits in IP packets
 * of 'mtu' bytes, lowers it and returns true. */
bool ipoib_mtu_clamp_mss(uint16_t type, void *ip, size_t ip_len,
                         uint32_t mtu);

/* If the router advertisement at 'l4_ofs' of 'ip', which was parsed, has an
 * MTU option of more than 'mtu', lowers it and returns true. */
bool ipoib_mtu_lower_ra(void *ip, size_t ip_len, size_t l4_ofs, uint32_t mtu);

#endif /* ipoib-mtu.h */
