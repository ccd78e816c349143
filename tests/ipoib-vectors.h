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

#ifndef IPOIB_VECTORS_H
#define IPOIB_VECTORS_H 1

/* Both sides of packets that cross between IPoIB and Ethernet.
 *
 * V1_IB is frame 5 and V3_IB frame 26 of a capture of an InfiniBand fabric
 * (Wireshark's sample infiniband.pcap), the others follow from them and from
 * RFC 4391, and have been checked with a packet analyser.  Packets on IPoIB
 * begin with the 4-byte header; frames on Ethernet are without FCS. */

/* The neighbour of V1 to V4, its address and a stand-in MAC for it. */
#define V_NEIGH_IB "80000405fe800000000000000002c9020024f636"
#define V_NEIGH_MAC "020004050004"
/* The host, and the address that it has on the fabric. */
#define V_HOST_IB "00000200fe800000000000000000000000100001"
#define V_HOST_MAC "525400aabb01"

/* ARP request of the neighbour. */
#define V1_IB \
    "08060000002008001404000180000405fe800000000000000002c9020024f636" \
    "0a00012200000000000000000000000000000000000000000a00003a"
#define V1_ETH \
    "ffffffffffff020004050004080600010800060400010200040500040a000122" \
    "0000000000000a00003a000000000000000000000000000000000000"

/* ARP reply of the host. */
#define V2_ETH \
    "020004050004525400aabb0108060001080006040002525400aabb010a00003a" \
    "0200040500040a000122000000000000000000000000000000000000"
#define V2_IB \
    "08060000002008001404000200000200fe800000000000000000000000100001" \
    "0a00003a80000405fe800000000000000002c9020024f6360a000122"

/* Neighbour solicitation of the neighbour. */
#define V3_IB \
    "86dd00006000000000303afffe800000000000000202c9020024f636ff020000" \
    "0000000000000001ff00189587007d1500000000fe800000000000000202c903" \
    "000018950103000080000405fe800000000000000002c9020024f636"
#define V3_ETH \
    "3333ff00189502000405000486dd6000000000203afffe800000000000000202" \
    "c9020024f636ff0200000000000000000001ff0018958700b90400000000fe80" \
    "0000000000000202c903000018950101020004050004"

/* Neighbour advertisement of the host. */
#define V4_ETH \
    "020004050004525400aabb0186dd6000000000203afffe800000000000005054" \
    "00fffeaabb01fe800000000000000202c9020024f636880034c160000000fe80" \
    "000000000000505400fffeaabb010201525400aabb01"
#define V4_IB \
    "86dd00006000000000303afffe80000000000000505400fffeaabb01fe800000" \
    "000000000202c9020024f6368800421d60000000fe80000000000000505400ff" \
    "feaabb010203000000000200fe800000000000000000000000100001"

/* Neighbour solicitation for duplicate address detection: the IP packet, which
 * is the same on both sides. */
#define V5_IP \
    "6000000000183aff00000000000000000000000000000000ff02000000000000" \
    "00000001ffaabb018700b57b00000000fe80000000000000505400fffeaabb01"

#endif /* ipoib-vectors.h */
