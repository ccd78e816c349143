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

#include "csum.h"
#include "ipoib-packet.h"
#include "packets.h"
#include "util.h"

/* "soft:loop?source" and "soft:loop?sink": a port that behaves as if a fabric
 * full of neighbours were behind it, for measurements.
 *
 * The neighbours are N IPoIB nodes, numbered from 0:
 *
 *   IP address     src + number
 *   GUID           MODEL_GUID + number (the subnet's administrator tells the
 *                  path)
 *   QPN            MODEL_QPN + number
 *   LID            MODEL_LID + number modulo MODEL_N_LIDS
 *
 * They answer ARP requests.  What else is sent to them is checked, completed
 * and counted ("sink"), without a copy, as a device takes a packet by DMA.
 *
 * With "source", polling a completion queue that is empty and has no channel
 * finds UDP packets from them in turn, as many as there are receives: the
 * model writes the headers and the completion, but no payload, as if a device
 * had done it.  Packets come to the queue pairs that have announced an IP
 * address by ARP, and have that as their destination; as long as there is
 * none, to the first one, for address "dst".  Now and then the next neighbour
 * announces itself by a gratuitous ARP, each one soon after the start. */

#define MODEL_LID    0x1000
#define MODEL_N_LIDS 0xa000
#define MODEL_QPN    0x400000
#define MODEL_GUID   UINT64_C(0x0200000100000000)
#define ANNOUNCE_EVERY 256      /* Polls, once all were announced. */

/* Headers of a packet: IPoIB, IPv4 without options, UDP. */
struct model_headers {
    struct ipoib_header ipoib;
    struct ip_header ip;
    struct udp_header udp;
};
BUILD_ASSERT_DECL(sizeof(struct model_headers) == 32);

struct soft_model {
    struct soft_model_params params;
    struct model_headers headers; /* Without addresses and checksum. */
    uint32_t csum;              /* Of the IP header so far. */
};

struct soft_model *
soft_model_create(const struct soft_model_params *params)
{
    struct soft_model *m = xzalloc(sizeof *m);
    size_t ip_len = params->size;

    m->params = *params;
    m->headers.ipoib.type = htons(ETH_TYPE_IP);
    m->headers.ip.ip_ihl_ver = IP_IHL_VER(5, 4);
    m->headers.ip.ip_tot_len = htons(ip_len);
    m->headers.ip.ip_ttl = 64;
    m->headers.ip.ip_proto = IPPROTO_UDP;
    m->headers.udp.udp_src = htons(7);
    m->headers.udp.udp_dst = htons(9);
    m->headers.udp.udp_len = htons(ip_len - sizeof m->headers.ip);
    m->csum = csum_continue(0, &m->headers.ip, sizeof m->headers.ip);
    return m;
}

static uint16_t
model_lid(uint32_t i)
{
    return MODEL_LID + i % MODEL_N_LIDS;
}

static ovs_be32
model_ip(const struct soft_model *m, uint32_t i)
{
    return htonl(ntohl(m->params.src) + i);
}

static struct ib_gid
model_gid(uint32_t i)
{
    return ib_gid_make(IB_GID_PREFIX_DEFAULT, MODEL_GUID + i);
}

bool
soft_model_find_gid(const struct soft_model *m, const struct ib_gid *gid,
                    uint16_t *lid)
{
    uint64_t i = ib_gid_guid(gid) - MODEL_GUID;

    if (i >= m->params.neighbours
        || ib_gid_prefix(gid) != IB_GID_PREFIX_DEFAULT) {
        return false;
    }
    *lid = model_lid(i);
    return true;
}

bool
soft_model_has_lid(uint16_t lid)
{
    return lid >= MODEL_LID && lid < MODEL_LID + MODEL_N_LIDS;
}

/* ARP. */

/* Sends an ARP packet of neighbour 'i' to the queue pair of 'tha' in 'hca',
 * with the P_Key and Q_Key of 'like'. */
static void
send_arp(struct soft_hca *hca, const struct soft_port *port, uint32_t i,
         uint16_t op, const struct ipoib_addr *tha, ovs_be32 tpa,
         const struct soft_packet *like)
{
    struct {
        struct ipoib_header ipoib;
        struct ipoib_arp arp;
    } m = { .ipoib.type = htons(ETH_TYPE_ARP) };
    struct ib_gid gid = model_gid(i);
    struct soft_packet p = {
        .ud = {
            .slid = model_lid(i), .dlid = port->lid,
            .opcode = IB_OPCODE_UD_SEND, .sqpn = MODEL_QPN + i,
            .dqpn = ipoib_addr_qpn(tha), .pkey = like->ud.pkey,
            .qkey = like->ud.qkey, .payload_len = sizeof m,
        },
        .n_iov = 1, .iov[0] = { .iov_base = &m, .iov_len = sizeof m },
    };

    m.arp.htype = htons(IPOIB_ARP_HTYPE);
    m.arp.ptype = htons(ETH_TYPE_IP);
    m.arp.hlen = IPOIB_ADDR_LEN;
    m.arp.plen = 4;
    m.arp.op = htons(op);
    m.arp.sha = ipoib_addr_make(MODEL_QPN + i, &gid);
    put_16aligned_be32(&m.arp.spa, model_ip(hca->model, i));
    m.arp.tha = *tha;
    put_16aligned_be32(&m.arp.tpa, tpa);
    soft_deliver(hca, &p);
}

/* An ARP packet that 'hca' sent: learns the address that it announces, and
 * answers for a neighbour. */
static void
handle_arp(struct soft_hca *hca, const struct soft_port *port,
           const struct soft_packet *p, const struct ipoib_arp *arp)
{
    const struct soft_model *m = hca->model;
    ovs_be32 spa = get_16aligned_be32(&arp->spa);
    uint32_t i = ntohl(get_16aligned_be32(&arp->tpa)) - ntohl(m->params.src);
    struct soft_qp *qp = soft_qp_find(hca, ipoib_addr_qpn(&arp->sha));

    if (qp && spa) {
        atomic_store_relaxed(&qp->model_ip, (OVS_FORCE uint32_t) spa);
    }
    if (arp->op == htons(ARP_OP_REQUEST) && i < m->params.neighbours) {
        send_arp(hca, port, i, ARP_OP_REPLY, &arp->sha, spa, p);
    }
}

/* Takes the packet 'p', sent to a neighbour or to a group, by a queue pair of
 * 'hca' whose 'sq_mutex' the caller holds. */
void
soft_model_sink(struct soft_hca *hca, const struct soft_port *port,
                const struct soft_packet *p)
{
    struct {
        struct ipoib_header ipoib;
        struct ipoib_arp arp;
    } buf;
    const struct ipoib_header *h;
    size_t len = 0;

    /* The usual packet is one piece. */
    h = (p->n_iov && p->iov[0].iov_len >= sizeof *h
         ? ALIGNED_CAST(const struct ipoib_header *, p->iov[0].iov_base)
         : NULL);
    if (!h || p->ud.payload_len < sizeof *h) {
        soft_count(hca, SOFT_C_SINK_BAD, 1);
        return;
    }
    if (h->type != htons(ETH_TYPE_ARP)) {
        if (h->type == htons(ETH_TYPE_IP) || h->type == htons(ETH_TYPE_IPV6)) {
            p->sender->n_sink++;
        } else {
            soft_count(hca, SOFT_C_SINK_BAD, 1);
        }
        return;
    }
    for (size_t i = 0; i < p->n_iov && len < sizeof buf; i++) {
        size_t n = MIN(p->iov[i].iov_len, sizeof buf - len);

        memcpy((uint8_t *) &buf + len, p->iov[i].iov_base, n);
        len += n;
    }
    if (len == sizeof buf && ipoib_arp_parse(&buf.arp, sizeof buf.arp)) {
        handle_arp(hca, port, p, &buf.arp);
    } else {
        soft_count(hca, SOFT_C_SINK_BAD, 1);
    }
}

/* Source. */

/* The queue pair that the next packets are for. */
static struct soft_qp *
next_qp(struct soft_cq *cq, ovs_be32 *ip)
{
    const struct soft_group_qps *qps = ovsrcu_get(struct soft_group_qps *,
                                                  &cq->source_qps);

    if (!qps || !qps->n) {
        return NULL;
    }
    for (size_t i = 0; i < qps->n; i++) {
        struct soft_qp *qp = qps->qps[cq->source_qp++ % qps->n];
        uint32_t addr;

        atomic_read_relaxed(&qp->model_ip, &addr);
        if (addr) {
            *ip = (OVS_FORCE ovs_be32) addr;
            return qp;
        }
    }
    *ip = 0;
    return qps->qps[0];
}

/* Announces the next neighbour to 'qp'. */
static void
announce(struct soft_hca *hca, const struct soft_port *port,
         struct soft_cq *cq, struct soft_qp *qp)
{
    uint32_t n = hca->model->params.neighbours;
    struct ipoib_addr self = ipoib_addr_make(qp->qp.qp_num, &port->gid);
    struct soft_packet like = {
        .ud = { .pkey = port->pkeys[qp->pkey_index] | IB_PKEY_FULL,
                .qkey = qp->qkey },
    };
    uint32_t i = cq->announced % n;

    if (cq->announced < n || !(cq->source_polls++ % ANNOUNCE_EVERY)) {
        cq->announced = cq->announced + 1 == 2 * n ? n : cq->announced + 1;
        send_arp(hca, port, i, ARP_OP_REQUEST, &self,
                 model_ip(hca->model, i), &like);
    }
}

/* Writes one packet to the receive 'e', and its completion to '*wc'.  Returns
 * false if it does not fit there. */
static bool
source_packet(struct soft_hca *hca, const struct soft_port *port,
              struct soft_cq *cq, struct soft_qp *qp, ovs_be32 dst,
              const struct soft_rwqe *e, struct ibv_wc *wc)
    OVS_REQUIRES(qp->mutex)
{
    const struct soft_model *m = hca->model;
    uint32_t i = cq->source_next;
    size_t len = IB_GRH_LEN + IPOIB_HEADER_LEN + m->params.size;
    struct model_headers h = m->headers;
    ovs_be32 src = model_ip(m, i);

    if (!e->num_sge
        || e->sge[0].length < IB_GRH_LEN + sizeof h
        || (e->sge[0].length < len && e->num_sge < 2)
        || !soft_mr_check(hca, qp->qp.pd, &e->sge[0],
                          IBV_ACCESS_LOCAL_WRITE)) {
        return false;
    }
    cq->source_next = i + 1 == m->params.neighbours ? 0 : i + 1;
    put_16aligned_be32(&h.ip.ip_src, src);
    put_16aligned_be32(&h.ip.ip_dst, dst);
    h.ip.ip_csum = csum_finish(csum_add32(csum_add32(m->csum, src), dst));
    memcpy((uint8_t *) (uintptr_t) e->sge[0].addr + IB_GRH_LEN, &h, sizeof h);
    *wc = (struct ibv_wc) {
        .wr_id = e->wr_id, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV,
        .byte_len = len, .qp_num = qp->qp.qp_num, .src_qp = MODEL_QPN + i,
        .pkey_index = qp->pkey_index, .slid = model_lid(i),
    };
    if (m->params.grh) {
        struct ib_grh grh = {
            .paylen = htons(IB_BTH_LEN + IB_DETH_LEN + IPOIB_HEADER_LEN
                            + ROUND_UP(m->params.size, 4) + IB_ICRC_LEN),
            .nxthdr = IB_GRH_NXTHDR, .sgid = model_gid(i), .dgid = port->gid,
        };

        put_16aligned_be32(&grh.vtf, htonl(6u << 28));
        memcpy((void *) (uintptr_t) e->sge[0].addr, &grh, sizeof grh);
        wc->wc_flags = IBV_WC_GRH;
    }
    return true;
}

/* Up to 'max' packets, while 'rq' has receives. */
static int
source_burst(struct soft_hca *hca, const struct soft_port *port,
             struct soft_cq *cq, struct soft_qp *qp, struct soft_rq *rq,
             ovs_be32 dst, int max, struct ibv_wc *wc)
    OVS_REQUIRES(qp->mutex)
{
    int n = 0;

    while (n < max && rq->n) {
        if (!source_packet(hca, port, cq, qp, dst, soft_rq_peek(rq),
                           &wc[n])) {
            soft_count(hca, SOFT_C_RX_TOO_LONG, 1);
            break;
        }
        soft_rq_pop(rq);
        n++;
    }
    return n;
}

/* Makes up to 'max' packets for the user of 'cq', which is empty. */
int
soft_model_poll(struct soft_hca *hca, struct soft_cq *cq, int max,
                struct ibv_wc *wc)
{
    const struct soft_port *port = soft_port_get(hca);
    struct soft_srq *srq;
    bool reached = false;
    ovs_be32 dst = 0;
    struct soft_qp *qp = next_qp(cq, &dst);
    int n = 0;

    if (!qp) {
        return 0;
    }
    announce(hca, port, cq, qp);
    srq = qp->qp.srq ? soft_srq_cast(qp->qp.srq) : NULL;
    dst = dst ? dst : hca->model->params.dst;

    ovs_mutex_lock(&qp->mutex);
    if (soft_qp_state(qp) == IBV_QPS_RTS) {
        if (srq) {
            ovs_mutex_lock(&srq->mutex);
            n = source_burst(hca, port, cq, qp, &srq->rq, dst, max, wc);
            if (srq->rq.n < srq->limit) {
                srq->limit = 0;
                reached = true;
            }
            ovs_mutex_unlock(&srq->mutex);
        } else {
            n = source_burst(hca, port, cq, qp, &qp->rq, dst, max, wc);
        }
        qp->n_rx += n;
    }
    ovs_mutex_unlock(&qp->mutex);

    if (reached) {
        soft_event_raise(hca, IBV_EVENT_SRQ_LIMIT_REACHED, qp->qp.srq);
    }
    if (n) {
        soft_count(hca, SOFT_C_SOURCE_PACKETS, n);
    }
    return n;
}

/* Tells 'cq' the queue pairs that receive by it.  (Those that are not in RTS
 * are sorted out when packets are made.) */
void
soft_model_update_cq(struct soft_hca *hca, struct soft_cq *cq)
{
    struct soft_group_qps *old, *new;
    struct soft_qp *qp;
    size_t n = 0;

    if (!hca->model || !hca->model->params.source || cq->cq.channel) {
        return;
    }
    LIST_FOR_EACH (qp, node, &hca->qp_list) {
        n += qp->qp.recv_cq == &cq->cq;
    }
    new = xmalloc(sizeof *new + n * sizeof new->qps[0]);
    new->n = 0;
    LIST_FOR_EACH (qp, node, &hca->qp_list) {
        if (qp->qp.recv_cq == &cq->cq) {
            new->qps[new->n++] = qp;
        }
    }
    old = ovsrcu_get_protected(struct soft_group_qps *, &cq->source_qps);
    ovsrcu_set(&cq->source_qps, new);
    if (old) {
        ovsrcu_postpone(free, old);
    }
}
