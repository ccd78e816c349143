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

#ifndef FABRIC_SWITCH_H
#define FABRIC_SWITCH_H 1

/* The nodes that an external subnet manager sees: switches in a line, and the
 * channel adapters (CAs) on their ports, with what the manager set in them;
 * and the way of a packet through the switches' tables.
 *
 * Each switch has FABRIC_SWITCH_PORTS ports.  The last two lead to the next
 * and to the previous switch of the line; the others take CAs. */

#include <stdbool.h>
#include <stdint.h>
#include "openvswitch/list.h"
#include "ipoib-wire.h"

struct fabric_port;

#define FABRIC_SWITCH_PORTS 62
#define FABRIC_SWITCHES_MAX 64
#define FABRIC_MFT_ENTRIES 4096 /* Multicast LIDs of a switch. */

#define FABRIC_PHYS_POLLING  2
#define FABRIC_PHYS_DISABLED 3
#define FABRIC_PHYS_LINK_UP  5

/* PortInfo (14.2.5.6), as far as the fabric looks at it. */
struct fabric_port_info {
    ovs_be32 mkey[2];
    ovs_be32 prefix[2];
    ovs_be16 lid;
    ovs_be16 sm_lid;
    ovs_be32 cap_mask;
    ovs_be16 diag_code;
    ovs_be16 mkey_lease;
    uint8_t local_port;
    uint8_t width_enabled, width_supported, width_active;
    uint8_t speed_state;        /* LinkSpeedSupported (4), PortState (4). */
    uint8_t phys_default;       /* Physical state (4), default state (4). */
    uint8_t mkey_lmc;           /* M_Key protection (2), ..., LMC (3). */
    uint8_t speed;              /* LinkSpeedActive (4), Enabled (4). */
    uint8_t mtu_sm_sl;          /* NeighborMTU (4), MasterSMSL (4). */
    uint8_t vl_init;            /* VLCap (4), InitType (4). */
    uint8_t vl_high_limit, vl_arb_high, vl_arb_low;
    uint8_t init_mtu;           /* InitTypeReply (4), MTUCap (4). */
    uint8_t stall_hoq;
    uint8_t vls_enforce;        /* OperationalVLs (4), enforcement (4). */
    ovs_be16 violations[3];
    uint8_t guid_cap;
    uint8_t rereg_timeout;      /* ClientReregister (1), ..., timeout (5). */
    uint8_t resp_time;
    uint8_t errors;
    ovs_be16 max_credit_hint;
    uint8_t latency[4];
    ovs_be16 cap_mask2;
    uint8_t speed_ext;          /* LinkSpeedExtActive (4), Supported (4). */
    uint8_t speed_ext_enabled;  /* Low 5 bits. */
};
BUILD_ASSERT_DECL(sizeof(struct fabric_port_info) == 64);

#define FABRIC_CAP_IS_SM                (1u << 1)
#define FABRIC_CAP_TRAP                 (1u << 3)
#define FABRIC_CAP_SYSTEM_IMAGE_GUID    (1u << 11)
#define FABRIC_CAP_EXTENDED_SPEEDS      (1u << 14)
#define FABRIC_CAP_CAP_MASK_NOTICE      (1u << 22)
#define FABRIC_CAP_CLIENT_REREGISTER    (1u << 25)
#define FABRIC_CAP_OTHER_LOCAL_CHANGES  (1u << 26)

#define FABRIC_SL2VL_LEN 8
#define FABRIC_VL_ARB_BLOCKS 4
#define FABRIC_SMP_DATA_LEN 64

/* A physical port: that of a CA, or one of a switch. */
struct fabric_lport {
    struct fabric_node *node;
    uint8_t num;
    struct fabric_lport *peer;  /* The cable's other end, or NULL. */
    bool disabled;              /* By the manager, or by a command. */

    uint8_t state;              /* FABRIC_PORT_*. */
    uint8_t phys_state;         /* FABRIC_PHYS_*. */
    struct fabric_port_info info; /* But for the states. */
    ovs_be16 pkeys[IB_SOFT_MAX_PKEYS];
    uint8_t vl_arb[FABRIC_VL_ARB_BLOCKS][FABRIC_SMP_DATA_LEN];
    uint8_t (*sl2vl)[FABRIC_SL2VL_LEN]; /* By input port. */
};

enum fabric_node_type {
    FABRIC_NODE_CA = 1,
    FABRIC_NODE_SWITCH = 2,
};

struct fabric_node {
    struct ovs_list list_node;  /* In 'nodes' of struct fabric_topology. */
    enum fabric_node_type type;
    uint64_t guid;
    uint64_t port_guid;
    char description[FABRIC_SMP_DATA_LEN]; /* Not always terminated. */
    uint8_t n_ports;
    struct fabric_lport *ports; /* 0 to 'n_ports'; a CA has only port 1. */

    struct fabric_port *hca;    /* The attached HCA, or NULL. */
    const char *sm_host;        /* Where subnet managers may run, or NULL. */

    /* Switches. */
    int index;
    uint8_t *lft;               /* Port, by LID; UINT8_MAX: none. */
    uint64_t *mft;              /* Set of ports, by MLID. */
    uint16_t lft_top, mft_top;
    uint8_t life_time;
    bool port_change;           /* A link went up or down. */

    /* For traps. */
    bool changed;               /* Something else about the node did. */
    long long int trap_at;      /* Not again before that. */
    unsigned int n_traps;       /* Since the manager has looked. */
};

/* What all links have in common. */
struct fabric_link_config {
    uint8_t mtu;                /* Enumeration. */
    uint8_t width;              /* Enumeration. */
    uint8_t speed;              /* Enumeration: 1 ... 128. */
};

struct fabric_topology {
    struct fabric_link_config links;
    struct ovs_list nodes;
    struct fabric_node **switches;
    int n_switches;
};

struct fabric_topology *fabric_topology_create(
    int n_switches, const struct fabric_link_config *);
void fabric_topology_destroy(struct fabric_topology *);

struct fabric_lport *fabric_plug(struct fabric_topology *, uint64_t guid,
                                 uint64_t port_guid, uint8_t max_mtu,
                                 const char description[64], int sw);
void fabric_unplug(struct fabric_lport *);
void fabric_link_set(struct fabric_lport *, bool up);
void fabric_link_retrain(struct fabric_lport *);
bool fabric_link_is_up(const struct fabric_lport *);

uint16_t fabric_lport_lid(const struct fabric_lport *);
uint8_t fabric_lport_lmc(const struct fabric_lport *);
bool fabric_lport_has_lid(const struct fabric_lport *, uint16_t lid);
struct fabric_lport *fabric_node_lid_port(const struct fabric_node *);

struct fabric_lport *fabric_route(const struct fabric_topology *,
                                  struct fabric_lport *from, uint16_t dlid);
typedef void fabric_multicast_cb(struct fabric_lport *, void *aux);
bool fabric_route_multicast(const struct fabric_topology *,
                            struct fabric_lport *from, uint16_t mlid,
                            fabric_multicast_cb *, void *aux);

#endif /* fabric-switch.h */
