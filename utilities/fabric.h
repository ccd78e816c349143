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

#ifndef FABRIC_H
#define FABRIC_H 1

/* The software fabric: types that its parts share.
 *
 * From the lowest layer to the highest:
 *
 *     fabric-pcap, fabric-transport   bytes in and out
 *     fabric-ibsim                    the same, for an external manager
 *     fabric-switch, fabric-sma       the nodes that such a manager sees
 *     fabric-ports, fabric-groups     who is there
 *     fabric-fault                    loss, delay and so on, on request
 *     fabric-forward                  from port to port
 *     fabric-rmpp, fabric-inform      what the subnet administrator (SA) sends
 *     fabric-sa                       its answers
 *     fabric-opensm                   its answers, from an external manager
 *     fabric-commands                 ovs-appctl
 *
 * What has to go up goes by the callbacks of struct fabric. */

#include <stdbool.h>
#include <stdint.h>
#include "heap.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "openvswitch/token-bucket.h"
#include "ipoib-wire.h"

struct fabric_endpoint;
struct fabric_lport;
struct fabric_opensm;
struct fabric_packet;
struct fabric_peer;
struct fabric_pcap;
struct fabric_port;
struct fabric_topology;
struct fabric_transport;
struct ib_sa_mad;

/* Counters: of the fabric and, for those that concern one, of each port. */
#define FABRIC_COUNTERS                                                 \
    /* Packets. */                                                      \
    FABRIC_COUNTER(rx)              /* Came from a port. */             \
    FABRIC_COUNTER(tx)              /* Went to a port. */               \
    FABRIC_COUNTER(rx_bytes)                                            \
    FABRIC_COUNTER(tx_bytes)                                            \
    /* Messages dropped. */                                             \
    FABRIC_COUNTER(drop_bad_message)  /* Short; magic; version. */      \
    FABRIC_COUNTER(drop_bad_attach)                                     \
    FABRIC_COUNTER(drop_attach_refused) /* No LID left; SM's GUID. */   \
    FABRIC_COUNTER(drop_unknown_type)                                   \
    FABRIC_COUNTER(drop_unattached) /* Not an ATTACH, and no port. */   \
    /* Packets dropped. */                                              \
    FABRIC_COUNTER(drop_malformed)                                      \
    FABRIC_COUNTER(drop_src_not_active)                                 \
    FABRIC_COUNTER(drop_bad_slid)                                       \
    FABRIC_COUNTER(drop_no_grh)     /* Where the port requires one. */  \
    FABRIC_COUNTER(drop_qp0)                                            \
    FABRIC_COUNTER(drop_permissive_lid)                                 \
    FABRIC_COUNTER(drop_no_lid)                                         \
    FABRIC_COUNTER(drop_no_gid)     /* Several ports at the LID. */     \
    FABRIC_COUNTER(drop_no_group)                                       \
    FABRIC_COUNTER(drop_dst_not_active)                                 \
    FABRIC_COUNTER(drop_too_long)   /* For the MTU. */                  \
    FABRIC_COUNTER(drop_send_failed) /* Socket buffer full. */          \
    FABRIC_COUNTER(drop_not_sa)     /* To the SM, but no SA request. */ \
    /* External subnet manager. */                                      \
    FABRIC_COUNTER(sm_smps)         /* Answered for nodes. */           \
    FABRIC_COUNTER(sm_traps)                                            \
    FABRIC_COUNTER(sm_undeliverable) /* Sent back to the sender. */     \
    FABRIC_COUNTER(sm_overflow)     /* It does not read. */             \
    /* Faults on request. */                                            \
    FABRIC_COUNTER(fault_lost)                                          \
    FABRIC_COUNTER(fault_duplicated)                                    \
    FABRIC_COUNTER(fault_delayed)                                       \
    FABRIC_COUNTER(fault_reordered)                                     \
    FABRIC_COUNTER(fault_overflow)  /* Too many packets held. */        \
    /* Subnet administrator. */                                         \
    FABRIC_COUNTER(sa_requests)                                         \
    FABRIC_COUNTER(sa_answers)      /* With status 0. */                \
    FABRIC_COUNTER(sa_refusals)     /* With another status. */          \
    FABRIC_COUNTER(sa_down)         /* Ignored: the SM is down. */      \
    FABRIC_COUNTER(sa_faults)       /* Ignored or refused on request. */ \
    FABRIC_COUNTER(sa_rate_limited)                                     \
    FABRIC_COUNTER(sa_reports)                                          \
    FABRIC_COUNTER(sa_report_retries)                                   \
    FABRIC_COUNTER(sa_report_timeouts)                                  \
    FABRIC_COUNTER(sa_report_overflow)                                  \
    FABRIC_COUNTER(rmpp_tables)                                         \
    FABRIC_COUNTER(rmpp_retries)                                        \
    FABRIC_COUNTER(rmpp_aborts)                                         \
    FABRIC_COUNTER(rmpp_unexpected) /* ACK and so on without a table. */ \
    FABRIC_COUNTER(pcap_errors)

enum fabric_counter {
#define FABRIC_COUNTER(NAME) FC_##NAME,
    FABRIC_COUNTERS
#undef FABRIC_COUNTER
    FABRIC_N_COUNTERS
};

const char *fabric_counter_name(enum fabric_counter);

struct fabric_config {
    uint8_t mtu;                /* Enumeration, of links and groups. */
    uint8_t rate;               /* Enumeration, of links. */
    uint8_t group_rate;         /* Enumeration, of broadcast groups. */
    uint8_t width, speed;       /* Of links, in agreement with 'rate'. */
    uint8_t sl;
    uint16_t more_sls;          /* Bits: granted to who asks for them. */
    uint8_t lmc;                /* Of new ports. */
    uint8_t timeout;            /* Subnet timeout and packet lifetime. */
    uint32_t qkey;              /* Of broadcast groups. */
    uint64_t prefix;            /* GID prefix. */
    uint16_t pkeys[IB_SOFT_MAX_PKEYS]; /* Of new ports. */
    size_t n_pkeys;
};

#define FABRIC_N_LIDS IB_LID_MULTICAST
#define FABRIC_N_MLIDS (IB_LID_PERMISSIVE - IB_LID_MULTICAST)
#define FABRIC_SM_GUID UINT64_C(0x024f5653ffff0001)

struct fabric {
    struct fabric_config cfg;
    struct fabric_transport *transport;
    struct fabric_pcap *pcap;

    /* An external subnet manager, and what it sees; or NULL. */
    struct fabric_opensm *opensm;
    struct fabric_topology *topology;

    /* fabric-ports. */
    struct hmap ports;          /* By GUID, also those that went away. */
    size_t n_attached;
    struct fabric_port *sm;     /* The subnet manager's own; without LID
                                 * table entry if it is an external one. */
    uint64_t next_made_up;      /* GUID of the next made-up port. */
    struct fabric_port *lids[FABRIC_N_LIDS]; /* First of a chain. */
    uint16_t next_lid;          /* Where to look for a free one. */
    struct ovs_list pending;    /* Ports whose PORT could not be sent yet. */
    long long int next_expiry;

    /* fabric-groups. */
    struct hmap groups;         /* By MGID. */
    struct fabric_group *mlids[FABRIC_N_MLIDS];
    unsigned int next_mlid;     /* No lower one is free. */
    uint32_t next_mgid;         /* Of MGIDs that the SA assigns. */
    struct hmap routes;         /* Of struct fabric_route, by MLID. */
    long long int routes_until; /* When they are forgotten. */

    /* fabric-fault. */
    struct ovs_list faults;
    struct ovs_list sa_faults;
    unsigned int next_fault_id;
    struct heap delayed;
    uint32_t delay_seq;

    /* fabric-forward, fabric-rmpp, fabric-inform. */
    uint32_t sm_psn;
    struct hmap tables;
    struct ovs_list table_timers;
    size_t table_bytes;
    struct hmap subscriptions;
    struct hmap reports;
    struct ovs_list report_timers;
    uint64_t report_tid;

    /* fabric-sa. */
    struct token_bucket sa_bucket;
    struct ovs_list sa_waiting; /* Requests that are too many at a time. */
    size_t n_sa_waiting;
    unsigned int sa_rate;       /* Answers a second; 0: no limit. */
    long long int sm_down_until; /* LLONG_MIN: the SM is up. */

    uint64_t counters[FABRIC_N_COUNTERS];

    /* A trap for those who asked for it. */
    void (*notify)(struct fabric *, uint16_t trap, const struct ib_gid *);
    /* A port went away, or down. */
    void (*port_lost)(struct fabric *, struct fabric_port *);
    /* A packet for the subnet manager. */
    void (*sm_input)(struct fabric *, struct fabric_port *,
                     const struct fabric_packet *);
    /* A management datagram for an external subnet manager, or NULL. */
    void (*sm_carry)(struct fabric *, const struct fabric_peer *,
                     const struct ib_sa_mad *);
};

/* Directions of a packet, as the port sees it. */
enum fabric_dir {
    FABRIC_FROM_PORT,
    FABRIC_TO_PORT,
    FABRIC_N_DIRS
};

#define FABRIC_PORT_DOWN   1
#define FABRIC_PORT_INIT   2
#define FABRIC_PORT_ARMED  3
#define FABRIC_PORT_ACTIVE 4

struct fabric_port {
    struct hmap_node guid_node; /* In 'ports' of struct fabric. */
    uint64_t guid;
    uint64_t node_guid;
    char description[64];       /* Not terminated if it fills the field. */
    struct fabric_endpoint *endpoint; /* NULL: went away, or the SM's. */
    struct fabric_lport *lport; /* What an external manager sees of it. */
    bool made_up;               /* In the subnet manager's mind only. */
    long long int gone_at;      /* If 'endpoint' is NULL. */

    uint16_t lid;
    uint8_t lmc;
    bool grh_required;
    struct fabric_port *lid_next; /* Another port of the same LID. */
    uint8_t state;              /* FABRIC_PORT_*. */
    uint8_t max_mtu;            /* Of the HCA. */
    uint8_t mtu_limit;          /* Of the fabric, for this port. */
    uint8_t mtu;                /* The smaller of the two. */
    uint16_t pkeys[IB_SOFT_MAX_PKEYS];
    size_t n_pkeys;
    int reregister;             /* So many PORTs more bear the flag. */
    bool told_grh;              /* A PORTCAP with the bit was sent. */
    uint8_t told[IB_SOFT_PORT_LEN + 2 * IB_SOFT_MAX_PKEYS]; /* Last PORT,
                                 * less the flags. */
    struct ovs_list pending_node; /* In 'pending' of struct fabric. */
    bool is_pending;

    struct hmap members;        /* Of struct fabric_member, by group. */
    size_t n_subscriptions;
    size_t n_tables;
    struct fabric_delayed *held[FABRIC_N_DIRS]; /* To be overtaken. */

    uint64_t counters[FABRIC_N_COUNTERS];
};

/* A message with a packet, on its way through the fabric. */
struct fabric_packet {
    const void *msg;            /* From the message header on. */
    size_t len;
    bool transient;             /* 'msg' does not outlive the call. */

    uint16_t slid, dlid;
    uint8_t sl;
    bool has_grh;
    struct ib_gid sgid, dgid;   /* If 'has_grh'. */
    uint8_t opcode;
    uint32_t dqpn;
    uint32_t sqpn;              /* Of unreliable datagrams, else 0. */
    size_t payload;             /* Bytes that count for the MTU. */
};

/* True if 'packet' is a management datagram: to QP 1, or from it, as what the
 * SA answers to one who asks from another QP. */
static inline bool
fabric_packet_is_mad(const struct fabric_packet *packet)
{
    return packet->opcode >> 5 == IB_OPCODE_UD_SEND >> 5
           && (packet->dqpn == IB_QPN_GSI || packet->sqpn == IB_QPN_GSI);
}

static inline void
fabric_count(struct fabric *fabric, struct fabric_port *port,
             enum fabric_counter counter)
{
    fabric->counters[counter]++;
    if (port) {
        port->counters[counter]++;
    }
}

#endif /* fabric.h */
