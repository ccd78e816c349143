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

#ifndef IPOIB_OFFLOAD_H
#define IPOIB_OFFLOAD_H 1

/* Packets that were left for a device to complete: their layer-4 checksum is
 * that of the pseudo-header only, or they are several TCP segments in one.
 * What a device does with them is done here.  Packets in, packets out: no I/O
 * and no state. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/types.h"

struct dp_packet;

/* A TCP, UDP or SCTP packet whose headers were found good. */
struct ipoib_offload {
    size_t l2_len;              /* Of Ethernet, with a tag if there is one. */
    uint8_t *ip;                /* IP header, in the packet. */
    size_t ip_len;              /* IP packet, without padding. */
    size_t l4_ofs;              /* Layer 4, from 'ip'. */
    const uint8_t *dst;         /* Final destination, which a routing header
                                 * may have. */
    uint8_t proto;              /* IPPROTO_TCP, _UDP or _SCTP. */
    bool v4;
};

/* Looks into 'packet', an Ethernet frame with one tag at most.  Returns false
 * if it is none that a device could complete: of another protocol, a fragment,
 * or malformed. */
bool ipoib_offload_parse(const struct dp_packet *packet,
                         struct ipoib_offload *);

/* The same for 'len' bytes of IP and padding at 'ip', of EtherType 'type';
 * 'l2_len' is 0. */
bool ipoib_offload_parse_ip(uint8_t *ip, size_t len, ovs_be16 type,
                            struct ipoib_offload *);

/* True if devices know such packets: TCP or UDP right behind an IP header
 * without options or extension headers. */
bool ipoib_offload_is_simple(const struct ipoib_offload *);

/* Writes the layer-4 checksum, whatever is in its place. */
void ipoib_offload_complete(const struct ipoib_offload *);

/* True if the checksum of TCP or UDP is right, or UDP has none in IPv4. */
bool ipoib_offload_verify(const struct ipoib_offload *);

/* Of TCP or UDP, writes the sum of the pseudo-header in its place, which is
 * what devices want to find there. */
void ipoib_offload_prepare(const struct ipoib_offload *);

/* Cuts TCP into segments. */
struct ipoib_segments {
    struct ipoib_offload all;
    const struct dp_packet *packet;
    size_t hlen;                /* IP and TCP headers. */
    size_t size;                /* Of a segment but the last, without them. */
    size_t len, ofs;            /* All, and that which was cut. */
    uint16_t id;                /* IPv4: of the next segment. */
    bool prepare;               /* Leave TCP's checksum to a device. */
};

/* Prepares to cut 'packet', whose parts are 'all', into IP packets of at most
 * 'mtu' bytes, with at most 'segsz' bytes of TCP each, if that is not 0.  The
 * packet must last as long as 'segs'.  Returns false if that cannot be: no
 * TCP, no room for data, or far too many segments. */
bool ipoib_segments_init(struct ipoib_segments *segs,
                         const struct dp_packet *packet,
                         const struct ipoib_offload *all, size_t mtu,
                         size_t segsz);
/* How many there are in all, and the bytes of their IP packets. */
size_t ipoib_segments_n(const struct ipoib_segments *);
size_t ipoib_segments_ip_bytes(const struct ipoib_segments *);
/* The next segment, complete unless 'segs->prepare', the caller's; NULL at the
 * end. */
struct dp_packet *ipoib_segments_next(struct ipoib_segments *);

#endif /* ipoib-offload.h */
