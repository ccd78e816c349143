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
#include "fabric-switch.h"

#include <stdlib.h>
#include <string.h>

#include "fabric.h"
#include "openvswitch/dynamic-string.h"
#include "util.h"

#define PORT_NEXT FABRIC_SWITCH_PORTS
#define PORT_PREVIOUS (FABRIC_SWITCH_PORTS - 1)
#define N_CA_PORTS (FABRIC_SWITCH_PORTS - 2)
BUILD_ASSERT_DECL(FABRIC_SWITCH_PORTS < 64);

#define SWITCH_GUID UINT64_C(0x024f5653ffff1000)

/* Ports. */

static ovs_be32
capabilities(const struct fabric_node *node)
{
    uint32_t caps = (FABRIC_CAP_TRAP | FABRIC_CAP_SYSTEM_IMAGE_GUID
                     | FABRIC_CAP_EXTENDED_SPEEDS
                     | FABRIC_CAP_CAP_MASK_NOTICE
                     | FABRIC_CAP_OTHER_LOCAL_CHANGES);

    if (node->type == FABRIC_NODE_CA) {
        caps |= FABRIC_CAP_CLIENT_REREGISTER;
    }
    return htonl(caps);
}

/* Sets the PortInfo of 'lport' to what a port has after it was switched on. */
static void
reset_info(struct fabric_lport *lport, const struct fabric_link_config *links,
           uint8_t mtu_cap)
{
    struct fabric_port_info *info = &lport->info;
    uint8_t ext = links->speed >> 4;    /* FDR, EDR, HDR, NDR. */
    uint8_t base = ext ? 4 : links->speed;

    memset(info, 0, sizeof *info);
    info->prefix[0] = htonl(IB_GID_PREFIX_DEFAULT >> 32);
    info->cap_mask = capabilities(lport->node);
    info->local_port = lport->num;
    info->width_enabled = info->width_supported = links->width | 1;
    info->width_active = links->width;
    info->speed_state = (base * 2 - 1) << 4;
    info->phys_default = 2;
    info->speed = base << 4 | (base * 2 - 1);
    info->mtu_sm_sl = mtu_cap << 4;
    info->vl_init = 1 << 4;     /* VL0 only. */
    info->vl_arb_high = info->vl_arb_low = 8;
    info->init_mtu = mtu_cap;
    info->vls_enforce = 1 << 4;
    info->guid_cap = lport->node->type == FABRIC_NODE_CA || !lport->num;
    info->rereg_timeout = 18;
    info->resp_time = 16;
    info->speed_ext = ext << 4 | (ext ? ext * 2 - 1 : 0);
    info->speed_ext_enabled = ext ? ext * 2 - 1 : 0;
    memset(lport->pkeys, 0, sizeof lport->pkeys);
    lport->pkeys[0] = htons(IB_PKEY_DEFAULT);
}

uint16_t
fabric_lport_lid(const struct fabric_lport *lport)
{
    return ntohs(lport->info.lid);
}

uint8_t
fabric_lport_lmc(const struct fabric_lport *lport)
{
    return lport->info.mkey_lmc & 7;
}

/* Returns the port of 'node' that has its LIDs. */
struct fabric_lport *
fabric_node_lid_port(const struct fabric_node *node)
{
    return &node->ports[node->type == FABRIC_NODE_SWITCH ? 0 : 1];
}

bool
fabric_lport_has_lid(const struct fabric_lport *lport, uint16_t lid)
{
    return (lport->info.lid
            && !((fabric_lport_lid(lport) ^ lid) >> fabric_lport_lmc(lport)));
}

/* Links. */

bool
fabric_link_is_up(const struct fabric_lport *lport)
{
    return lport->peer && lport->state != FABRIC_PORT_DOWN;
}

/* Sets the states of one end of a link. */
static void
set_end(struct fabric_lport *lport, uint8_t state)
{
    bool was_up = lport->state != FABRIC_PORT_DOWN;

    lport->state = state;
    lport->phys_state = (state != FABRIC_PORT_DOWN ? FABRIC_PHYS_LINK_UP
                         : lport->disabled ? FABRIC_PHYS_DISABLED
                         : FABRIC_PHYS_POLLING);
    if (lport->node->type == FABRIC_NODE_SWITCH
        && (was_up != (state != FABRIC_PORT_DOWN)
            || state == FABRIC_PORT_INIT)) {
        lport->node->port_change = true;
        lport->node->trap_at = 0;
    }
}

/* Lets the link of 'lport' come up anew, if nothing holds it down. */
void
fabric_link_retrain(struct fabric_lport *lport)
{
    struct fabric_lport *peer = lport->peer;
    uint8_t state = (peer && !lport->disabled && !peer->disabled
                     ? FABRIC_PORT_INIT : FABRIC_PORT_DOWN);

    set_end(lport, state);
    if (peer) {
        set_end(peer, state);
    }
}

/* Takes the link of 'lport' down, or lets it come up. */
void
fabric_link_set(struct fabric_lport *lport, bool up)
{
    if (up == lport->disabled || up != fabric_link_is_up(lport)) {
        lport->disabled = !up;
        fabric_link_retrain(lport);
    }
}

static void
connect_ports(struct fabric_lport *a, struct fabric_lport *b)
{
    a->peer = b;
    b->peer = a;
    fabric_link_retrain(a);
}

/* Nodes. */

static struct fabric_node *
node_create(struct fabric_topology *topology, enum fabric_node_type type,
            uint64_t guid, uint64_t port_guid, uint8_t n_ports,
            uint8_t mtu_cap)
{
    struct fabric_node *node = xzalloc(sizeof *node);

    node->type = type;
    node->guid = guid;
    node->port_guid = port_guid;
    node->n_ports = n_ports;
    node->ports = xcalloc(n_ports + 1, sizeof *node->ports);
    for (int i = 0; i <= n_ports; i++) {
        struct fabric_lport *lport = &node->ports[i];

        lport->node = node;
        lport->num = i;
        lport->state = FABRIC_PORT_DOWN;
        lport->phys_state = FABRIC_PHYS_POLLING;
        lport->sl2vl = xcalloc(n_ports + 1, sizeof *lport->sl2vl);
        reset_info(lport, &topology->links, mtu_cap);
    }
    ovs_list_push_back(&topology->nodes, &node->list_node);
    return node;
}

static void
node_destroy(struct fabric_node *node)
{
    for (int i = 0; i <= node->n_ports; i++) {
        free(node->ports[i].sl2vl);
    }
    ovs_list_remove(&node->list_node);
    free(node->ports);
    free(node->lft);
    free(node->mft);
    free(node);
}

static struct fabric_node *
switch_create(struct fabric_topology *topology, int index)
{
    struct fabric_node *node;

    node = node_create(topology, FABRIC_NODE_SWITCH, SWITCH_GUID + index,
                       SWITCH_GUID + index, FABRIC_SWITCH_PORTS,
                       topology->links.mtu);
    node->index = index;
    snprintf(node->description, sizeof node->description,
             "ovs-ipoib-fabric switch %d", index + 1);
    node->lft = xmalloc(IB_LID_MULTICAST);
    memset(node->lft, UINT8_MAX, IB_LID_MULTICAST);
    node->mft = xcalloc(FABRIC_MFT_ENTRIES, sizeof *node->mft);

    /* Port 0 is the switch itself. */
    node->ports[0].state = FABRIC_PORT_ACTIVE;
    node->ports[0].phys_state = FABRIC_PHYS_LINK_UP;
    return node;
}

struct fabric_topology *
fabric_topology_create(int n_switches, const struct fabric_link_config *links)
{
    struct fabric_topology *topology = xzalloc(sizeof *topology);

    topology->links = *links;
    ovs_list_init(&topology->nodes);
    topology->n_switches = n_switches;
    topology->switches = xcalloc(n_switches, sizeof *topology->switches);
    for (int i = 0; i < n_switches; i++) {
        topology->switches[i] = switch_create(topology, i);
        if (i) {
            connect_ports(&topology->switches[i - 1]->ports[PORT_NEXT],
                          &topology->switches[i]->ports[PORT_PREVIOUS]);
        }
    }
    return topology;
}

void
fabric_topology_destroy(struct fabric_topology *topology)
{
    if (topology) {
        struct fabric_node *node;

        LIST_FOR_EACH_SAFE (node, list_node, &topology->nodes) {
            node_destroy(node);
        }
        free(topology->switches);
        free(topology);
    }
}

static struct fabric_lport *
free_port(const struct fabric_node *sw, int *n_free)
{
    struct fabric_lport *found = NULL;

    *n_free = 0;
    for (int i = N_CA_PORTS; i > 0; i--) {
        if (!sw->ports[i].peer) {
            found = &sw->ports[i];
            ++*n_free;
        }
    }
    return found;
}

/* Returns the lowest free port of switch 'index' or, if that is negative, of
 * the switch that has most; or NULL. */
static struct fabric_lport *
choose_port(const struct fabric_topology *topology, int index)
{
    struct fabric_lport *best = NULL;
    int best_free = 0;

    for (int i = 0; i < topology->n_switches; i++) {
        int n_free;
        struct fabric_lport *lport = free_port(topology->switches[i],
                                               &n_free);

        if ((index < 0 || i == index) && n_free > best_free) {
            best = lport;
            best_free = n_free;
        }
    }
    return best;
}

static bool
node_guid_is_taken(const struct fabric_topology *topology, uint64_t guid)
{
    const struct fabric_node *node;

    LIST_FOR_EACH (node, list_node, &topology->nodes) {
        if (node->guid == guid) {
            return true;
        }
    }
    return false;
}

/* Plugs a CA with one port into a free port of switch 'sw', or, if that is
 * negative, of any.  A node GUID that is 0 or not the only one, which a
 * manager would not put up with, is replaced.  Returns the CA's port, or NULL
 * if all ports of switches are in use. */
struct fabric_lport *
fabric_plug(struct fabric_topology *topology, uint64_t guid,
            uint64_t port_guid, uint8_t max_mtu, const char description[64],
            int sw)
{
    struct fabric_lport *far = choose_port(topology, sw);
    struct fabric_node *node;

    if (!far) {
        return NULL;
    }
    if (!guid || node_guid_is_taken(topology, guid)) {
        for (guid = port_guid; node_guid_is_taken(topology, guid); guid++) {
            continue;
        }
    }
    node = node_create(topology, FABRIC_NODE_CA, guid, port_guid, 1,
                       MIN(max_mtu, topology->links.mtu));
    memcpy(node->description, description, sizeof node->description);
    connect_ports(&node->ports[1], far);
    return &node->ports[1];
}

/* Takes the CA of 'lport' away. */
void
fabric_unplug(struct fabric_lport *lport)
{
    struct fabric_lport *far = lport->peer;

    far->peer = NULL;
    far->disabled = false;
    fabric_link_retrain(far);
    node_destroy(lport->node);
}

/* Routing. */

/* Returns the port to which the switches' tables bring a packet for 'dlid'
 * that leaves the CA (or, for port 0, the switch) of 'from', or NULL. */
struct fabric_lport *
fabric_route(const struct fabric_topology *topology,
             struct fabric_lport *from, uint16_t dlid)
{
    struct fabric_node *sw = from->node;

    if (!dlid || dlid >= IB_LID_MULTICAST) {
        return NULL;
    }
    if (sw->type == FABRIC_NODE_CA) {
        if (fabric_lport_has_lid(from, dlid)) {
            return from;
        } else if (!fabric_link_is_up(from)) {
            return NULL;
        }
        sw = from->peer->node;
    }
    for (int hops = 0; hops <= topology->n_switches; hops++) {
        uint8_t out = sw->lft[dlid];
        struct fabric_lport *lport;

        if (!out) {
            return fabric_lport_has_lid(&sw->ports[0], dlid) ? &sw->ports[0]
                   : NULL;
        } else if (out > sw->n_ports) {
            return NULL;
        }
        lport = &sw->ports[out];
        if (!fabric_link_is_up(lport)) {
            return NULL;
        }
        lport = lport->peer;
        if (lport->node->type == FABRIC_NODE_CA) {
            return fabric_lport_has_lid(lport, dlid) ? lport : NULL;
        }
        sw = lport->node;
    }
    return NULL;
}

static void
route_multicast(struct fabric_lport *in, unsigned int index, int hops,
                fabric_multicast_cb *cb, void *aux)
{
    uint64_t mask = in->node->mft[index];

    for (int i = 1; i <= in->node->n_ports; i++) {
        struct fabric_lport *lport = &in->node->ports[i];

        if (!(mask >> i & 1) || lport == in || !fabric_link_is_up(lport)) {
            continue;
        }
        if (lport->peer->node->type == FABRIC_NODE_CA) {
            cb(lport->peer, aux);
        } else if (hops) {
            route_multicast(lport->peer, index, hops - 1, cb, aux);
        }
    }
}

/* Calls 'cb' for the port of each CA to which the switches' tables bring a
 * packet for 'mlid' that leaves the CA of 'from'.  Returns false if the first
 * switch knows nobody to whom it goes. */
bool
fabric_route_multicast(const struct fabric_topology *topology,
                       struct fabric_lport *from, uint16_t mlid,
                       fabric_multicast_cb *cb, void *aux)
{
    unsigned int index = mlid - IB_LID_MULTICAST;
    struct fabric_lport *in = from->peer;

    if (index >= FABRIC_MFT_ENTRIES || !fabric_link_is_up(from)
        || !(in->node->mft[index] & ~(UINT64_C(1) << in->num))) {
        return false;
    }
    route_multicast(in, index, topology->n_switches, cb, aux);
    return true;
}
