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

#ifdef IPOIB_LANES
/* Bytes 0 to 7, and 10 to 17, of a frame: they have its destination, and its
 * type, the IP version and IHL, and the length of the IP packet. */
static inline ALWAYS_INLINE __m128i
ipoib_classify_load(const uint8_t *eth)
{
    long long int head, tail;

    memcpy(&head, eth, sizeof head);
    memcpy(&tail, eth + 10, sizeof tail);
    return _mm_set_epi64x(tail, head);
}

/* The same for 'packets'[0] to [3] at once, a 64-bit lane each: stores where
 * their data are, their keys, and the lengths of their IP packets.  Returns a
 * bit for each that it does not take. */
static inline ALWAYS_INLINE unsigned int
ipoib_classify_four(struct dp_packet *const packets[], uint8_t *eths[],
                    uint64_t keys[], size_t ip_lens[])
{
    const __m256i eth_header = _mm256_set1_epi64x(ETH_HEADER_LEN);
    const __m256i least = _mm256_set1_epi64x(IP_HEADER_LEN - 1);
    const __m256i mac = _mm256_set1_epi64x(ipoib_swap64(~UINT64_C(0xffff)));
    /* Of bytes 10 to 17. */
    const __m256i type = _mm256_set1_epi64x(ipoib_swap64(0x0000ffffff000000));
    const __m256i ipv4 = _mm256_set1_epi64x(ipoib_swap64(0x0000080045000000));
    const __m256i length = _mm256_set_epi64x(0x8080808080800e0f,
                                             0x8080808080800607,
                                             0x8080808080800e0f,
                                             0x8080808080800607);
    __m256i payloads, ip_len, even, odd, heads, tails, good;

    payloads = _mm256_sub_epi64(_mm256_set_epi64x(dp_packet_size(packets[3]),
                                                  dp_packet_size(packets[2]),
                                                  dp_packet_size(packets[1]),
                                                  dp_packet_size(packets[0])),
                                eth_header);
    IPOIB_UNROLL
    for (size_t i = 0; i < 4; i++) {
        eths[i] = ipoib_pkt_data(packets[i]);
    }
    if (OVS_UNLIKELY(_mm256_movemask_pd(_mm256_castsi256_pd(
                         _mm256_cmpgt_epi64(payloads, least))) != 0xf)) {
        memset(keys, 0, 4 * sizeof *keys);
        return 0xf;             /* One is too short to be looked at. */
    }

    even = _mm256_set_m128i(ipoib_classify_load(eths[2]),
                            ipoib_classify_load(eths[0]));
    odd = _mm256_set_m128i(ipoib_classify_load(eths[3]),
                           ipoib_classify_load(eths[1]));
    heads = _mm256_unpacklo_epi64(even, odd);
    tails = _mm256_unpackhi_epi64(even, odd);

    _mm256_storeu_si256((void *) keys, _mm256_and_si256(heads, mac));
    ip_len = _mm256_shuffle_epi8(tails, length);
    _mm256_storeu_si256((void *) ip_lens, ip_len);

    good = _mm256_cmpeq_epi64(_mm256_and_si256(tails, type), ipv4);
    good = _mm256_and_si256(good, _mm256_cmpgt_epi64(ip_len, least));
    good = _mm256_andnot_si256(_mm256_cmpgt_epi64(ip_len, payloads), good);
    return _mm256_movemask_pd(_mm256_castsi256_pd(good)) ^ 0xf;
}
#endif

#endif /* ipoib-classify.h */
