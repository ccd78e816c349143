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
#include "fabric-ports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric-switch.h"
#include "fabric-transport.h"
#include "hash.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_ports);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(60, 60);

/* A port that went away keeps its LID for so long. */
#define PORT_MEMORY_MS (300 * 1000)
/* A PORT that a full socket buffer held up is tried again after so long. */
#define PENDING_RETRY_MS 5
/* PORTs that bear the reregister flag, where one can be lost. */
#define UDP_REREGISTERS 3
/* GUID of the first made-up port. */
#define FIRST_MADE_UP UINT64_C(0x024f5653fffe0001)

static void lid_table_remove(struct fabric *, struct fabric_port *);
static bool lid_table_add(struct fabric *, struct fabric_port *);

static struct fabric_port *
port_create(struct fabric *fabric, uint64_t guid)
{
    struct fabric_port *port = xzalloc(sizeof *port);

    port->guid = guid;
    port->state = FABRIC_PORT_ACTIVE;
    port->mtu_limit = fabric->cfg.mtu;
    port->mtu = fabric->cfg.mtu;
    memcpy(port->pkeys, fabric->cfg.pkeys, sizeof port->pkeys);
    port->n_pkeys = fabric->cfg.n_pkeys;
    hmap_init(&port->members);
    hmap_insert(&fabric->ports, &port->guid_node, hash_uint64(guid));
    return port;
}

static void
port_destroy(struct fabric *fabric, struct fabric_port *port)
{
    if (!fabric->topology) {
        lid_table_remove(fabric, port);
    }
    if (port->is_pending) {
        ovs_list_remove(&port->pending_node);
    }
    hmap_remove(&fabric->ports, &port->guid_node);
    hmap_destroy(&port->members);
    free(port);
}

/* Initializes the table of ports, with the subnet manager's own in it.  'cfg'
 * must be set. */
void
fabric_ports_init(struct fabric *fabric)
{
    static const char name[] = "ovs-ipoib-fabric";
    struct fabric_port *sm;

    hmap_init(&fabric->ports);
    ovs_list_init(&fabric->pending);
    fabric->next_lid = 2;
    fabric->next_expiry = LLONG_MIN;

    sm = port_create(fabric, FABRIC_SM_GUID);
    sm->node_guid = FABRIC_SM_GUID - 1;
    sm->max_mtu = 5;
    memcpy(sm->description, name, sizeof name);
    if (!fabric->topology) {
        sm->lid = 1;
        ovs_assert(lid_table_add(fabric, sm));
    }
    fabric->sm = sm;
    fabric->next_made_up = FIRST_MADE_UP;
}

void
fabric_ports_destroy(struct fabric *fabric)
{
    struct fabric_port *port;

    HMAP_FOR_EACH_SAFE (port, guid_node, &fabric->ports) {
        port_destroy(fabric, port);
    }
    hmap_destroy(&fabric->ports);
}

/* True if the port takes part in the fabric. */
bool
fabric_port_is_present(const struct fabric_port *port)
{
    return port->endpoint || port->made_up || port->guid == FABRIC_SM_GUID;
}

/* LIDs. */

bool
fabric_port_has_lid(const struct fabric_port *port, uint16_t lid)
{
    return !((port->lid ^ lid) >> port->lmc);
}

static void
lid_table_set(struct fabric *fabric, const struct fabric_port *port,
              struct fabric_port *head)
{
    for (int i = 0; i < 1 << port->lmc; i++) {
        fabric->lids[port->lid + i] = head;
    }
}

static void
lid_table_remove(struct fabric *fabric, struct fabric_port *port)
{
    struct fabric_port **p;

    if (!port->lid) {
        return;
    }
    p = &fabric->lids[port->lid];
    if (*p == port) {
        lid_table_set(fabric, port, port->lid_next);
    } else {
        for (; *p && *p != port; p = &(*p)->lid_next) {
            continue;
        }
        if (*p) {
            *p = port->lid_next;
        }
    }
    port->lid_next = NULL;
    port->lid = 0;
}

/* True if the 2^lmc LIDs from 'lid' on are LIDs and nobody else's.  Ports that
 * require a GRH may share. */
static bool
lid_table_is_free(const struct fabric *fabric, const struct fabric_port *port,
                  uint32_t lid, uint8_t lmc)
{
    if (!lid || lid & ((1 << lmc) - 1)
        || lid + (1 << lmc) > IB_LID_MULTICAST) {
        return false;
    }
    for (int i = 0; i < 1 << lmc; i++) {
        const struct fabric_port *p = fabric->lids[lid + i];

        for (; p; p = p->lid_next) {
            if (p != port && !(p->grh_required && port->grh_required
                               && p->lid == lid && p->lmc == lmc)) {
                return false;
            }
        }
    }
    return true;
}

/* Enters 'port' under its LID and LMC, if they are free. */
static bool
lid_table_add(struct fabric *fabric, struct fabric_port *port)
{
    if (!lid_table_is_free(fabric, port, port->lid, port->lmc)) {
        return false;
    }
    port->lid_next = fabric->lids[port->lid];
    lid_table_set(fabric, port, port);
    return true;
}

/* Gives 'port' a LID that nobody has, or has had of late. */
static bool
assign_lid(struct fabric *fabric, struct fabric_port *port, uint8_t lmc)
{
    uint32_t step = 1 << lmc;
    uint32_t lid = ROUND_UP(fabric->next_lid, step);

    for (uint32_t tried = 0; tried < FABRIC_N_LIDS; tried += step) {
        if (lid + step > IB_LID_MULTICAST) {
            lid = step;
        }
        if (lid_table_is_free(fabric, port, lid, lmc)) {
            port->lid = lid;
            port->lmc = lmc;
            fabric->next_lid = lid + step;
            return lid_table_add(fabric, port);
        }
        lid += step;
    }
    return false;
}

/* Changes the LID and LMC of 'port'.  Who must know is the caller's affair.
 * Returns NULL or an error, which the caller must free. */
char *
fabric_port_set_lid(struct fabric *fabric, struct fabric_port *port,
                    uint16_t lid, uint8_t lmc)
{
    if (lmc > 7) {
        return xasprintf("LMC %"PRIu8" is not 0 to 7", lmc);
    }
    if (!lid || lid + (1 << lmc) > IB_LID_MULTICAST) {
        return xasprintf("LID %"PRIu16" is not 1 to %d", lid,
                         IB_LID_MULTICAST - (1 << lmc));
    }
    if (lid & ((1 << lmc) - 1)) {
        return xasprintf("LID %"PRIu16" is not a multiple of 2^LMC (%d)", lid,
                         1 << lmc);
    }
    if (!lid_table_is_free(fabric, port, lid, lmc)) {
        return xasprintf("LID %"PRIu16" belongs to another port", lid);
    }
    lid_table_remove(fabric, port);
    port->lid = lid;
    port->lmc = lmc;
    ovs_assert(lid_table_add(fabric, port));
    return NULL;
}

/* What the fabric tells a port. */

static void
set_pending(struct fabric *fabric, struct fabric_port *port, bool pending)
{
    if (pending != port->is_pending) {
        port->is_pending = pending;
        if (pending) {
            ovs_list_push_back(&fabric->pending, &port->pending_node);
        } else {
            ovs_list_remove(&port->pending_node);
        }
    }
}

/* A PORT message. */
union port_msg {
    struct ib_soft_port msg;
    uint8_t bytes[IB_SOFT_PORT_LEN + 2 * IB_SOFT_MAX_PKEYS + 2];
};

/* Composes what 'port' is to be told, less the flags.  Returns its length. */
static size_t
compose_port(const struct fabric *fabric, const struct fabric_port *port,
             union port_msg *u)
{
    struct ib_soft_port *msg = &u->msg;

    memset(u, 0, sizeof *u);
    msg->h.magic = htons(IB_SOFT_MAGIC);
    msg->h.version = IB_SOFT_VERSION;
    msg->h.type = IB_SOFT_PORT;
    msg->state = port->state;
    msg->lmc = port->lmc;
    msg->lid = htons(port->lid);
    msg->sm_lid = htons(fabric->sm->lid);
    msg->sm_sl = fabric->cfg.sl;
    msg->subnet_timeout = fabric->cfg.timeout;
    msg->gid_prefix[0] = htonl(fabric->cfg.prefix >> 32);
    msg->gid_prefix[1] = htonl(fabric->cfg.prefix);
    msg->active_mtu = port->mtu;
    msg->active_width = fabric->cfg.width;
    msg->active_speed = fabric->cfg.speed;
    if (port->lport) {
        const struct fabric_port_info *info = &port->lport->info;

        msg->sm_lid = info->sm_lid;
        msg->sm_sl = info->mtu_sm_sl & 0xf;
        msg->subnet_timeout = info->rereg_timeout & 0x1f;
        memcpy(msg->gid_prefix, info->prefix, sizeof msg->gid_prefix);
    }
    msg->n_pkeys = htons(port->n_pkeys);
    for (size_t i = 0; i < port->n_pkeys; i++) {
        ovs_be16 pkey = htons(port->pkeys[i]);

        memcpy(u->bytes + IB_SOFT_PORT_LEN + 2 * i, &pkey, sizeof pkey);
    }
    return IB_SOFT_PORT_LEN + 2 * port->n_pkeys;
}

static bool
send_port(struct fabric *fabric, struct fabric_port *port)
{
    union port_msg u;
    size_t n = compose_port(fabric, port, &u);
    int error;

    memcpy(port->told, &u, sizeof port->told);
    u.msg.flags = port->reregister > 0 ? IB_SOFT_PORT_REREGISTER : 0;
    error = fabric_transport_send(fabric->transport, port->endpoint, &u, n);
    if (!error && port->reregister > 0) {
        port->reregister--;
    }
    return error != EAGAIN && error != ENOBUFS;
}

/* PORTCAP goes out where a bit is set, and once more when it was cleared. */
static bool
send_portcap(struct fabric *fabric, struct fabric_port *port)
{
    struct ib_soft_portcap msg = {
        .h.magic = htons(IB_SOFT_MAGIC),
        .h.version = IB_SOFT_VERSION,
        .h.type = IB_SOFT_PORTCAP,
        .flags = port->grh_required ? IB_SOFT_PORTCAP_GRH_REQUIRED : 0,
    };
    int error;

    if (!port->grh_required && !port->told_grh) {
        return true;
    }
    error = fabric_transport_send(fabric->transport, port->endpoint, &msg,
                                  IB_SOFT_PORTCAP_LEN);
    if (!error) {
        port->told_grh = port->grh_required;
    }
    return error != EAGAIN && error != ENOBUFS;
}

/* Tells 'port' what it is.  If its socket is full now, it is told later. */
void
fabric_port_tell(struct fabric *fabric, struct fabric_port *port)
{
    if (port->endpoint) {
        set_pending(fabric, port, !(send_port(fabric, port)
                                    && send_portcap(fabric, port)));
    }
}

/* Asks 'port' to join its groups again. */
void
fabric_port_reregister(struct fabric *fabric, struct fabric_port *port)
{
    if (port->endpoint) {
        port->reregister = (fabric_endpoint_is_udp(port->endpoint)
                            ? UDP_REREGISTERS : 1);
        fabric_port_tell(fabric, port);
    }
}

void
fabric_reregister_all(struct fabric *fabric)
{
    struct fabric_port *port;

    HMAP_FOR_EACH (port, guid_node, &fabric->ports) {
        fabric_port_reregister(fabric, port);
    }
}

/* External subnet managers. */

/* Takes over what an external manager has set in the node of 'port', and tells
 * 'port' if that is news or 'reregister' is true. */
void
fabric_port_sync(struct fabric *fabric, struct fabric_port *port,
                 bool reregister)
{
    const struct fabric_lport *lport = port->lport;
    union port_msg u;

    port->state = lport->state;
    port->lid = fabric_lport_lid(lport);
    port->lmc = fabric_lport_lmc(lport);
    port->mtu = lport->info.mtu_sm_sl >> 4;
    port->n_pkeys = 1;
    for (size_t i = 0; i < IB_SOFT_MAX_PKEYS; i++) {
        port->pkeys[i] = ntohs(lport->pkeys[i]);
        if (port->pkeys[i]) {
            port->n_pkeys = i + 1;
        }
    }
    if (reregister) {
        fabric_port_reregister(fabric, port);
        return;
    }
    compose_port(fabric, port, &u);
    if (memcmp(port->told, &u, sizeof port->told)) {
        fabric_port_tell(fabric, port);
    }
}

static void
unplug(struct fabric_port *port)
{
    if (port->lport) {
        fabric_unplug(port->lport);
        port->lport = NULL;
    }
}

/* Shows 'port', which has just attached, to an external manager.  Returns
 * false if the switches have no port left. */
static bool
plug(struct fabric *fabric, struct fabric_port *port)
{
    unplug(port);
    port->lport = fabric_plug(fabric->topology, port->node_guid, port->guid,
                              port->max_mtu, port->description, -1);
    if (port->lport) {
        port->lport->node->hca = port;
        port->pkeys[0] = IB_PKEY_DEFAULT;
        fabric_port_sync(fabric, port, true);
    }
    return port->lport != NULL;
}

/* Coming and going. */

static void
notify_service(struct fabric *fabric, const struct fabric_port *port,
               bool in_service)
{
    struct ib_gid gid = fabric_port_gid(fabric, port);

    fabric->notify(fabric, (in_service ? IB_TRAP_PORT_IN_SERVICE
                            : IB_TRAP_PORT_OUT_SERVICE), &gid);
}

/* Takes 'port' from its endpoint, which stays.  The port keeps its LID. */
void
fabric_detach(struct fabric *fabric, struct fabric_port *port)
{
    VLOG_INFO_RL(&rl, "port %016"PRIx64" went away", port->guid);
    unplug(port);
    port->endpoint->owner = NULL;
    port->endpoint = NULL;
    port->gone_at = time_msec();
    set_pending(fabric, port, false);
    fabric->n_attached--;
    fabric->port_lost(fabric, port);
    if (port->state == FABRIC_PORT_ACTIVE) {
        notify_service(fabric, port, false);
    }
}

/* Moves 'port' to 'ep', from wherever it was. */
static void
move_port(struct fabric *fabric, struct fabric_port *port,
          struct fabric_endpoint *ep)
{
    if (ep->owner) {
        fabric_detach(fabric, ep->owner);
    }
    if (port->endpoint) {
        struct fabric_endpoint *old = port->endpoint;

        VLOG_INFO_RL(&rl, "port %016"PRIx64" is taken over", port->guid);
        port->endpoint = NULL;
        fabric->port_lost(fabric, port);
        fabric_endpoint_close(fabric->transport, old);
    } else {
        fabric->n_attached++;
    }
    set_pending(fabric, port, false);
    port->endpoint = ep;
    port->told_grh = false;
    ep->owner = port;
}

/* Takes over what 'attach' says of 'port' besides its GUID. */
static void
describe_port(struct fabric_port *port, const struct ib_soft_attach *attach)
{
    port->node_guid = ((uint64_t) ntohl(attach->node_guid[0]) << 32
                       | ntohl(attach->node_guid[1]));
    if (port->lport && memcmp(port->lport->node->description,
                              attach->description,
                              sizeof port->description)) {
        memcpy(port->lport->node->description, attach->description,
               sizeof port->description);
        port->lport->node->changed = true;
    }
    memcpy(port->description, attach->description, sizeof port->description);
    port->max_mtu = attach->max_mtu;
}

/* The rest of fabric_attach() under an external manager, which has all else to
 * say. */
static void
attach_external(struct fabric *fabric, struct fabric_port *port, bool fresh)
{
    if (!fresh) {
        fabric_port_tell(fabric, port);
    } else if (!plug(fabric, port)) {
        struct fabric_endpoint *ep = port->endpoint;

        VLOG_WARN_RL(&rl, "no switch has a port for port %016"PRIx64
                     ": --switches says how many there are", port->guid);
        fabric_count(fabric, NULL, FC_drop_attach_refused);
        fabric_detach(fabric, port);
        fabric_endpoint_close(fabric->transport, ep);
    } else {
        VLOG_INFO_RL(&rl, "port %016"PRIx64" attached, at switch %d, port %d",
                     port->guid, port->lport->peer->node->index + 1,
                     port->lport->peer->num);
    }
}

/* Handles the message 'attach' from 'ep'. */
void
fabric_attach(struct fabric *fabric, struct fabric_endpoint *ep,
              const struct ib_soft_attach *attach)
{
    uint64_t guid = ((uint64_t) ntohl(attach->port_guid[0]) << 32
                     | ntohl(attach->port_guid[1]));
    struct fabric_port *port;
    bool fresh;

    if (!guid || attach->max_mtu < 1 || attach->max_mtu > 5) {
        fabric_count(fabric, NULL, FC_drop_bad_attach);
        return;
    }
    port = fabric_port_by_guid(fabric, guid);
    if (port == fabric->sm) {
        fabric_count(fabric, NULL, FC_drop_attach_refused);
        return;
    }
    if (!port) {
        port = port_create(fabric, guid);
        if (!fabric->topology && !assign_lid(fabric, port, fabric->cfg.lmc)) {
            VLOG_WARN_RL(&rl, "no LID is left for port %016"PRIx64, guid);
            port_destroy(fabric, port);
            fabric_count(fabric, NULL, FC_drop_attach_refused);
            return;
        }
    }

    fresh = port->endpoint != ep;
    if (fresh) {
        move_port(fabric, port, ep);
    }
    describe_port(port, attach);
    if (fabric->topology) {
        attach_external(fabric, port, fresh);
        return;
    }
    port->mtu = MIN(port->max_mtu, port->mtu_limit);
    if (!fresh) {
        fabric_port_tell(fabric, port);
        return;
    }
    VLOG_INFO_RL(&rl, "port %016"PRIx64" attached, LID %"PRIu16, guid,
                 port->lid);
    fabric_port_reregister(fabric, port);
    if (port->state == FABRIC_PORT_ACTIVE) {
        notify_service(fabric, port, true);
    }
}

/* Forgets ports that went away long ago. */
static void
expire_ports(struct fabric *fabric)
{
    long long int now = time_msec();
    struct fabric_port *port;

    if (now < fabric->next_expiry) {
        return;
    }
    fabric->next_expiry = now + 10 * 1000;
    HMAP_FOR_EACH_SAFE (port, guid_node, &fabric->ports) {
        if (!fabric_port_is_present(port)
            && now - port->gone_at > PORT_MEMORY_MS) {
            port_destroy(fabric, port);
        }
    }
}

void
fabric_ports_run(struct fabric *fabric)
{
    struct fabric_port *port;

    LIST_FOR_EACH_SAFE (port, pending_node, &fabric->pending) {
        fabric_port_tell(fabric, port);
    }
    expire_ports(fabric);
}

void
fabric_ports_wait(struct fabric *fabric)
{
    if (!ovs_list_is_empty(&fabric->pending)) {
        poll_timer_wait(PENDING_RETRY_MS);
    }
}

/* Makes up 'n' ports that the subnet manager knows and nobody ever hears of.
 * Returns NULL, or an error, which the caller must free. */
char *
fabric_ports_make_up(struct fabric *fabric, unsigned int n)
{
    static const char name[] = "made-up port";

    for (unsigned int i = 0; i < n; i++) {
        struct fabric_port *port = port_create(fabric,
                                               fabric->next_made_up);

        if (!assign_lid(fabric, port, fabric->cfg.lmc)) {
            port_destroy(fabric, port);
            return xasprintf("no LID is left after %u ports", i);
        }
        fabric->next_made_up++;
        port->made_up = true;
        port->node_guid = port->guid;
        port->max_mtu = fabric->cfg.mtu;
        memcpy(port->description, name, sizeof name);
    }
    return NULL;
}

/* Look-up. */

struct fabric_port *
fabric_port_by_guid(const struct fabric *fabric, uint64_t guid)
{
    struct fabric_port *port;

    HMAP_FOR_EACH_WITH_HASH (port, guid_node, hash_uint64(guid),
                             &fabric->ports) {
        if (port->guid == guid) {
            return port;
        }
    }
    return NULL;
}

/* Returns the port of 'gid' if it takes part in the fabric. */
struct fabric_port *
fabric_port_by_gid(const struct fabric *fabric, const struct ib_gid *gid)
{
    struct fabric_port *port;

    if (ib_gid_prefix(gid) != fabric->cfg.prefix) {
        return NULL;
    }
    port = fabric_port_by_guid(fabric, ib_gid_guid(gid));
    return port && fabric_port_is_present(port) ? port : NULL;
}

/* Returns the port, or the first of the ports, of 'lid', or NULL. */
struct fabric_port *
fabric_port_by_lid(const struct fabric *fabric, uint16_t lid)
{
    return lid < IB_LID_MULTICAST ? fabric->lids[lid] : NULL;
}

static int
compare_ports(const void *a_, const void *b_)
{
    const struct fabric_port *const *a = a_;
    const struct fabric_port *const *b = b_;

    return ((*a)->lid != (*b)->lid ? ((*a)->lid < (*b)->lid ? -1 : 1)
            : (*a)->guid < (*b)->guid ? -1 : (*a)->guid > (*b)->guid);
}

/* Returns the ports that take part in the fabric, the subnet manager's among
 * them, in order of their LIDs.  The caller must free the array. */
struct fabric_port **
fabric_ports_sorted(const struct fabric *fabric, size_t *n)
{
    struct fabric_port **ports, *port;

    *n = 0;
    ports = xmalloc(hmap_count(&fabric->ports) * sizeof *ports);
    HMAP_FOR_EACH (port, guid_node, &fabric->ports) {
        if (fabric_port_is_present(port)) {
            ports[(*n)++] = port;
        }
    }
    qsort(ports, *n, sizeof *ports, compare_ports);
    return ports;
}

/* Returns the port that 's' names: a GUID in hex, or the node description of
 * one port.  Returns NULL and stores an error, which the caller must free, in
 * '*errorp' if there is none. */
struct fabric_port *
fabric_port_parse(const struct fabric *fabric, const char *s, char **errorp)
{
    struct fabric_port *port, *found = NULL;
    unsigned long long int guid;
    struct ds ds = DS_EMPTY_INITIALIZER;

    *errorp = NULL;
    HMAP_FOR_EACH (port, guid_node, &fabric->ports) {
        if (port == fabric->sm || !port->endpoint) {
            continue;
        }
        ds_clear(&ds);
        fabric_port_format_description(port, &ds);
        if (!strcmp(ds_cstr(&ds), s)) {
            if (found) {
                *errorp = xasprintf("%s: the node description of several "
                                    "ports", s);
                ds_destroy(&ds);
                return NULL;
            }
            found = port;
        }
    }
    ds_destroy(&ds);
    if (!found && str_to_ullong(s, 16, &guid)) {
        found = fabric_port_by_guid(fabric, guid);
    }
    if (!found || found == fabric->sm) {
        *errorp = xasprintf("%s: neither a port GUID nor a node description",
                            s);
        return NULL;
    }
    return found;
}

/* Properties. */

struct ib_gid
fabric_port_gid(const struct fabric *fabric, const struct fabric_port *port)
{
    uint64_t prefix = fabric->cfg.prefix;

    if (port->lport) {
        /* What the external manager has set. */
        const ovs_be32 *p = port->lport->info.prefix;

        prefix = (uint64_t) ntohl(p[0]) << 32 | ntohl(p[1]);
    }
    return ib_gid_make(prefix, port->guid);
}

/* Returns the entry of the P_Key table of 'port' for the partition of 'pkey',
 * one of full membership if there is one, or 0. */
uint16_t
fabric_port_pkey(const struct fabric_port *port, uint16_t pkey)
{
    uint16_t found = 0;

    for (size_t i = 0; i < port->n_pkeys; i++) {
        if (!((port->pkeys[i] ^ pkey) & IB_PKEY_MASK)
            && port->pkeys[i] & IB_PKEY_MASK) {
            found |= port->pkeys[i];
        }
    }
    return found;
}

const char *
fabric_port_state_to_string(uint8_t state)
{
    switch (state) {
    case FABRIC_PORT_DOWN: return "down";
    case FABRIC_PORT_INIT: return "init";
    case FABRIC_PORT_ARMED: return "armed";
    case FABRIC_PORT_ACTIVE: return "active";
    default: return "unknown";
    }
}

/* Appends the node description of 'port' to 'ds', of ASCII only. */
void
fabric_port_format_description(const struct fabric_port *port, struct ds *ds)
{
    size_t n = strnlen(port->description, sizeof port->description);

    for (size_t i = 0; i < n; i++) {
        char c = port->description[i];

        ds_put_char(ds, c >= 0x20 && c < 0x7f ? c : '?');
    }
}

void
fabric_port_set_state(struct fabric *fabric, struct fabric_port *port,
                      uint8_t state)
{
    bool was_active = port->state == FABRIC_PORT_ACTIVE;

    if (port->lport) {
        fabric_link_set(port->lport, state != FABRIC_PORT_DOWN);
        fabric_port_sync(fabric, port, false);
        return;
    }
    port->state = state;
    if (state == FABRIC_PORT_DOWN) {
        fabric->port_lost(fabric, port);
    }
    fabric_port_tell(fabric, port);
    if (port->endpoint && was_active != (state == FABRIC_PORT_ACTIVE)) {
        notify_service(fabric, port, !was_active);
    }
}

void
fabric_port_set_mtu(struct fabric *fabric, struct fabric_port *port,
                    uint8_t mtu)
{
    port->mtu_limit = mtu;
    port->mtu = port->max_mtu ? MIN(mtu, port->max_mtu) : mtu;
    fabric_port_tell(fabric, port);
}

void
fabric_port_set_pkeys(struct fabric *fabric, struct fabric_port *port,
                      const uint16_t *pkeys, size_t n)
{
    memcpy(port->pkeys, pkeys, n * sizeof *pkeys);
    port->n_pkeys = n;
    fabric_port_tell(fabric, port);
}
