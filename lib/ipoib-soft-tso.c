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
#include "ipoib-soft-private.h"

#include <errno.h>
#include <netinet/in.h>
#include "ipoib-packet.h"
#include "packets.h"
#include "unaligned.h"
#include "util.h"

/* TCP that the software HCA cuts into segments (IBV_WR_TSO), if its name has
 * "tso", as adapters do: the headers of the request are repeated in front of
 * each piece of the data, and what differs from segment to segment is written
 * to them.  Checksums are computed if the request asks for it.
 *
 * This is the device, against which the segments that are made in software are
 * held, and so shares no code with them but that for checksums. */

uint32_t
soft_max_tso(struct ibv_context *ctx)
{
    return soft_hca_cast(ctx)->name.tso ? SOFT_MAX_TSO : 0;
}

struct ibv_qp *
soft_create_tso_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp *qp;

    if (!soft_max_tso(pd->context)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    qp = soft_create_qp(pd, attr, true);
    if (qp) {
        soft_qp_cast(qp)->tso = true;
    }
    return qp;
}

bool
soft_tso_is_valid(const struct ibv_send_wr *wr)
{
    return (wr->tso.hdr && wr->tso.hdr_sz && wr->tso.mss
            && wr->tso.hdr_sz <= IPOIB_VERBS_TSO_HEADER
            && !(wr->send_flags & IBV_SEND_INLINE));
}

/* Where TCP begins in the headers, 0 if they are not such.  Options and
 * extension headers of IP are not known. */
static size_t
find_tcp(const uint8_t *h, size_t len, bool *v4)
{
    const size_t min4 = IPOIB_HEADER_LEN + IP_HEADER_LEN;
    const size_t min6 = IPOIB_HEADER_LEN + IPV6_HEADER_LEN;
    ovs_be16 type;
    size_t ofs;

    memcpy(&type, h, sizeof type);
    *v4 = type == htons(ETH_TYPE_IP);
    if (*v4 && len >= min4 && h[4] == 0x45 && h[4 + 9] == IPPROTO_TCP) {
        ofs = min4;
    } else if (type == htons(ETH_TYPE_IPV6) && len >= min6 && h[4] >> 4 == 6
               && h[4 + 6] == IPPROTO_TCP) {
        ofs = min6;
    } else {
        return 0;
    }
    return (len >= ofs + TCP_HEADER_LEN && ofs + (h[ofs + 12] >> 4) * 4 == len
            ? ofs : 0);
}

bool
soft_tso_init(struct soft_tso *tso, const struct soft_hca *hca,
              const struct ibv_send_wr *wr, const struct soft_packet *data,
              size_t mtu)
{
    tso->wr = wr;
    tso->data = data;
    tso->ofs = 0;
    tso->lies = hca->name.tso == SOFT_TSO_LIES;
    tso->complete = (wr->send_flags & IBV_SEND_IP_CSUM
                     && hca->name.csum != SOFT_CSUM_LIES_TX);
    tso->tcp_ofs = (wr->tso.hdr_sz > IPOIB_HEADER_LEN
                    ? find_tcp(wr->tso.hdr, wr->tso.hdr_sz, &tso->v4) : 0);
    return tso->tcp_ofs && (size_t) wr->tso.hdr_sz + wr->tso.mss <= mtu;
}

/* Copies 'n' bytes of the data, from 'ofs' on, to 'dst'. */
static void
copy_data(const struct soft_packet *data, size_t ofs, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < data->n_iov && n; i++) {
        const struct iovec *iov = &data->iov[i];

        if (ofs >= iov->iov_len) {
            ofs -= iov->iov_len;
        } else {
            size_t chunk = MIN(n, iov->iov_len - ofs);

            memcpy(dst, (const uint8_t *) iov->iov_base + ofs, chunk);
            dst += chunk;
            n -= chunk;
            ofs = 0;
        }
    }
}

static void
add_be16(uint8_t *p, uint16_t n)
{
    ovs_be16 *place = ALIGNED_CAST(ovs_be16 *, p);

    put_unaligned_be16(place, htons(ntohs(get_unaligned_be16(place)) + n));
}

bool
soft_tso_next(struct soft_tso *tso, struct soft_packet *p, uint8_t *buf)
{
    size_t hlen = tso->wr->tso.hdr_sz, left = tso->data->ud.payload_len
                                              - tso->ofs;
    size_t n = MIN(tso->wr->tso.mss, left);
    uint8_t *ip = buf + IPOIB_HEADER_LEN, *tcp = buf + tso->tcp_ofs;
    uint32_t seq;

    if (!n) {
        return false;
    }
    memcpy(buf, tso->wr->tso.hdr, hlen);
    copy_data(tso->data, tso->ofs, buf + hlen, n);

    if (tso->v4) {
        put_unaligned_be16(ALIGNED_CAST(ovs_be16 *, ip + 2),
                           htons(hlen - IPOIB_HEADER_LEN + n));
        add_be16(ip + 4, tso->ofs / tso->wr->tso.mss); /* Identification. */
    } else {
        put_unaligned_be16(ALIGNED_CAST(ovs_be16 *, ip + 4),
                           htons(hlen - IPOIB_HEADER_LEN - IPV6_HEADER_LEN
                                 + n));
    }
    if (!tso->lies) {
        seq = ntohl(get_unaligned_be32(ALIGNED_CAST(ovs_be32 *, tcp + 4)));
        put_unaligned_be32(ALIGNED_CAST(ovs_be32 *, tcp + 4),
                           htonl(seq + tso->ofs));
    }
    if (n < left) {
        tcp[13] &= ~(TCP_FIN | TCP_PSH);
    }
    if (tso->ofs) {
        tcp[13] &= ~TCP_CWR;
    }
    if (tso->complete) {
        soft_csum_complete_payload(buf, hlen + n);
    }

    tso->ofs += n;
    p->iov[0].iov_base = buf;
    p->iov[0].iov_len = p->ud.payload_len = hlen + n;
    p->n_iov = 1;
    return true;
}
