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
#include "fabric-forward.h"

#include <string.h>

#include "fabric-fault.h"
#include "fabric-groups.h"
#include "fabric-pcap.h"
#include "fabric-ports.h"
#include "fabric-switch.h"
#include "fabric-transport.h"
#include "openvswitch/vlog.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_forward);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

static void deliver(struct fabric *, struct fabric_port *,
                    const struct fabric_packet *);

/* Counts and logs a packet that is dropped at 'port'. */
static void
drop(struct fabric *fabric, struct fabric_port *port,
     enum fabric_counter reason, const struct fabric_packet *packet)
{
    fabric_count(fabric, port, reason);
    VLOG_DBG_RL(&rl, "port %016"PRIx64": %s: SLID %"PRIu16", DLID %"PRIu16
                ", destination QP %"PRIu32", %"PRIuSIZE" bytes",
                port->guid, fabric_counter_name(reason), packet->slid,
                packet->dlid, packet->dqpn, packet->payload);
}

/* Returns the length of the extended transport headers of 'opcode' (9.2.1),
 * which do not count for the MTU. */
static size_t
extended_headers_len(uint8_t opcode)
{
    static const uint8_t by_operation[32] = {
        [3] = 4, [5] = 4,           /* SEND with immediate data. */
        [6] = 16, [9] = 4, [10] = 16, [11] = 20, /* RDMA WRITE. */
        [12] = 16,                  /* RDMA READ request. */
        [13] = 4, [15] = 4, [16] = 4, [17] = 4, /* Responses. */
        [18] = 12, [19] = 28, [20] = 28, /* Atomic operations. */
        [22] = 4, [23] = 4,         /* SEND with invalidation. */
    };
    size_t len = by_operation[opcode & 0x1f];

    switch (opcode >> 5) {
    case 2:                         /* Reliable datagram. */
        return len + 12;
    case 3:                         /* Unreliable datagram. */
        return len + IB_DETH_LEN;
    case 5:                         /* Extended reliable connection. */
        return len + 4;
    default:
        return len;
    }
}

/* Takes the message of 'len' bytes at 'msg' apart as far as the fabric needs
 * to.  Returns false if it is no InfiniBand packet. */
static bool
parse_packet(const void *msg, size_t len, struct fabric_packet *packet)
{
    const uint8_t *p = (const uint8_t *) msg + sizeof(struct ib_soft_header);
    size_t n = len - sizeof(struct ib_soft_header);
    size_t headers = IB_LRH_LEN + IB_BTH_LEN;
    struct ib_lrh lrh;
    struct ib_bth bth;

    memset(packet, 0, sizeof *packet);
    packet->msg = msg;
    packet->len = len;
    if (n < headers + IB_CRC_LEN) {
        return false;
    }
    memcpy(&lrh, p, sizeof lrh);
    p += sizeof lrh;
    packet->slid = ntohs(lrh.slid);
    packet->dlid = ntohs(lrh.dlid);
    packet->sl = lrh.sl_lnh >> 4;
    if ((lrh.sl_lnh & 3) < IB_LNH_BTH
        || (ntohs(lrh.pktlen) & 0x7ff) * 4 + 2 != n) {
        return false;
    }
    if ((lrh.sl_lnh & 3) == IB_LNH_GRH) {
        struct ib_grh grh;

        headers += IB_GRH_LEN;
        if (n < headers + IB_CRC_LEN) {
            return false;
        }
        memcpy(&grh, p, sizeof grh);
        p += sizeof grh;
        packet->has_grh = true;
        packet->sgid = grh.sgid;
        packet->dgid = grh.dgid;
    }
    memcpy(&bth, p, sizeof bth);
    packet->opcode = bth.opcode;
    packet->dqpn = ntohl(get_16aligned_be32(&bth.dqpn)) & IB_QPN_MASK;

    headers += extended_headers_len(bth.opcode);
    headers += (bth.flags >> IB_BTH_PAD_SHIFT & 3) + IB_CRC_LEN;
    if (n < headers) {
        return false;
    }
    packet->payload = n - headers;
    if (bth.opcode >> 5 == IB_OPCODE_UD_SEND >> 5) {
        struct ib_deth deth;

        memcpy(&deth, p + sizeof bth, sizeof deth);
        packet->sqpn = ntohl(get_16aligned_be32(&deth.sqpn)) & IB_QPN_MASK;
    }
    return true;
}

/* Captures 'packet' if a capture runs.  UD packets with headers that
 * contradict each other stay out: a capture is to be read by others. */
static void
capture(struct fabric *fabric, const struct fabric_packet *packet)
{
    const uint8_t *p = packet->msg;
    size_t n = packet->len - sizeof(struct ib_soft_header);
    struct ib_ud ud;
    int error;

    if (!fabric->pcap) {
        return;
    }
    p += sizeof(struct ib_soft_header);
    if (packet->opcode >> 5 == IB_OPCODE_UD_SEND >> 5
        && ib_ud_parse(p, n, &ud)) {
        return;
    }
    error = fabric_pcap_write(fabric->pcap, p, n);
    if (error) {
        VLOG_ERR("%s: capture ends: %s", fabric_pcap_name(fabric->pcap),
                 ovs_strerror(error));
        fabric_pcap_close(fabric->pcap);
        fabric->pcap = NULL;
        fabric_count(fabric, NULL, FC_pcap_errors);
    }
}

/* Sends 'packet' to 'port', past all rules. */
static void
transmit(struct fabric *fabric, struct fabric_port *port,
         const struct fabric_packet *packet)
{
    fabric_count(fabric, port, FC_tx);
    fabric->counters[FC_tx_bytes] += packet->len;
    port->counters[FC_tx_bytes] += packet->len;
    if (!packet->transient) {
        fabric_transport_queue(fabric->transport, port->endpoint,
                               packet->msg, packet->len);
    } else if (fabric_transport_send(fabric->transport, port->endpoint,
                                     packet->msg, packet->len)) {
        fabric_count(fabric, port, FC_drop_send_failed);
    }
}

static bool
check_destination(struct fabric *fabric, struct fabric_port *port,
                  const struct fabric_packet *packet)
{
    if (!port->endpoint) {
        drop(fabric, port, FC_drop_no_lid, packet);
    } else if (port->state != FABRIC_PORT_ACTIVE) {
        drop(fabric, port, FC_drop_dst_not_active, packet);
    } else if (packet->payload > ib_mtu_bytes(port->mtu)) {
        drop(fabric, port, FC_drop_too_long, packet);
    } else {
        return true;
    }
    return false;
}

/* Delivers 'packet' to 'port' unless a rule or a fault forbids it. */
static void
deliver(struct fabric *fabric, struct fabric_port *port,
        const struct fabric_packet *packet)
{
    if (check_destination(fabric, port, packet)
        && !fabric_fault_apply(fabric, port, FABRIC_TO_PORT, packet,
                               fabric_forward_resume)) {
        transmit(fabric, port, packet);
    }
}

/* Delivers 'packet' to those who received by its MLID before the subnet
 * manager was restarted, and are not members of 'group' (or NULL) again yet.
 * Returns true if there are such. */
static bool
forward_by_routes(struct fabric *fabric, struct fabric_port *from,
                  const struct fabric_group *group,
                  const struct fabric_packet *packet)
{
    struct fabric_route *route;
    bool routed = false;

    HMAP_FOR_EACH_WITH_HASH (route, node, packet->dlid, &fabric->routes) {
        struct fabric_port *port = fabric_port_by_guid(fabric, route->guid);

        if (route->mlid == packet->dlid) {
            routed = true;
            if (port && port != from
                && !(group && (fabric_member_state(port, group)
                               & (IB_JOIN_FULL | IB_JOIN_NON)))) {
                deliver(fabric, port, packet);
            }
        }
    }
    return routed;
}

static void
forward_multicast(struct fabric *fabric, struct fabric_port *from,
                  const struct fabric_packet *packet)
{
    struct fabric_group *group = fabric_group_by_mlid(fabric, packet->dlid);
    bool routed = forward_by_routes(fabric, from, group, packet);
    struct fabric_member *member;

    if (!group) {
        if (!routed) {
            drop(fabric, from, FC_drop_no_group, packet);
        }
        return;
    }
    if (packet->payload > ib_mtu_bytes(group->mtu)) {
        drop(fabric, from, FC_drop_too_long, packet);
        return;
    }
    LIST_FOR_EACH (member, group_node, &group->members) {
        if (member->port != from
            && member->state & (IB_JOIN_FULL | IB_JOIN_NON)) {
            deliver(fabric, member->port, packet);
        }
    }
}

/* Returns the one of 'port' and those that share its LID to which the unicast
 * 'packet' goes: where they require a GRH, by the GID in it.  Returns NULL,
 * and counts it, if there is none. */
static struct fabric_port *
find_by_gid(struct fabric *fabric, struct fabric_port *from,
            struct fabric_port *port, const struct fabric_packet *packet)
{
    if (!port->grh_required) {
        return port;
    }
    if (!packet->has_grh) {
        drop(fabric, from, FC_drop_no_grh, packet);
        return NULL;
    }
    for (; port; port = port->lid_next) {
        struct ib_gid gid = fabric_port_gid(fabric, port);

        if (ib_gid_equals(&gid, &packet->dgid)) {
            return port;
        }
    }
    drop(fabric, from, FC_drop_no_gid, packet);
    return NULL;
}

/* Returns the port to which the unicast 'packet' goes.  Returns NULL, and
 * counts it, if there is none. */
static struct fabric_port *
find_destination(struct fabric *fabric, struct fabric_port *from,
                 const struct fabric_packet *packet)
{
    struct fabric_port *port = fabric_port_by_lid(fabric, packet->dlid);

    if (!port) {
        drop(fabric, from, FC_drop_no_lid, packet);
        return NULL;
    }
    return find_by_gid(fabric, from, port, packet);
}

/* What deliver_to() needs. */
struct delivery {
    struct fabric *fabric;
    const struct fabric_packet *packet;
};

static void
deliver_to(struct fabric_lport *lport, void *delivery_)
{
    const struct delivery *delivery = delivery_;

    if (lport->node->hca) {
        deliver(delivery->fabric, lport->node->hca, delivery->packet);
    }
}

/* Forwards 'packet' as an external manager has set the switches' tables. */
static void
forward_by_tables(struct fabric *fabric, struct fabric_port *from,
                  const struct fabric_packet *packet)
{
    struct fabric_lport *to;

    if (packet->dlid >= IB_LID_MULTICAST) {
        struct delivery delivery = { .fabric = fabric, .packet = packet };

        if (!fabric_route_multicast(fabric->topology, from->lport,
                                    packet->dlid, deliver_to, &delivery)) {
            drop(fabric, from, FC_drop_no_group, packet);
        }
        return;
    }
    to = fabric_route(fabric->topology, from->lport, packet->dlid);
    if (to && to->node->sm_host) {
        fabric->sm_input(fabric, from, packet);
    } else if (to && to->node->hca) {
        struct fabric_port *port = find_by_gid(fabric, from, to->node->hca,
                                               packet);

        if (port) {
            deliver(fabric, port, packet);
        }
    } else {
        drop(fabric, from, FC_drop_no_lid, packet);
    }
}

/* Forwards 'packet', which came from 'from' and obeys the rules for what
 * comes. */
static void
forward(struct fabric *fabric, struct fabric_port *from,
        const struct fabric_packet *packet)
{
    if (!packet->dqpn) {
        drop(fabric, from, FC_drop_qp0, packet);
    } else if (packet->dlid == IB_LID_PERMISSIVE) {
        drop(fabric, from, FC_drop_permissive_lid, packet);
    } else if (fabric->topology) {
        forward_by_tables(fabric, from, packet);
    } else if (packet->dlid >= IB_LID_MULTICAST) {
        forward_multicast(fabric, from, packet);
    } else {
        struct fabric_port *to = find_destination(fabric, from, packet);

        if (to == fabric->sm) {
            fabric->sm_input(fabric, from, packet);
        } else if (to) {
            deliver(fabric, to, packet);
        }
    }
}

/* Lets 'packet', which a fault held back, go on. */
void
fabric_forward_resume(struct fabric *fabric, struct fabric_port *port,
                      enum fabric_dir dir, const struct fabric_packet *packet)
{
    if (dir == FABRIC_FROM_PORT) {
        forward(fabric, port, packet);
    } else if (check_destination(fabric, port, packet)) {
        transmit(fabric, port, packet);
    }
}

/* Handles the PACKET message of 'len' bytes at 'msg' from 'from'. */
void
fabric_forward_input(struct fabric *fabric, struct fabric_port *from,
                     const void *msg, size_t len)
{
    struct fabric_packet packet;

    fabric_count(fabric, from, FC_rx);
    fabric->counters[FC_rx_bytes] += len;
    from->counters[FC_rx_bytes] += len;
    if (!parse_packet(msg, len, &packet)) {
        drop(fabric, from, FC_drop_malformed, &packet);
        return;
    }
    capture(fabric, &packet);
    if (from->state != FABRIC_PORT_ACTIVE) {
        drop(fabric, from, FC_drop_src_not_active, &packet);
    } else if (!fabric_port_has_lid(from, packet.slid)) {
        drop(fabric, from, FC_drop_bad_slid, &packet);
    } else if (from->grh_required && !packet.has_grh) {
        drop(fabric, from, FC_drop_no_grh, &packet);
    } else if (!fabric_fault_apply(fabric, from, FABRIC_FROM_PORT, &packet,
                                   fabric_forward_resume)) {
        forward(fabric, from, &packet);
    }
}

/* Sends 'mad' from the subnet manager to 'peer', in the way in which the
 * peer's request came. */
void
fabric_forward_from_sm(struct fabric *fabric, const struct fabric_peer *peer,
                       const struct ib_sa_mad *mad)
{
    uint8_t msg[sizeof(struct ib_soft_header) + IB_UD_HEADER_MAX + IB_MAD_LEN
                + IB_UD_TRAILER_MAX];
    uint8_t trailer[IB_UD_TRAILER_MAX];
    struct ib_soft_header header = {
        .magic = htons(IB_SOFT_MAGIC),
        .version = IB_SOFT_VERSION,
        .type = IB_SOFT_PACKET,
    };
    struct ib_ud ud = {
        .slid = fabric->sm_carry ? peer->sm_lid : fabric->sm->lid,
        .dlid = peer->lid,
        .sl = peer->sl,
        .opcode = IB_OPCODE_UD_SEND,
        .has_grh = peer->has_grh,
        .pkey = peer->pkey | IB_PKEY_FULL,
        .dqpn = peer->qpn,
        .sqpn = IB_QPN_GSI,
        .psn = fabric->sm_psn++,
        .qkey = IB_QKEY_GSI,
        .payload = mad,
        .payload_len = IB_MAD_LEN,
    };
    size_t trailer_len, n = sizeof header;
    struct fabric_packet packet;

    if (peer->has_grh) {
        put_16aligned_be32(&ud.grh.vtf, htonl(6u << 28));
        ud.grh.nxthdr = IB_GRH_NXTHDR;
        ud.grh.hoplimit = 1;
        ud.grh.sgid = fabric_port_gid(fabric, fabric->sm);
        ud.grh.dgid = peer->gid;
    }
    memcpy(msg, &header, sizeof header);
    n += ib_ud_compose(&ud, msg + n, trailer, &trailer_len);
    memcpy(msg + n, mad, IB_MAD_LEN);
    n += IB_MAD_LEN;
    memcpy(msg + n, trailer, trailer_len);
    n += trailer_len;

    ovs_assert(parse_packet(msg, n, &packet));
    packet.transient = true;
    capture(fabric, &packet);
    deliver(fabric, peer->port, &packet);
}
