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
#include "ipoib-wire.h"

#include <string.h>

#include "openvswitch/dynamic-string.h"

/* LRH.PktLen has 11 bits; the 5 above them are reserved. */
#define LRH_PKTLEN_MASK 0x7ff

struct ib_gid
ib_gid_make(uint64_t prefix, uint64_t guid)
{
    struct ib_gid gid;
    ovs_be64 prefix_be = htonll(prefix);
    ovs_be64 guid_be = htonll(guid);

    memcpy(gid.raw, &prefix_be, sizeof prefix_be);
    memcpy(gid.raw + 8, &guid_be, sizeof guid_be);
    return gid;
}

uint64_t
ib_gid_prefix(const struct ib_gid *gid)
{
    ovs_be64 x;

    memcpy(&x, gid->raw, sizeof x);
    return ntohll(x);
}

uint64_t
ib_gid_guid(const struct ib_gid *gid)
{
    ovs_be64 x;

    memcpy(&x, gid->raw + 8, sizeof x);
    return ntohll(x);
}

bool
ib_gid_equals(const struct ib_gid *a, const struct ib_gid *b)
{
    return !memcmp(a->raw, b->raw, IB_GID_LEN);
}

void
ib_gid_format(const struct ib_gid *gid, struct ds *ds)
{
    for (int i = 0; i < IB_GID_LEN; i += 2) {
        ds_put_format(ds, "%s%02x%02x", i ? ":" : "",
                      gid->raw[i], gid->raw[i + 1]);
    }
}

/* Checks the GRH at 'grh' of a packet in which 'paylen' bytes lie between the
 * GRH and the VCRC.  Returns NULL or what is wrong. */
static const char *
ib_grh_check(const struct ib_grh *grh, size_t paylen)
{
    if (ntohl(get_16aligned_be32(&grh->vtf)) >> 28 != 6) {
        return "GRH version is not 6";
    }
    if (grh->nxthdr != IB_GRH_NXTHDR) {
        return "GRH next header is not InfiniBand transport";
    }
    if (ntohs(grh->paylen) != paylen) {
        return "GRH payload length contradicts packet length";
    }
    return NULL;
}

/* Parses the LRH and, if there is one, the GRH of the packet from '*pp' to
 * 'end', its ICRC, into '*ud', and advances '*pp' past them. */
static const char *
ib_parse_link(const uint8_t **pp, const uint8_t *end, struct ib_ud *ud)
{
    size_t len = end - *pp + IB_CRC_LEN;
    struct ib_lrh lrh;

    memcpy(&lrh, *pp, sizeof lrh);
    *pp += sizeof lrh;
    if (lrh.vl_lver & 0xf) {
        return "LRH link version is not 0";
    }
    if ((ntohs(lrh.pktlen) & LRH_PKTLEN_MASK) * 4 + 2 != len) {
        return "LRH packet length contradicts packet length";
    }
    ud->slid = ntohs(lrh.slid);
    ud->dlid = ntohs(lrh.dlid);
    ud->sl = lrh.sl_lnh >> 4;

    switch (lrh.sl_lnh & 3) {
    case IB_LNH_BTH:
        return NULL;
    case IB_LNH_GRH:
        if (end - *pp < IB_GRH_LEN + IB_BTH_LEN) {
            return "packet too short for GRH";
        }
        memcpy(&ud->grh, *pp, sizeof ud->grh);
        *pp += sizeof ud->grh;
        ud->has_grh = true;
        return ib_grh_check(&ud->grh, end + IB_ICRC_LEN - *pp);
    default:
        return "LRH next header is neither BTH nor GRH";
    }
}

/* Parses the BTH and the DETH, as ib_parse_link() does.  Stores the length of
 * the padding in '*pad'. */
static const char *
ib_parse_transport(const uint8_t **pp, const uint8_t *end, struct ib_ud *ud,
                   size_t *pad)
{
    struct ib_deth deth;
    struct ib_bth bth;

    memcpy(&bth, *pp, sizeof bth);
    *pp += sizeof bth;
    if (bth.opcode != IB_OPCODE_UD_SEND
        && bth.opcode != IB_OPCODE_UD_SEND_IMM) {
        return "opcode is not UD";
    }
    if (bth.flags & 0xf) {
        return "BTH transport version is not 0";
    }
    ud->opcode = bth.opcode;
    ud->solicited = (bth.flags & IB_BTH_SOLICITED) != 0;
    ud->pkey = ntohs(bth.pkey);
    ud->dqpn = ntohl(get_16aligned_be32(&bth.dqpn)) & IB_QPN_MASK;
    ud->psn = ntohl(get_16aligned_be32(&bth.psn)) & 0xffffff;
    *pad = bth.flags >> IB_BTH_PAD_SHIFT & 3;

    if (end - *pp < IB_DETH_LEN) {
        return "packet too short for DETH";
    }
    memcpy(&deth, *pp, sizeof deth);
    *pp += sizeof deth;
    ud->qkey = ntohl(get_16aligned_be32(&deth.qkey));
    ud->sqpn = ntohl(get_16aligned_be32(&deth.sqpn)) & IB_QPN_MASK;

    if (ud->opcode == IB_OPCODE_UD_SEND_IMM) {
        if (end - *pp < IB_IMM_LEN) {
            return "packet too short for immediate data";
        }
        memcpy(&ud->imm, *pp, sizeof ud->imm);
        *pp += sizeof ud->imm;
    }
    return NULL;
}

const char *
ib_ud_parse(const void *data, size_t len, struct ib_ud *ud)
{
    const uint8_t *p = data;
    const uint8_t *end;
    const char *error;
    size_t pad = 0;

    memset(ud, 0, sizeof *ud);
    if (len < IB_LRH_LEN + IB_BTH_LEN + IB_CRC_LEN) {
        return "packet too short";
    }
    end = p + len - IB_CRC_LEN;

    error = ib_parse_link(&p, end, ud);
    if (!error) {
        error = ib_parse_transport(&p, end, ud, &pad);
    }
    if (error) {
        return error;
    }
    if (end - p < pad) {
        return "packet shorter than its padding";
    }
    ud->payload = p;
    ud->payload_len = end - p - pad;
    return NULL;
}

size_t
ib_ud_compose(const struct ib_ud *ud, void *hdr, void *trailer,
              size_t *trailer_len)
{
    bool imm = ud->opcode == IB_OPCODE_UD_SEND_IMM;
    size_t pad = -ud->payload_len & 3;
    size_t body = IB_BTH_LEN + IB_DETH_LEN + (imm ? IB_IMM_LEN : 0)
                  + ud->payload_len + pad + IB_ICRC_LEN;
    size_t total = IB_LRH_LEN + (ud->has_grh ? IB_GRH_LEN : 0) + body;
    uint8_t *p = hdr;

    struct ib_lrh lrh = {
        .sl_lnh = ud->sl << 4 | (ud->has_grh ? IB_LNH_GRH : IB_LNH_BTH),
        .dlid = htons(ud->dlid),
        .pktlen = htons(total / 4 & LRH_PKTLEN_MASK),
        .slid = htons(ud->slid),
    };
    memcpy(p, &lrh, sizeof lrh);
    p += sizeof lrh;

    if (ud->has_grh) {
        struct ib_grh grh = ud->grh;

        grh.paylen = htons(body);
        memcpy(p, &grh, sizeof grh);
        p += sizeof grh;
    }

    struct ib_bth bth = {
        .opcode = ud->opcode,
        .flags = ((ud->solicited ? IB_BTH_SOLICITED : 0) | IB_BTH_MIGREQ
                  | pad << IB_BTH_PAD_SHIFT),
        .pkey = htons(ud->pkey),
    };
    put_16aligned_be32(&bth.dqpn, htonl(ud->dqpn & IB_QPN_MASK));
    put_16aligned_be32(&bth.psn, htonl(ud->psn & 0xffffff));
    memcpy(p, &bth, sizeof bth);
    p += sizeof bth;

    struct ib_deth deth;
    put_16aligned_be32(&deth.qkey, htonl(ud->qkey));
    put_16aligned_be32(&deth.sqpn, htonl(ud->sqpn & IB_QPN_MASK));
    memcpy(p, &deth, sizeof deth);
    p += sizeof deth;

    if (imm) {
        memcpy(p, &ud->imm, sizeof ud->imm);
        p += sizeof ud->imm;
    }

    *trailer_len = pad + IB_CRC_LEN;
    memset(trailer, 0, *trailer_len);
    return p - (uint8_t *) hdr;
}

const char *
ib_sa_status_to_string(uint16_t status)
{
    switch (status) {
    case 0: return "ok";
    case IB_MAD_STATUS_BUSY: return "busy";
    case IB_MAD_STATUS_BAD_VERSION: return "unsupported class version";
    case IB_MAD_STATUS_BAD_METHOD: return "unsupported method";
    case IB_MAD_STATUS_BAD_ATTR: return "unsupported method or attribute";
    case IB_SA_NO_RESOURCES: return "no resources";
    case IB_SA_REQ_INVALID: return "invalid request";
    case IB_SA_NO_RECORDS: return "no records";
    case IB_SA_TOO_MANY_RECORDS: return "too many records";
    case IB_SA_REQ_INVALID_GID: return "invalid GID";
    case IB_SA_INSUFFICIENT_COMPS: return "insufficient components";
    case IB_SA_REQ_DENIED: return "denied";
    default: return "unknown status";
    }
}
